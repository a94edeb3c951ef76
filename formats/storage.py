"""The one place that opens files, by local path or by any address that fsspec knows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem


class Storage:
    """A folder, local or remote. Paths below it are relative and have ``/`` between their parts."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        text = os.fspath(address)
        self.filesystem, self.root = fsspec.core.url_to_fs(text if "://" in text else os.path.abspath(text))
        self.is_local = isinstance(self.filesystem, LocalFileSystem)
        self.address = self.root if self.is_local else text.rstrip("/")
        """The folder as messages and Spark name it."""

    def __repr__(self) -> str:
        return f"Storage({self.address!r})"

    def path(self, name: str = "") -> str:
        """The full path, without the address's scheme."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder is there."""
        return bool(self.filesystem.exists(self.path(name)))

    def is_folder(self, name: str = "") -> bool:
        """Whether a folder is there."""
        return bool(self.filesystem.isdir(self.path(name)))

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it; nothing happens where it is. Raises OSError."""
        self.filesystem.makedirs(self.path(name), exist_ok=True)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading bytes."""
        with self.filesystem.open(self.path(name), "rb") as file:
            yield file

    def read_text(self, name: str) -> str:
        """A whole UTF-8 file. Raises FileNotFoundError."""
        with self.open(name) as file:
            return file.read().decode("utf-8")

    def publish_text(self, name: str, text: str) -> None:
        """Write a UTF-8 file so that readers see the old one or the new one, whole."""
        self.filesystem.makedirs(self.root, exist_ok=True)
        if not self.is_local:  # an object appears when its upload is complete
            self.filesystem.pipe_file(self.path(name), text.encode("utf-8"))
            return
        aside = self.path(f".{name}.{os.getpid()}")
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path(name))

    def names(self, folder: str = "") -> list[str]:
        """The names directly below a folder, sorted; empty where there is no such folder."""
        try:
            found: list[Any] = self.filesystem.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def files(self, folder: str) -> list[str]:
        """All files at any depth below a folder, relative to it, sorted."""
        prefix = len(self.path(folder)) + 1
        return sorted(str(path)[prefix:] for path in self.filesystem.find(self.path(folder)))

    def move(self, source: str, target: str) -> None:
        """Move one file within this storage; the folders of the target are made."""
        folder = self.path(target).rpartition("/")[0]
        self.filesystem.makedirs(folder, exist_ok=True)
        self.filesystem.mv(self.path(source), self.path(target))

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; nothing happens where there is none."""
        if self.exists(name):
            self.filesystem.rm(self.path(name), recursive=True)
