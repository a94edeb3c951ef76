"""One split whose images are in several stores: each read goes to the first one that answers.

::

                    no answer to 8 reads in a row
    reading from it ------------------------------> away for 30 s ----> one read tries it ----> reading from it
                                                        ^                      |     an answer
                                                        +----------------------+
                                                               no answer

The order is that of the split, and all images have its checksums, so it makes no difference which store is read. What
folders and shards lack, or have with other bytes, is read from the next store. A table decides: an image that was
deleted from it, has expired or was replaced is not looked for in copies.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.checksums import UNKNOWN, checksum
from loader.cassandra.clients import readers_of
from loader.cassandra.cluster import Cluster
from loader.errors import (
    AccessError,
    ChangedImageError,
    LoaderError,
    MissingImageError,
    OptionError,
    ShardError,
    SplitError,
    UnreachableError,
)
from loader.folder.files import FileFetcher
from loader.folder.folders import Folder
from loader.prefetch.fetcher import Fetcher, Row
from loader.shards.sample_files import SampleFetcher
from loader.shards.shard_set import Shards
from loader.splits import Split

Store: TypeAlias = Cluster | Folder | Shards

log = logging.getLogger(__name__)

# Seconds that a read waits for a store if there is another: the client gives up silent nodes after about as long.
_PATIENCE = 12.0
_AWAY_SECONDS = 30.0  # a store that does not answer is tried again after this time
# Failed reads in a row after which a store counts as away. Fewer also fail if it is only overloaded. With more, a rank
# with few reads in flight would wait for one error after another.
_FAILED_READS = 8


def failover_of(split: Split, stores: Sequence[Store], *, timeout: float) -> "Callable[[], FailoverFetcher]":
    """A function that makes a fetcher, one for each process; ``timeout`` is in seconds, for one image. Raises
    `OptionError`, and `SplitError` for a store that does not have the split's images.
    """
    if isinstance(split, (Folder, Shards)) or not isinstance(split, Split):
        raise OptionError(f"Wanted a split from loader.open_split. Found: {split!r}")
    if not isinstance(stores, Sequence) or not stores:
        raise OptionError(f"Wanted stores=[...] of clusters, class folders and shards. Found: {stores!r}")
    checksums = split.checksums
    if checksums is None or bool((checksums == UNKNOWN).any()):
        raise SplitError(
            f"Wanted a checksum of each image in {split.address}, with which all stores are compared. Found: none of "
            "some. Make the split again; tables of earlier versions get checksums from 'imagestrata migrate'."
        )
    made = [_maker(split, store) for store in stores]
    return partial(FailoverFetcher, made, patience=min(_PATIENCE, timeout / (1 + len(made))))


def _maker(split: Split, store: Store) -> "Made":
    if isinstance(store, Cluster):
        if store.on_changed != "raise":
            raise OptionError(f'Wanted clusters with on_changed="raise". Found: {store.on_changed!r}')
        return Made(f"{split.data_table} at {store.place}", readers_of(split, store), is_table=True)
    if isinstance(store, Folder):
        make: Callable[[], Fetcher] = partial(FileFetcher, store, _places(split, store))
    elif isinstance(store, Shards):
        _check_shards(split, store)
        make = partial(SampleFetcher, store)
    else:
        raise OptionError(f"Wanted a cluster, class folders or shards in stores. Found: {store!r}")
    return Made(store.address, partial(_compared, make, split, store.address))


def _places(split: Split, folder: Folder) -> NDArray[np.int64]:
    """Where a folder has each image of a split, -1 for those that it lacks. Raises `SplitError` if it has none."""
    if split.label_type not in ("int", "none"):
        raise SplitError(f"Wanted masks or arrays beside the images of {split.address}. Found: class folders")
    known = np.ascontiguousarray(folder.ids).view("V16").ravel()
    order = np.argsort(known)
    wanted = np.ascontiguousarray(split.ids).view("V16").ravel()
    found = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(order) - 1)]
    is_there = known[found] == wanted
    if not is_there.any():
        keyspace = split.metadata_table.partition(".")[0]
        raise SplitError(
            f"Wanted images of {split.address} in {folder.address}. Found: none. Open the folder with the dataset and "
            f"or_split of the ingest, such as dataset={keyspace!r}, or_split='train'."
        )
    if missing := len(split) - int(is_there.sum()):
        log.warning("%s lacks %s of the %s images of %s", folder.address, missing, len(split), split.address)
    return np.where(is_there, found, -1)


def _check_shards(split: Split, shards: Shards) -> None:
    """Raise `SplitError` unless the shards have the images of a split, in its order."""
    if shards.contents.source_fingerprint != split.fingerprint or len(shards) != len(split):
        raise SplitError(
            f"Wanted shards of {split.address}: all {len(split):,} images, fingerprint {split.fingerprint[:12]}. "
            f"Found: {len(shards):,} images, fingerprint {shards.contents.source_fingerprint[:12]}, in "
            f"{shards.address}. Write them with shard.py --split."
        )


@dataclass(frozen=True)
class Made:
    """A store by its name in messages, and how a fetcher of it is made."""

    name: str
    make: Callable[[], Fetcher]
    is_table: bool = False


def _compared(make: Callable[[], Fetcher], split: Split, address: str) -> "_Compared":
    checksums = split.checksums
    assert checksums is not None
    return _Compared(make(), checksums, address)


class _Compared:
    """A fetcher whose images are compared with the checksums of a split."""

    def __init__(self, fetcher: Fetcher, checksums: NDArray[np.int64], address: str) -> None:
        self._fetcher, self._checksums, self._address = fetcher, checksums, address
        self.connect, self.wanted, self.close = fetcher.connect, fetcher.wanted, fetcher.close
        self.most_in_flight = fetcher.most_in_flight

    @property
    def connections(self) -> int:
        return self._fetcher.connections

    async def read(self, one: bytes, position: int, /) -> Row:
        image, label, more = await self._fetcher.read(one, position)
        found, wanted = checksum(image, label if isinstance(label, bytes) else None), int(self._checksums[position])
        if found != wanted:
            raise ChangedImageError(
                f"Wanted {self.wanted(one, position)} with the checksum {wanted} of the split. Found: other bytes, "
                f"with the checksum {found}. Was the image replaced, converted or damaged? Write the copy again."
            )
        return image, label, more


class _Store:
    """A store, and whether it answers. It is connected when it is first read, and again after it was away."""

    def __init__(self, made: Made) -> None:
        self.name, self.is_table, self._make = made.name, made.is_table, made.make
        self._fetcher = made.make()
        self._opening: asyncio.Task[None] | None = None
        self.until = 0.0  # it is away up to this time
        self.failed = 0  # reads in a row
        self.has_lacked = False

    @property
    def fetcher(self) -> Fetcher:
        """What reads it."""
        return self._fetcher

    @property
    def is_connected(self) -> bool:
        """Whether it was connected."""
        return self._opening is not None

    async def connect(self) -> None:
        """Connect, once for all that wait for it. Raises what the fetcher raises."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            # Nobody may wait for it any more.
            self._opening.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        opening = self._opening
        try:
            await asyncio.shield(opening)  # a read that is cancelled does not cancel it for the others
        except LoaderError:
            if self._opening is opening:  # the next read tries again
                self._opening = None
            raise

    async def _open(self) -> None:
        try:
            await self._fetcher.connect()
        except LoaderError:
            failed, self._fetcher = self._fetcher, self._make()
            await failed.close()
            raise

    async def close(self) -> None:
        """Close its connections."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        await self._fetcher.close()


class FailoverFetcher:
    """Reads each image from the first store that answers."""

    most_in_flight = None

    def __init__(self, stores: Sequence[Made], *, patience: float = _PATIENCE) -> None:
        self._stores, self._patience = [_Store(one) for one in stores], patience

    @property
    def connections(self) -> int:
        return sum(one.fetcher.connections for one in self._stores)

    async def connect(self) -> None:
        """Connect all stores, so that wrong settings of each are noticed; one that answers is enough."""
        found = await asyncio.gather(*(one.connect() for one in self._stores), return_exceptions=True)
        errors = [one for one in found if isinstance(one, BaseException)]
        if other := next((one for one in errors if not isinstance(one, UnreachableError)), None):
            raise other
        if len(errors) == len(self._stores):
            raise errors[0]
        for store, error in zip(self._stores, found, strict=True):
            if isinstance(error, UnreachableError):
                self._lose(store, error)

    async def read(self, one: bytes, position: int, /) -> Row:
        errors: list[LoaderError] = []
        in_turn = self._in_turn()
        answering = [store for store in in_turn if not store.until]
        for store in in_turn:
            answering = [other for other in answering if other is not store]
            try:
                row = await self._read(store, one, position, self._patience if answering else None)
            except UnreachableError as error:
                store.failed += 1
                if store.failed >= _FAILED_READS or store.until or not store.is_connected:
                    self._lose(store, error)
                errors.insert(0, error)  # it is raised if no store has the image, so that the read is repeated
            except (AccessError, MissingImageError, ChangedImageError, ShardError) as error:
                if store.is_table or not store.is_connected:
                    raise
                errors.append(error)
                if not store.has_lacked and len(self._stores) > 1:
                    store.has_lacked = True
                    log.warning("%s lacks images, or has other bytes, which are read from other stores; the first: %s",
                                store.name, error)  # fmt: skip
            else:
                store.failed = 0
                if store.until:
                    store.until = 0.0
                    log.warning("%s answers again", store.name)
                return row
        raise errors[0]

    async def _read(self, store: _Store, one: bytes, position: int, patience: float | None) -> Row:
        """The image from a store, within so many seconds; None if no other store is left that answers."""
        try:
            async with asyncio.timeout(patience):
                await store.connect()
                return await store.fetcher.read(one, position)
        except TimeoutError:
            wanted = store.fetcher.wanted(one, position)
            raise UnreachableError(f"Wanted {wanted} within {patience:.3g} s. Found: no answer") from None

    def wanted(self, one: bytes, position: int, /) -> str:
        return self._stores[0].fetcher.wanted(one, position)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._stores))

    def _in_turn(self) -> list[_Store]:
        """The stores that answer, then the others. If the first has been away long enough, this read tries it."""
        now = asyncio.get_running_loop().time()
        found = sorted(self._stores, key=lambda one: one.until > now)
        if 0 < found[0].until <= now:
            found[0].until = now + _AWAY_SECONDS  # the other reads do not wait for it
        return found

    def _lose(self, store: _Store, error: UnreachableError) -> None:
        if not store.until and len(self._stores) > 1:
            others = [one.name for one in self._stores if not one.until and one is not store]
            log.warning("%s does not answer, reading from %s: %s", store.name, others[0] if others else "none", error)
        store.until = asyncio.get_running_loop().time() + _AWAY_SECONDS
