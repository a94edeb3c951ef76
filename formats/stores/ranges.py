"""Reads of byte ranges of stored files into the caller's buffers, by many threads."""

import os
import threading
from collections.abc import Callable
from typing import Any

from formats.retries import Retries
from formats.stores.http import Requests
from formats.stores.storage import SIGNED_SECONDS, Storage


class RangeReader:
    """Reads byte ranges of files in a storage. It is thread-safe; each thread has its own connection. ``retries`` is
    the retry policy for reads from an object store, and ``local`` makes the storage of each thread.
    """

    def __init__(self, storage: Storage, retries: Retries, *, local: Callable[[], Any] = threading.local) -> None:
        self._storage, self._retries = storage, retries
        self._is_s3 = storage.is_s3
        self._lock = threading.Lock()
        self._signed: dict[str, tuple[str, float]] = {}  # URLs, and until when they are used
        self._own = local()

    def read_into(self, name: str, start: int, into: memoryview) -> int:
        """Read bytes of a file from ``start`` into a buffer; return how many were read, fewer at the end of the file.
        Raises FileNotFoundError, OSError, `StorageError`.
        """
        if self._is_s3:
            return self._mine().read_into(self._url(name), start, into, place=f"{self._storage.address}/{name}")
        if self._storage.is_local:
            return self._read_local(name, start, into)
        data = self._storage.read_range(name, start, len(into))
        into[: len(data)] = data
        return len(data)

    def leave(self) -> None:
        """Close the connection of the calling thread, which may read again later."""
        requests: Requests | None = getattr(self._own, "requests", None)
        if requests is not None:
            requests.close()

    def _mine(self) -> Requests:
        requests: Requests | None = getattr(self._own, "requests", None)
        if requests is None:
            requests = self._own.requests = self._storage.requests(self._retries)
        return requests

    def _url(self, name: str) -> str:
        """A presigned URL, which all threads use until shortly before it expires."""
        with self._lock:
            url, until = self._signed.get(name, ("", float("-inf")))
            now = self._retries.clock()
            if until < now:
                url = self._storage.signed(name)
                self._signed[name] = (url, now + SIGNED_SECONDS / 2)
            return url

    def _read_local(self, name: str, start: int, into: memoryview) -> int:
        # Opened for each read: if another thread closed a shared descriptor, its number could belong to another file.
        with open(self._storage.path(name), "rb", buffering=0) as file:
            done = 0
            while done < len(into) and (more := os.preadv(file.fileno(), [into[done:]], start + done)):
                done += more
            return done
