"""The client that reads from Cassandra: acsylla without TLS, DataStax's Python driver with TLS, or the installed one.

acsylla is faster. Its wheel bundles OpenSSL 1.1.1k, which OpenSSL no longer supports and only a new release of acsylla
can replace. The driver uses Python's OpenSSL, which updates of the system or of Python replace.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN, checksum
from loader.cassandra.cluster import QUORUMS, ClientName, Cluster, Consistency
from loader.cassandra.diagnosis import diagnosis
from loader.cassandra.fetch_acsylla import AcsyllaClient
from loader.cassandra.fetch_driver import DriverClient
from loader.cassandra.probe import connections_for, round_trip
from loader.cassandra.target import CONNECT_SECONDS, Kind, Target
from loader.errors import LoaderError, MissingExtraError, TableError, UnreachableError
from loader.prefetch.fetcher import Label, Row
from loader.splits import Split
from schemas import TableName

_log = logging.getLogger(__name__)
_warned: set[str] = set()
_WARNINGS: dict[ClientName, str] = {
    "acsylla": (
        "cassandra-driver cannot be imported (%s): reading over TLS with acsylla. It bundles OpenSSL 1.1.1k, which "
        "OpenSSL no longer supports: your system's security updates do not reach it, only a new release of acsylla "
        "does. To use the OpenSSL of Python: pip install cassandra-driver"
    ),
    "cassandra-driver": (
        "acsylla cannot be imported (%s): reading with cassandra-driver, which takes about three times the CPU time"
    ),
}
# The type of a data table's label column, by the type of labels.
_LABELS: dict[str, Kind | None] = {"int": "int", "blob": "blob", "multi": "blob", "none": None}


def readers_of(
    split: Split, cluster: Cluster, *, metadata: tuple[str, ...] = (), has_images: bool = True
) -> "Callable[[], TableReader]":
    """A function that makes a reader of a split's tables, one for each process. Raises `SplitError`."""
    if has_images:
        _checksums(split, cluster)  # an error of them is one of this call, not of the first image
    return partial(_reader, split, cluster, metadata=metadata, has_images=has_images)


def _reader(split: Split, cluster: Cluster, *, metadata: tuple[str, ...], has_images: bool) -> "TableReader":
    # Checksums are mapped into memory by each process, so what is sent to workers does not contain them.
    checksums = _checksums(split, cluster) if has_images else None
    return TableReader(target_of(split, cluster, metadata=metadata), checksums=checksums, has_images=has_images)


def _checksums(split: Split, cluster: Cluster) -> NDArray[np.int64] | None:
    return split.checksums if cluster.on_changed == "raise" else None


def target_of(split: Split, cluster: Cluster, *, metadata: tuple[str, ...] = ()) -> Target:
    """What is read for a split, including labels if the split does not have them."""
    table = TableName.parse(split.data_table)
    is_checked = cluster.on_changed == "raise" and split.checksums_fingerprint is not None
    has_all = is_checked and not split.opened.part(split.index).without_checksum
    usual: Consistency = "LOCAL_ONE" if has_all else "LOCAL_QUORUM"
    return Target(
        cluster=cluster,
        consistency=cluster.consistency or usual,
        table=table,
        columns=split.columns,
        label=_LABELS[split.label_type] if split.labels is None else None,
        metadata_table=TableName.parse(split.metadata_table) if metadata or is_checked else table,
        metadata=metadata,
        origin=_origin(split),
        split=f"split {split.index} of {split.address}",
    )


def _origin(split: Split) -> str:
    """Why a split's image may be missing from the table, with the tables that the split names."""
    if split.recorded_table not in ("", split.data_table):
        return (
            f"{split.address} names the table {split.recorded_table}, but {split.data_table} is read instead. "
            "Give the data_table that belongs to it, or none."
        )
    if split.expires:
        return (
            f"Images of {split.address} expire from {split.expires} on (ingest.py --ttl), so this one may have "
            "expired. Ingest the images again, or make the split again."
        )
    made = f" of {split.metadata_table}" if split.metadata_table else ""
    return (
        f"{split.address} lists images{made}, which are read from {split.data_table}. Was the split made from other "
        "tables, or was the image deleted? Ingest the images again, or make the split again."
    )


