"""Objects of a bucket, read in parallel by each process over its own connections."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from formats import StorageError
from formats.daemon_threads import DaemonThreads
from formats.read_ahead import ahead
from formats.retries import Retries
from loader.errors import AccessError, MissingImageError, UnreachableError
from loader.s3.client import Client, told

if TYPE_CHECKING:
    from formats.stores.storage import Storage

ANEW = "Make the folder again; if it has a cache, with refresh=True."

Item = TypeVar("Item")


class ObjectReader:
    """Reads whole objects below a folder of a bucket, ``reads`` at a time. A failing read is repeated for ``timeout``
    seconds. It is pickled without its connections and threads, and a forked process does not use its parent's.
    """

    def __init__(self, client: Client, bucket: str, folder: str, *, reads: int, timeout: float) -> None:
        self._client, self._bucket, self._folder = client, bucket, folder
        self._reads, self._timeout = reads, timeout
        self._mine: _Own | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mine": None}

    def url(self, name: str, /) -> str:
        """The address of an object."""
        return f"{self._client.address(self._bucket, self._folder)}/{name}"

    def read(self, name: str, /, stop: threading.Event | None = None) -> bytes:
        """An object's bytes. Raises `MissingImageError` or `AccessError` immediately, and `UnreachableError` after the
        timeout, or when ``stop`` is set.
        """
        stop = stop or threading.Event()
        retries = Retries(seconds=self._timeout, is_stopped=stop.is_set)
        return retries.run(lambda: self._attempt(name, stop), UnreachableError)

    def read_ahead(self, items: Iterable[Item], name_of: Callable[[Item], str], /) -> Iterator[tuple[Item, bytes]]:
        """Items and their objects' bytes, in the order of the items. Up to ``reads`` of them are read ahead."""
        stop = threading.Event()
        try:
            yield from ahead(
                items, lambda item: self._own().pool.submit(self.read, name_of(item), stop), most=self._reads
            )
        finally:  # also if the consumer stops early: a read that is repeated must not delay the end of the process
            stop.set()

    def _attempt(self, name: str, stop: threading.Event) -> bytes:
        wanted = f"Wanted {self.url(name)}"
        error: Exception
        try:
            return self._storage(stop).read_bytes(name)
        except FileNotFoundError:
            raise MissingImageError(
                f"{wanted}. Found: no such object. Was it deleted since the folder was listed? {ANEW}"
            ) from None
        except PermissionError as denied:
            raise AccessError(f"{wanted}. Found: {denied.strerror}") from None
        except StorageError as foreign:
            error = told(foreign)
        except (AccessError, UnreachableError, OSError) as other:
            error = other
        text = str(getattr(error, "strerror", None) or error)
        reason = text.partition("Found: ")[2] or " ".join(text.split()) or type(error).__name__
        if isinstance(error, AccessError):
            raise AccessError(f"{wanted}. Found: {reason}")
        raise UnreachableError(f"{wanted} within {self._timeout:g} s. Found: {reason}")

    def _storage(self, stop: threading.Event) -> "Storage":
        own = self._own()
        with own.lock:
            if own.storage is None:
                if stop.is_set():
                    raise UnreachableError("Cannot connect: reading was stopped.")
                own.storage = self._client.storage(self._bucket, self._folder)
            return own.storage

    def _own(self) -> "_Own":
        if self._mine is None or self._mine.pid != os.getpid():
            self._mine = _Own(os.getpid(), DaemonThreads(self._reads, "loader-objects"))
        return self._mine


@dataclass(eq=False)
class _Own:
    """What belongs to one process."""

    pid: int
    pool: DaemonThreads
    lock: threading.Lock = field(default_factory=threading.Lock)
    storage: "Storage | None" = None
