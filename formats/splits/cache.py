"""The cache of opened splits: raw files that the ranks of a host map into memory, named by fingerprint.

::

    $IMAGESTRATA_CACHE/
      FINGERPRINT/ids          uint8 (n, 16), by position
      FINGERPRINT/labels       int32 (n,), by position
      FINGERPRINT.lock         held by the one process of a host that builds
      FINGERPRINT.HOST.PID/    incomplete; what a killed builder left is removed by the next one

A cache is used if both files exist with the right sizes. They appear in one step, when their bytes are on the disk.
Their contents are not verified at each opening, which would read all of them: if you doubt them, remove the folder.
"""

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from formats.durability import sync, sync_files
from formats.errors import FormatsError, StorageError
from schemas.splits import ID_BYTES

_LABEL_BYTES = 4

Fill: TypeAlias = Callable[[NDArray[np.uint8], NDArray[np.int32]], None]
"""Writes all ids, uint8 ``(n, 16)``, and labels, int32 ``(n,)``, into arrays of zeros, or raises."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """The rows of one split in the order of ``position``.

    Both arrays are read-only and memory-mapped, so opening takes no memory and the ranks of a host share pages.

    Attributes:
        ids: UUIDs, uint8 ``(n, 16)``, big-endian.
        labels: Class numbers, int32 ``(n,)``.
    """

    ids: NDArray[np.uint8]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


def cache_folder() -> Path:
    """The folder of opened splits: ``$IMAGESTRATA_CACHE``, or ``imagestrata/splits`` in the user's cache folder.

    Raises `StorageError` for a user without a home folder.
    """
    if own := os.environ.get("IMAGESTRATA_CACHE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "imagestrata" / "splits"
    except RuntimeError as error:
        raise StorageError(f"Wanted a home folder for opened splits. Found: {error} {_ANOTHER}") from None


def cached_rows(cache: str | os.PathLike[str] | None, *, fingerprint: str, rows: int, fill: Fill) -> SplitRows:
    """The rows of a split from the cache; they are written there first if they are missing.

    Processes of a host that need them at the same time wait for the one that writes.

    Args:
        cache: The folder of opened splits; None for `cache_folder`.
        fingerprint: The fingerprint of the split.
        rows: Its number of rows.
        fill: Writes ids and labels into two arrays.

    Returns:
        Ids and labels by position.

    Raises:
        StorageError: The cache cannot be written, or the disk is full.
    """
    folder = Path(cache or cache_folder()) / fingerprint
    try:
        if not _is_whole(folder, rows):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not _is_whole(folder, rows):
                    _build(folder, rows, fill)
        return _map(folder, rows)
    except FormatsError:
        raise
    except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
        size = (ID_BYTES + _LABEL_BYTES) * rows / 1e6
        raise StorageError(
            f"Wanted a cache of {size:,.1f} MB for {rows:,} rows in {folder.parent}. Found: {error}. {_ANOTHER}"
        ) from error


_ANOTHER = "Make room, or name another folder: cache=... when you open a split, or $IMAGESTRATA_CACHE."


def _build(folder: Path, rows: int, fill: Fill) -> None:
    """Write files aside, sync them, and rename them. Under the lock, everything aside is left over."""
    ours = f"{folder.name}.{socket.gethostname()}"  # hosts may share a folder without sharing locks
    for left in folder.parent.glob(f"{ours}.*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = folder.with_name(f"{ours}.{os.getpid()}")
    try:
        aside.mkdir()
        ids = _create(aside / "ids", (rows, ID_BYTES), np.uint8)
        labels = _create(aside / "labels", (rows,), np.int32)
        fill(ids, labels)
        del ids, labels
        # Else a power cut could leave zeros in files of the right size.
        sync_files(str(aside / name) for name in ("ids", "labels"))
        if not _is_whole(folder, rows):  # else another host was first
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(aside, folder)
            sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _create(path: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """A new file as a writable array of zeros; an empty file cannot be mapped.

    Its space is allocated now: a page for which there is no space later would end the process with SIGBUS.
    """
    with open(path, "wb") as file:
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _is_whole(folder: Path, rows: int) -> bool:
    try:
        sizes = (folder / "ids").stat().st_size, (folder / "labels").stat().st_size
    except OSError:
        return False
    return sizes == (ID_BYTES * rows, _LABEL_BYTES * rows)


def _map(folder: Path, rows: int) -> SplitRows:
    if not rows:
        return SplitRows(np.empty((0, ID_BYTES), np.uint8), np.empty(0, np.int32))
    ids = np.memmap(folder / "ids", dtype=np.uint8, mode="r", shape=(rows, ID_BYTES))
    return SplitRows(ids, np.memmap(folder / "labels", dtype=np.int32, mode="r", shape=(rows,)))
