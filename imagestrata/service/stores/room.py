"""Space: what versions, arriving bodies and reservations take of the quota and the disk."""

import shutil
import threading
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path

from imagestrata.service.errors import FullError
from imagestrata.service.stores.staging import DATA


@dataclass(slots=True)
class _Staged:
    """An arriving body: the bytes received, the bytes reserved, and when the reservation ends."""

    here: int = 0
    promised: int = 0
    until: float = inf

    @property
    def to_come(self) -> int:
        """The bytes that are reserved and not received yet."""
        return max(0, self.promised - self.here) if time.monotonic() < self.until else 0


class Room:
    """Space for bodies that arrive in folders of ``incoming``. Safe for threads. Reserved bytes count as used, so
    reservations together never exceed the free space or the ``quota``, which limits versions and arriving bodies
    together (None: no limit).
    """

    def __init__(self, incoming: Path) -> None:
        self._incoming = incoming
        self._lock = threading.Lock()
        self._staged = {path.parent: _Staged(path.stat().st_size) for path in incoming.glob(f"*/{DATA}")}
        self._versions: dict[str, dict[int, tuple[str, int]]] = {}  # location and size, by dataset and number
        self._used = 0
        self.quota: int | None = None

    @property
    def used(self) -> int:
        """The bytes of all versions. Shared bytes count once."""
        with self._lock:
            return self._used

    @property
    def arriving(self) -> int:
        """The bytes received that belong to no version yet."""
        with self._lock:
            return sum(one.here for one in self._staged.values())

    @property
    def free(self) -> int:
        """The free bytes of the disk that bodies arrive on."""
        return shutil.disk_usage(self._incoming).free

    def promise(self, staged: Path, length: int, *, here: int = 0) -> None:
        """Reserve ``length`` bytes for a body, of which ``here`` bytes are received. Raises `FullError`."""
        with self._lock:
            self._check(length, here, instead_of=staged)
            self._staged[staged] = _Staged(here, length)

    def keep(self, staged: Path, *, here: int, seconds: float) -> None:
        """Keep the reservation of a body with ``here`` received bytes for ``seconds``, unless more bytes arrive."""
        with self._lock:
            one = self._staged.setdefault(staged, _Staged())
            one.here, one.until = here, time.monotonic() + seconds

    def take(self, staged: Path, size: int) -> None:
        """Count bytes before they are written. Bytes that were not reserved need space. Raises `FullError`."""
        with self._lock:
            one = self._staged.setdefault(staged, _Staged())
            if size > one.to_come:
                self._check(size - one.to_come)
            one.here += size

    def forget(self, staged: Path) -> None:
        """Stop counting a body."""
        with self._lock:
            self._staged.pop(staged, None)

    def add(self, name: str, number: int, location: str, size: int, *, staged: Path | None = None) -> None:
        """Count a version whose bytes are at ``location``, and in the same step no longer the body that became it."""
        with self._lock:
            if staged is not None:
                self._staged.pop(staged, None)
            self._hold(name, {**self._versions.get(name, {}), number: (location, size)})

    def remove(self, name: str, number: int | None) -> None:
        """Stop counting a version, or all versions of a dataset."""
        with self._lock:
            kept = {} if number is None else self._versions.get(name, {})
            self._hold(name, {one: held for one, held in kept.items() if one != number})

    def _hold(self, name: str, versions: dict[int, tuple[str, int]]) -> None:
        """Count these versions of a dataset, and no others. Bytes that they share count once."""
        self._used += _distinct(versions) - _distinct(self._versions.pop(name, {}))
        if versions:
            self._versions[name] = versions

    def _check(self, size: int, here: int = 0, *, instead_of: Path | None = None) -> None:
        """Raise `FullError` unless a body of ``size`` bytes fits, without what was counted of the body ``instead_of``;
        ``here`` of them are on the disk already.
        """
        others = [one for staged, one in self._staged.items() if staged != instead_of]
        to_come = sum(one.to_come for one in others)
        used = self._used + sum(one.here for one in others) + to_come
        if self.quota is not None and used + size > self.quota:
            raise FullError(
                f"Wanted space for {size:,} bytes. Found: {used:,} of the quota of {self.quota:,} are used or reserved"
            )
        free = self.free - to_come
        if size - here > free:
            raise FullError(
                f"Wanted space for {size - here:,} bytes on the disk. Found: {max(0, free):,} that are not reserved"
            )


def _distinct(versions: dict[int, tuple[str, int]]) -> int:
    return sum(size for _, size in {*versions.values()})
