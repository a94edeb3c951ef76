"""The client that reads from Cassandra: acsylla without TLS, DataStax's Python driver with TLS, or the installed one.

acsylla is faster. Its wheel bundles OpenSSL 1.1.1k, which OpenSSL no longer supports and only a new release of acsylla
can replace. The driver uses Python's OpenSSL, which updates of the system or of Python replace.
"""

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from loader.cassandra.cluster import ClientName, Cluster
from loader.cassandra.fetch_acsylla import AcsyllaFetcher
from loader.cassandra.fetch_driver import DriverFetcher
from loader.cassandra.target import Kind, Target
from loader.errors import MissingExtraError
from loader.splits import Split
from schemas import TableName

TableReader: TypeAlias = AcsyllaFetcher | DriverFetcher

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


def readers_of(split: Split, cluster: Cluster, *, metadata: tuple[str, ...] = ()) -> Callable[[], TableReader]:
    """A function that makes a reader of a split's tables, one for each process."""
    return partial(reader, target_of(split, cluster, metadata=metadata))


def target_of(split: Split, cluster: Cluster, *, metadata: tuple[str, ...] = ()) -> Target:
    """What is read for a split, including labels if the split does not have them."""
    table = TableName.parse(split.data_table)
    return Target(
        cluster=cluster,
        table=table,
        columns=split.columns,
        label=_LABELS[split.label_type] if split.labels is None else None,
        metadata_table=TableName.parse(split.metadata_table) if metadata else table,
        metadata=metadata,
        origin=_origin(split),
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


def reader(target: Target) -> TableReader:
    """A reader of the target with the cluster's client, or else the default one. Raises `MissingExtraError`."""
    client = target.cluster.client or default_client(uses_tls=target.cluster.access.uses_tls)
    return AcsyllaFetcher(target) if client == "acsylla" else DriverFetcher(target)


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
