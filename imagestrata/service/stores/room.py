"""How much room there is: what versions take, what has arrived and what was promised; the quota and the free disk."""

import shutil
import threading
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path

from imagestrata.service.errors import FullError
from imagestrata.service.stores.holdings import Holdings
from imagestrata.service.stores.staging import DATA


@dataclass(slots=True)
class _Staged:
    """A body on its way: the bytes that are here, those that were promised to it, and until when."""

    here: int = 0
    promised: int = 0
    until: float = inf

    @property
    def to_come(self) -> int:
        """The bytes that are promised and not here yet."""
        return max(0, self.promised - self.here) if time.monotonic() < self.until else 0


class Room:
    """The room for bodies, which arrive in folders of ``incoming``; safe for threads.

    ``quota`` is the most that versions and what arrives may take together, unless it is None.
    Promises count as if all of their bytes were here, so that together they never exceed the quota or the free disk.
    """

    def __init__(self, incoming: Path) -> None:
        self._incoming = incoming
        self._lock = threading.Lock()
        self._staged = {path.parent: _Staged(path.stat().st_size) for path in incoming.glob(f"*/{DATA}")}
        self._holdings = Holdings()
        self.quota: int | None = None

    @property
    def used(self) -> int:
        """The bytes of all versions; those that several versions share count once."""
        with self._lock:
            return self._holdings.bytes

    @property
    def arriving(self) -> int:
        """The bytes that are here and of no version yet."""
        with self._lock:
            return sum(one.here for one in self._staged.values())

    def promise(self, staged: Path, length: int, *, here: int = 0) -> None:
        """Keep room for a body of so many bytes, of which some are ``here``. Raises `FullError`."""
        with self._lock:
            before = self._staged.pop(staged, None)
            try:
                self._check(length, here)
            except FullError:
                if before is not None:
                    self._staged[staged] = before
                raise
            self._staged[staged] = _Staged(here, length)

    def pause(self, staged: Path, *, here: int, seconds: float) -> None:
        """Keep the promise to a body for so long, unless more of it comes; so many bytes of it are ``here``."""
        with self._lock:
            one = self._staged.setdefault(staged, _Staged())
            one.here, one.until = here, time.monotonic() + seconds

    def cut(self, staged: Path, *, here: int) -> None:
        """Count so many bytes of a body as here, because the others were removed."""
        with self._lock:
            self._staged.setdefault(staged, _Staged()).here = here

    def take(self, staged: Path, size: int) -> None:
        """Count bytes that are about to be written; those that were not promised need room. Raises `FullError`."""
        with self._lock:
            one = self._staged.setdefault(staged, _Staged())
            if size > one.to_come:
                self._check(size - one.to_come)
            one.here += size

    def publish(self, staged: Path, name: str, number: int, location: str, size: int) -> None:
        """Count a body as a version of a dataset, and as arriving no more, in one step; its bytes are at `location`."""
        with self._lock:
            self._staged.pop(staged, None)
            self._holdings.add(name, number, location, size)

    def forget(self, staged: Path) -> None:
        """Count a body no more."""
        with self._lock:
            self._staged.pop(staged, None)

    def add(self, name: str, number: int, location: str, size: int) -> None:
        """Count a version that was there when the server started."""
        with self._lock:
            self._holdings.add(name, number, location, size)

    def remove(self, name: str, number: int | None) -> None:
        """Count a version no longer, or none of a dataset."""
        with self._lock:
            self._holdings.remove(name, number)

    def _check(self, size: int, here: int = 0) -> None:
        """Whether a body of so many bytes fits beside all others; those ``here`` are on the disk already."""
        to_come = sum(one.to_come for one in self._staged.values())
        used = self._holdings.bytes + sum(one.here for one in self._staged.values()) + to_come
        if self.quota is not None and used + size > self.quota:
            raise FullError(
                f"Wanted room for {size:,} bytes. Found: {used:,} of the quota of {self.quota:,} are used or promised"
            )
        free = shutil.disk_usage(self._incoming).free - to_come
        if size - here > free:
            raise FullError(
                f"Wanted room for {size - here:,} bytes on the disk. Found: {max(0, free):,} that are not promised"
            )
