"""The cache of opened splits: raw files that the ranks of a host map into memory, named by fingerprint.

::

    $IMAGESTRATA_CACHE/
      FINGERPRINT/ids          uint8 (n, 16), by position
      FINGERPRINT/labels       int32 (n,), by position
      FINGERPRINT/values       of a feature instead of a split: its values by position
      FINGERPRINT/xxhash64     of the checksums of a split: int64 (n,), by position
      FINGERPRINT.lock         held by the one process of a host that builds
      FINGERPRINT.HOST.PID/    incomplete; what a killed builder left is removed by the next one

A cache is used if all files exist with the right sizes. They appear in one step, when their bytes are on the disk.
Their contents are not verified at each opening, which would read all of them: if you doubt them, remove the folder.
"""

import math
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from formats.durability import sync, sync_files
from formats.errors import FormatsError, StorageError
from formats.splits.opened import SplitRows
from formats.user_cache import our_cache
from schemas.splits import ID_BYTES

Layout: TypeAlias = Mapping[str, tuple[tuple[int, ...], Any]]  # the arrays of a cache by name: shape and dtype

Arrays: TypeAlias = dict[str, NDArray[Any]]

# Writes all ids, uint8 ``(n, 16)``, and labels, int32 ``(n,)``, into arrays of zeros, or raises.
Fill: TypeAlias = Callable[[NDArray[np.uint8], NDArray[np.int32]], None]


def cache_folder() -> Path:
    """The folder of opened splits: ``$IMAGESTRATA_CACHE``, or ``imagestrata/splits`` in the user's cache folder. Raises
    `StorageError` for a user without a home folder.
    """
    own = os.environ.get("IMAGESTRATA_CACHE")
    return Path(own) if own else our_cache("splits")


def cached_rows(cache: str | os.PathLike[str] | None, *, fingerprint: str, rows: int, fill: Fill) -> SplitRows:
    """The rows of a split from the cache, `cache_folder` by default; ``fill`` writes ids and labels if they are
    missing. Raises `StorageError` if the cache cannot be written, or the disk is full.
    """
    layout: Layout = {"ids": ((rows, ID_BYTES), np.uint8), "labels": ((rows,), np.int32)}
    found = cached_arrays(
        cache, fingerprint=fingerprint, layout=layout, fill=lambda arrays: fill(arrays["ids"], arrays["labels"])
    )
    return SplitRows(np.asarray(found["ids"]), np.asarray(found["labels"]))


def cached_arrays(
    cache: str | os.PathLike[str] | None, *, fingerprint: str, layout: Layout, fill: Callable[[Arrays], None]
) -> Arrays:
    """Arrays by name from the cache, read-only and memory-mapped. If they are missing, ``fill`` writes into arrays of
    zeros first, or raises. Processes of a host that need them at the same time wait for the one that writes. Raises
    `StorageError` if the cache cannot be written, or the disk is full.
    """
    folder = Path(cache or cache_folder()) / fingerprint
    try:
        if not _is_whole(folder, layout):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not _is_whole(folder, layout):
                    _build(folder, layout, fill)
        return {name: _map(folder / name, *array) for name, array in layout.items()}
    except FormatsError:
        raise
    except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
        size = sum(_size(*array) for array in layout.values()) / 1e6
        rows = next(iter(layout.values()))[0][0]
        raise StorageError(
            f"Wanted a cache of {size:,.1f} MB for {rows:,} rows in {folder.parent}. Found: {error}. {_ANOTHER}"
        ) from error


_ANOTHER = "Make room, or name another folder: cache=... when you open a split, or $IMAGESTRATA_CACHE."


def _build(folder: Path, layout: Layout, fill: Callable[[Arrays], None]) -> None:
    """Write files aside, sync them, and rename them. Under the lock, everything aside is left over."""
    ours = f"{folder.name}.{socket.gethostname()}"  # hosts may share a folder without sharing locks
    for left in folder.parent.glob(f"{ours}.*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = folder.with_name(f"{ours}.{os.getpid()}")
    try:
        aside.mkdir()
        arrays = {name: _create(aside / name, *array) for name, array in layout.items()}
        fill(arrays)
        arrays.clear()
        # Else a power cut could leave zeros in files of the right size.
        sync_files(str(aside / name) for name in layout)
        if not _is_whole(folder, layout):  # else another host was first
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(aside, folder)
            sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _create(path: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A new file as a writable array of zeros."""
    with open(path, "wb") as file:
        if 0 in shape:  # an empty file cannot be mapped
            return np.empty(shape, dtype=dtype)
        # Now: a page for which there is no space later would end the process with SIGBUS.
        os.posix_fallocate(file.fileno(), 0, _size(shape, dtype))
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _size(shape: tuple[int, ...], dtype: Any) -> int:
    return int(math.prod(shape) * np.dtype(dtype).itemsize)


def _is_whole(folder: Path, layout: Layout) -> bool:
    try:
        return all((folder / name).stat().st_size == _size(*array) for name, array in layout.items())
    except OSError:
        return False


def _map(path: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return np.empty(shape, dtype) if 0 in shape else np.memmap(path, dtype=dtype, mode="r", shape=shape)
