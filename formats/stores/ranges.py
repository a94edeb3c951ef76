"""Parts of files of a storage, read into the caller's memory by many threads at once."""

import os
import threading
import time
from dataclasses import dataclass

from formats.retries import Retries
from formats.stores.http import Requests
from formats.stores.storage import SIGNED_SECONDS, Storage


@dataclass(frozen=True, slots=True)
class _Signed:
    url: str
    until: float


class RangeReader:
    """Reads ranges of a storage's files; safe to be used by several threads, which have a connection each.

    ``retries`` says for how long reads of an object store are repeated.
    """

    def __init__(self, storage: Storage, retries: Retries | None = None) -> None:
        self._storage, self._retries = storage, retries
        self._is_s3 = storage.is_s3
        self._lock = threading.Lock()
        self._signed: dict[str, _Signed] = {}
        self._own = threading.local()

    def read_into(self, name: str, start: int, into: memoryview) -> int:
        """Read so many bytes of a file from there as fit; how many there were, fewer where it ends.

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
        """Let go of the connection of the thread that calls; it may read again."""
        requests: Requests | None = getattr(self._own, "requests", None)
        if requests is not None:
            requests.close()

    def _mine(self) -> Requests:
        requests: Requests | None = getattr(self._own, "requests", None)
        if requests is None:
            requests = self._own.requests = Requests(self._retries)
        return requests

    def _url(self, name: str) -> str:
        """A signed address, which all threads use until it is nearly over."""
        with self._lock:
            found = self._signed.get(name)
            if found is None or found.until < time.monotonic():
                found = _Signed(self._storage.signed(name), time.monotonic() + SIGNED_SECONDS / 2)
                self._signed[name] = found
            return found.url

    def _read_local(self, name: str, start: int, into: memoryview) -> int:
        # Opened each time: a descriptor that others may close meanwhile could be of another file by then.
        with open(self._storage.path(name), "rb", buffering=0) as file:
            done = 0
            while done < len(into) and (more := os.preadv(file.fileno(), [into[done:]], start + done)):
                done += more
            return done
