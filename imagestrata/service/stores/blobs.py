"""The bytes of a version, wherever they lie."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self


class Blob(Protocol):
    """Bytes that do not change, open until `close`."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """So many bytes from there; fewer where they end."""
        ...

    def address(self, *, filename: str) -> str | None:
        """Where who may read them gets them without us, for a while; None where they come from us."""
        ...

    def close(self) -> None:
        """Let go of them."""
        ...


@dataclass(slots=True)
class FileBlob:
    """A file of this machine, which stays readable when it is deleted meanwhile."""

    descriptor: int
    size: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises FileNotFoundError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return cls(descriptor, os.fstat(descriptor).st_size)

    def read(self, start: int, length: int) -> bytes:
        """So many bytes from there; fewer where they end."""
        return os.pread(self.descriptor, length, start)

    def address(self, *, filename: str) -> str | None:
        """None: they come from us."""
        return None

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)
