"""Single samples of shards by their number, each with one request, as a `Fetcher`."""

import asyncio
import threading
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from formats import FormatsError, StorageError
from formats.daemon_threads import DaemonThreads
from formats.retries import Retries
from formats.shards.layout import IndexedFile, index_name, indexed_files
from loader.errors import MissingImageError, ShardError
from loader.prefetch.fetcher import Row
from loader.s3.client import told
from loader.shards.shard_batches import NOT_COMPANIONS
from loader.shards.shard_set import Shards

if TYPE_CHECKING:
    from formats.stores.ranges import RangeReader
    from formats.stores.storage import Storage

_THREADS = 32


class SampleFetcher:
    """Reads the samples of shards by their number over all shards, in its own threads. The index file of a shard is
    read with its first sample. Labels are masks or arrays; class numbers are not read.
    """

    most_in_flight = 2 * _THREADS

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._starts = np.cumsum([0, *(one.samples for one in shards.contents.shards)])
        self._has_companions = shards.label_type in ("blob", "multi")
        self._pool = DaemonThreads(_THREADS, "loader-samples")
        self._indexes: dict[int, list[list[IndexedFile]]] = {}
        self._locks = [threading.Lock() for _ in shards.contents.shards]  # else many threads read the same index
        self._opened: tuple[Storage, RangeReader] | None = None

    @property
    def connections(self) -> int:
        return 0 if self._opened is None else _THREADS

    async def connect(self) -> None:
        from formats.stores.ranges import RangeReader  # it imports fsspec

        storage = await asyncio.get_running_loop().run_in_executor(self._pool, self._shards.storage)
        self._opened = storage, RangeReader(storage, Retries())

    async def read(self, one: bytes, position: int, /) -> Row:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, one, position)

    def wanted(self, one: bytes, position: int, /) -> str:
        return f"image {UUID(bytes=one)} from {self._shards.address}/{self._shard(position)[1]}"

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _shard(self, position: int) -> tuple[int, str]:
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return number, self._shards.contents.shards[number].name

    def _read(self, one: bytes, position: int) -> Row:
        number, name = self._shard(position)
        try:
            files = self._index(number, name)[position - int(self._starts[number])]
            image = self._bytes(name, files[0])
            return image, self._companion(name, files), ()
        except FileNotFoundError:
            raise MissingImageError(f"Wanted {self.wanted(one, position)}. Found: no such shard, or no index") from None
        except StorageError as error:
            raise told(error) from None
        except (FormatsError, UnicodeDecodeError, IndexError) as error:
            found = "an index without the sample" if isinstance(error, IndexError) else error
            raise ShardError(f"Wanted {self.wanted(one, position)}. Found: {found}. Write the shards again.") from None

    @property
    def _open(self) -> "tuple[Storage, RangeReader]":
        assert self._opened is not None
        return self._opened

    def _index(self, number: int, name: str) -> list[list[IndexedFile]]:
        with self._locks[number]:
            if number not in self._indexes:
                text = self._open[0].read_text(index_name(name))
                self._indexes[number] = indexed_files(text, shard=name)
            return self._indexes[number]

    def _companion(self, name: str, files: list[IndexedFile]) -> bytes | None:
        if not self._has_companions:
            return None
        found = next((one for one in files[1:] if one.extension not in NOT_COMPANIONS), None)
        if found is None:
            raise ShardError(f"Wanted a mask or an array of a sample in {name}. Found: none")
        return self._bytes(name, found)

    def _bytes(self, name: str, file: IndexedFile) -> bytes:
        data = bytearray(file.size)
        if self._open[1].read_into(name, file.start, memoryview(data)) != file.size:
            raise ShardError(f"Wanted {file.size:,} bytes at {file.start:,} of {name}. Found: fewer. Write it again.")
        return bytes(data)
