"""Simulates power cuts with an ext4 file system in a file, of which copies are made.

A copy has what the file system has sent to its device. What was written and not synced stays in memory for minutes, so
no copy has it.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_MEGABYTES = 12
_LAZY = "loop,commit=300,data=writeback,noauto_da_alloc"
_CALLS = ("fsync", "replace", "rename", "unlink", "remove", "rmdir", "symlink")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that changes what survives a power cut: its name and its path."""

    name: str
    path: str


@contextmanager
def recorded(then: Callable[[], object] = lambda: None) -> Iterator[list[Call]]:
    """Record such calls of this process while the block runs; ``then`` is called after each."""
    calls: list[Call] = []

    def watch(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **named: Any) -> Any:
            about = args[0]
            if isinstance(about, int):
                about = os.readlink(f"/proc/self/fd/{about}")
            elif named.get("dir_fd") is not None:
                about = os.path.join(os.readlink(f"/proc/self/fd/{named['dir_fd']}"), about)
            result = call(*args, **named)
            calls.append(Call(name, os.fspath(args[1] if name in ("replace", "rename", "symlink") else about)))
            then()
            return result

        return watched

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, watch(name, getattr(os, name)))
        yield calls


class Disk:
    """A file system of a few megabytes in a folder. It syncs nothing by itself for minutes."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self._image, self._copies = folder / "disk.ext4", folder / "copies"
        self.root.mkdir()
        self._copies.mkdir()

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Create it and mount it at ``root``. Skips the test if that is not permitted."""
        with open(self._image, "wb") as file:
            file.truncate(_MEGABYTES << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-b", "1024", "-J", "size=1", self._image], check=True, timeout=60)
            _mount(self._image, self.root)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system in a file can be mounted here: {error}")
        try:
            os.sync()  # the empty copy
            yield
        finally:
            _unmount(self.root)

    def copy(self) -> Path:
        """A copy of the disk as it is now; the same copy as before if nothing has changed."""
        data = self._image.read_bytes()
        copy = self._copies / hashlib.sha256(data).hexdigest()
        if not copy.exists():
            copy.write_bytes(data)
        return copy

    @contextmanager
    def after_power_cut(self, copy: Path) -> Iterator[Path]:
        """The files that a machine finds when it starts with this copy."""
        place = copy.with_suffix(".mounted")
        place.mkdir()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, place)
            stack.callback(copy.unlink)
            _mount(copy, place)
            stack.callback(_unmount, place)
            yield place


def _mount(image: Path, place: Path) -> None:
    subprocess.run(["mount", "-o", _LAZY, image, place], check=True, timeout=60, capture_output=True)


def _unmount(place: Path) -> None:
    subprocess.run(["umount", place], check=True, timeout=60)
