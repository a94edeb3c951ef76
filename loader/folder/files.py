"""Reads the files of class folders as a `Fetcher`."""

import asyncio
import os
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from formats.daemon_threads import DaemonThreads
from loader.errors import AccessError, MissingImageError, UnreachableError
from loader.folder.folders import Folder
from loader.prefetch.fetcher import Row

_THREADS = 16


class FileFetcher:
    """Reads a folder's files in its own threads."""

    connections = 0
    most_in_flight = 4 * _THREADS

    def __init__(self, folder: Folder, places: NDArray[np.int64] | None = None) -> None:
        """``places``: the places of files in the folder, int64 ``(n,)`` by position, -1 for none; None if they are
        positions.
        """
        self._root = os.fsencode(folder.address)
        self._paths, self._places = folder.paths, places
        self._pool = DaemonThreads(_THREADS, "loader-files")

    async def connect(self) -> None:
        """Does nothing: errors are raised for each file."""

    async def read(self, one: bytes, position: int, /) -> Row:
        if self._places is not None and self._places[position] < 0:
            raise MissingImageError(f"Wanted image {UUID(bytes=one)} from {os.fsdecode(self._root)}. Found: none")
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._pool, _read, self._path(position))
            if not data:
                raise MissingImageError(
                    f"Wanted {self.wanted(one, position)}. Found: an empty file. Was copying interrupted?"
                )
            return data, None, ()
        except FileNotFoundError as error:
            raise MissingImageError(
                f"Wanted {self.wanted(one, position)}. Found: no such file. Was it deleted since the folder was listed?"
            ) from error
        except PermissionError as error:
            raise AccessError(f"Wanted {self.wanted(one, position)}. Found: {error.strerror}") from error
        except OSError as error:
            raise UnreachableError(f"Wanted {self.wanted(one, position)}. Found: {error.strerror}") from error

    def wanted(self, one: bytes, position: int, /) -> str:
        return f"image {UUID(bytes=one)} from the file {os.fsdecode(self._path(position))}"

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _path(self, position: int) -> bytes:
        return os.path.join(self._root, self._paths[position if self._places is None else self._places[position]])


def _read(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
