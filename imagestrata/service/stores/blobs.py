"""The bytes of a version, in a folder or a bucket."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self


class Blob(Protocol):
    """Immutable bytes, open until `close`."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Read ``length`` bytes from ``start``; fewer at the end."""
        ...

    def address(self, *, filename: str) -> str | None:
        """Return a temporary address for a direct download, or None if the service must send the bytes."""
        ...

    def close(self) -> None:
        """Release the bytes."""
        ...


@dataclass(slots=True)
class FileBlob:
    """A local file. It stays readable if it is deleted while it is open."""

    descriptor: int
    size: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file. Raises FileNotFoundError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return cls(descriptor, os.fstat(descriptor).st_size)

    def read(self, start: int, length: int) -> bytes:
        """Read ``length`` bytes from ``start``; fewer at the end."""
        return os.pread(self.descriptor, length, start)

    def address(self, *, filename: str) -> str | None:
        """Return None: the service sends local files itself."""
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)