class TableReader:
    """Reads a target, with as many connections to each node as its cluster says, or as the round trip needs. Images are
    compared with ``checksums``, if there are any. Without images, it reads metadata alone.
    """

    most_in_flight = None

    def __init__(
        self,
        target: Target,
        *,
        checksums: NDArray[np.int64] | None = None,
        has_images: bool = True,
        client: Any = None,
    ) -> None:
        """``client``: what asks the cluster, by default one of the two that exist."""
        self._target, self._checksums, self._has_images = target, checksums, has_images
        self._client = client_of(target) if client is None else client
        self._opening: asyncio.Task[None] | None = None
        self._select: Any = None
        self._select_metadata: Any = None
        self._select_kept: Any = None

    @property
    def connections(self) -> int:
        return self._client.connections

    async def connect(self) -> None:
        target, client, cluster = self._target, self._client, self._target.cluster
        count = cluster.connections
        if count is None:
            seconds = await round_trip(cluster.hosts, cluster.port, cluster.access.tls())
            count = connections_for(seconds, bytes_a_second=client.bytes_a_second)
        self._opening = asyncio.create_task(client.open(count))
        done, _ = await asyncio.wait({self._opening}, timeout=CONNECT_SECONDS)
        if not done:
            raise UnreachableError(f"Wanted Cassandra at {cluster.place}. Found: no answer in {CONNECT_SECONDS:.0f} s")
        try:
            self._opening.result()
            target.check(await client.columns(target.table))
            self._select = await client.prepare(target.select)
            if self._checksums is not None:
                await self._look_for_kept()
            if target.metadata:
                target.check_metadata(await client.columns(target.metadata_table))
                self._select_metadata = await client.prepare(target.select_metadata)
        except LoaderError:
            raise
        except client.error as error:
            found = await client.explained(error, f"Cassandra at {cluster.place}", target.consistency)
            if not isinstance(found, TableError):
                found = await diagnosis(cluster) or found
            raise found from error

    async def read(self, one: bytes, position: int, /) -> Row:
        if not self._has_images:
            return b"", None, await self._metadata(one)
        if not self._target.metadata:
            return *await self._image(one, position), ()
        other = asyncio.ensure_future(self._metadata(one))
        try:
            # Of two errors, raise that of the image: it says whether the image was deleted.
            found = await self._image(one, position)
            return *found, await other
        finally:
            if not other.cancel() and not other.cancelled():
                other.exception()  # seen

    @property
    def _is_weak(self) -> bool:
        """Whether reads may miss a write. Then a quorum is asked again; a level that finds all writes is kept."""
        return self._target.consistency not in QUORUMS

    async def _image(self, one: bytes, position: int) -> tuple[bytes, Label]:
        """An image and its label, compared with the checksum."""
        wanted = UNKNOWN if self._checksums is None else int(self._checksums[position])
        select_kept = self._select_kept
        row = await self._row(self._select, one)
        if wanted == UNKNOWN:
            return self._target.image(one, row)
        if row is not None and row[0] and _checksum(found := self._target.image(one, row)) == wanted:
            return found
        if select_kept is not None:  # a later run has replaced it
            row = await self._row(select_kept, one, wanted, at_quorum=self._is_weak)
            if row is not None and row[0] and _checksum(found := self._target.image(one, row)) == wanted:
                return found
        # The replica may have missed a write, or its bytes may be damaged.
        found = self._target.image(one, await self._row(self._select, one, at_quorum=self._is_weak))
        if _checksum(found) == wanted:
            return found
        if select_kept is None:  # a run may have begun to keep bytes since; another read may have found out already
            try:
                is_kept = self._select_kept is not None or await self._look_for_kept()
            except self._client.error as error:
                raise await self._client.explained(error, self._target.wanted(one), self._target.consistency) from error
            if is_kept:
                return await self._image(one, position)
        raise self._target.changed(one, _checksum(found), wanted=wanted, row=await self._recorded(one))

    async def _look_for_kept(self) -> bool:
        """Find out how kept bytes are read; returns whether a run has kept any."""
        has_kept = CHECKSUM in await self._client.columns(self._target.kept)
        self._select_kept = await self._client.prepare(self._target.select_kept) if has_kept else None
        return has_kept

    async def _recorded(self, one: bytes) -> tuple[Any, ...] | None:
        """What the metadata has of an image with other bytes, `Target.select_recorded`; None if it cannot be read."""
        try:
            select = await self._client.prepare(self._target.select_recorded)
            return await self._client.row(select, one, at_quorum=self._is_weak)
        except self._client.error as error:  # it only explains another error
            _log.info("the metadata of an image with other bytes cannot be read: %s", error)
            return None

    async def _metadata(self, one: bytes) -> tuple[Any, ...]:
        # No checksum covers these values, so a quorum is asked for them unless the user has chosen otherwise.
        at_quorum = self._target.cluster.consistency is None and self._is_weak
        return self._target.values(one, await self._row(self._select_metadata, one, at_quorum=at_quorum))

    async def _row(self, select: Any, one: bytes, *more: Any, at_quorum: bool = False) -> tuple[Any, ...] | None:
        try:
            row = await self._client.row(select, one, *more, at_quorum=at_quorum)
            is_absent = row is None or (select is self._select and row[0] is None)
            if is_absent and not at_quorum and self._is_weak:
                # Ask a quorum before a row counts as missing or deleted: the replicas that were asked may have missed
                # its write.
                at_quorum = True
                row = await self._client.row(select, one, *more, at_quorum=True)
        except self._client.error as error:
            level = "LOCAL_QUORUM" if at_quorum else self._target.consistency
            raise await self._client.explained(error, self._target.wanted(one), level) from error
        return row

    def wanted(self, one: bytes, position: int, /) -> str:
        return self._target.wanted(one)

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        """The type and kind of each column of a table by its name; none if there is no such table."""
        return await self._client.columns(table)

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait({self._opening})
            if not self._opening.cancelled():
                self._opening.exception()  # seen
            await self._client.close()


