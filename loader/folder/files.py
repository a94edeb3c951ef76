"""Reads the files of class folders as a `Fetcher`."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import numpy as np

from loader.errors import AccessError, MissingImageError, UnreachableError
from loader.folder.folders import Folder
from loader.prefetch.fetcher import Row

_THREADS = 16


class FileFetcher:
    """Reads a folder's files in its own threads."""

    connections = 0
    most_in_flight = 4 * _THREADS

    def __init__(self, folder: Folder) -> None:
        self._root = os.fsencode(folder.address)
        self._paths = folder.paths
        # Sorted by their first eight bytes: among n ids, two share these with a probability of about n**2 / 2**65.
        first = np.ascontiguousarray(folder.ids[:, :8]).view(">u8").ravel()
        self._order = np.argsort(first, kind="stable")
        self._sorted = first[self._order]
        self._ids = folder.ids
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="loader-files")

    async def connect(self) -> None:
        """Does nothing: errors are raised for each file."""

    async def read(self, one: bytes, position: int, /) -> Row:
        path = self._path(one)
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._pool, _read, path)
            if not data:
                raise MissingImageError(f"Wanted {self.wanted(one)}. Found: an empty file. Was copying interrupted?")
            return data, None, ()
        except FileNotFoundError as error:
            raise MissingImageError(
                f"Wanted {self.wanted(one)}. Found: no such file. Was it deleted since the folder was listed?"
            ) from error
        except PermissionError as error:
            raise AccessError(f"Wanted {self.wanted(one)}. Found: {error.strerror}") from error
        except OSError as error:
            raise UnreachableError(f"Wanted {self.wanted(one)}. Found: {error.strerror}") from error

    def wanted(self, one: bytes, /) -> str:
        return f"image {UUID(bytes=one)} from the file {os.fsdecode(self._path(one))}"

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _path(self, one: bytes) -> bytes:
        place = int(np.searchsorted(self._sorted, np.frombuffer(one, dtype=">u8", count=1)[0]))
        while self._ids[self._order[place]].tobytes() != one:
            place += 1
        return os.path.join(self._root, self._paths[self._order[place]])


def _read(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