def _checksum(found: tuple[bytes, Label]) -> int:
    image, label = found
    return checksum(image, label if isinstance(label, bytes) else None)


def client_of(target: Target) -> AcsyllaClient | DriverClient:
    """The cluster's client, or else the default one. Raises `MissingExtraError`."""
    client = target.cluster.client or default_client(uses_tls=target.cluster.access.uses_tls)
    return AcsyllaClient(target) if client == "acsylla" else DriverClient(target)


def default_client(*, uses_tls: bool) -> ClientName:
    """The client that reads by default, with a warning, once a process, if it is the other one because the preferred
    one is missing. Raises `MissingExtraError`.
    """
    reasons: list[str] = []
    modules: dict[ClientName, str] = {"acsylla": "acsylla", "cassandra-driver": "cassandra.cluster"}
    wanted, other = sorted(modules, key=lambda client: (client == "acsylla") == uses_tls)
    for client in (wanted, other):
        try:
            importlib.import_module(modules[client])
        except ImportError as error:
            reasons.append(str(error))
            continue
        if client == other and client not in _warned:
            _warned.add(client)
            _log.warning(_WARNINGS[client], *reasons)
        return client
    raise MissingExtraError(
        f"Wanted acsylla or cassandra-driver for reading from Cassandra. Found: neither can be imported "
        f"({'; '.join(reasons)}). Install them: pip install 'imagestrata[loader]'",
        name="acsylla",
    )
