"""A tree of class folders by the names of its files, in one file that all processes of a host map into memory.

::

    header    one line of JSON, padded to a multiple of 8 bytes: format, place, time, files by class, lengths, digests
    ends      int64 (n,): where each name ends among the names
    sizes     int64 (n,): the bytes of each file
    names     UTF-8, without separators: CLASS/**/FILE

Classes are in code-point order. In a class, files are in the order of their folders and then their names, as in
torchvision's ImageFolder. A file's name has the place and the digest of its names. So a new listing of the place does
not change a file that another process still uses. Such files are removed when they are a week old.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from formats.durability import whole_file
from loader.errors import SplitError

_FORMAT = 2
_KEPT_SECONDS = 7 * 24 * 3600.0  # older ones are removed; a pickle may name a newer one
_MOST_HEADER = 1 << 28  # bytes: a file without a line end is no listing, and is not read whole
_ESCAPE = "surrogateescape"  # names on local disks need not be UTF-8

# Names without separators, the length of each in bytes, and the size of its file, int64 ``(n,)``.
Packed: TypeAlias = tuple[bytes, NDArray[np.int64], NDArray[np.int64]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """The files of a tree. It is pickled as the path of its file, and raises `SplitError` if that is missing when it is
    unpickled.
    """

    path: str
    digest: str
    listed: float
    counts: Mapping[str, int] = field(repr=False)  # files by class, classes in code-point order
    # The first of the files that were left out, relative to the tree, and why.
    skipped: Sequence[tuple[str, str]] = field(repr=False)
    _ends: NDArray[np.int64] = field(repr=False)
    _sizes: NDArray[np.int64] = field(repr=False)
    _names: NDArray[np.uint8] = field(repr=False)

    def __len__(self) -> int:
        return len(self._ends)

    def name(self, row: int, /) -> str:
        """The name of a file, with its class, relative to the tree."""
        start = int(self._ends[row - 1]) if row else 0
        return self._names[start : int(self._ends[row])].tobytes().decode("utf-8", _ESCAPE)

    def size(self, row: int, /) -> int:
        """The bytes of a file when it was listed."""
        return int(self._sizes[row])

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.path, self.digest)


def packed(class_name: str, files: list[tuple[str, int]], /) -> Packed:
    """The files of a class and their sizes, relative to its folder, in their order and with the class before them."""
    if any("/" in name for name, _ in files):
        files = sorted(files, key=lambda file: file[0].rpartition("/")[::2])
    else:
        files = sorted(files)
    names = [f"{class_name}/{name}".encode("utf-8", _ESCAPE) for name, _ in files]
    sizes = np.fromiter((size for _, size in files), np.int64, len(files))
    return b"".join(names), np.fromiter(map(len, names), np.int64, len(names)), sizes


def cached_listing(
    cache: str | os.PathLike[str] | None,
    *,
    place: str,
    refresh: bool,
    make: Callable[[], tuple[Mapping[str, Packed], Sequence[tuple[str, str]]]],
) -> Listing:
    """The listing of a place from a cache folder (None: that of opened splits), or of what ``make`` gives: files by
    class, and those that it left out. With ``refresh``, listings from before this call do not count. Raises what
    ``make`` raises, and `SplitError` for a cache that cannot be written.
    """
    from formats.splits.cache import cache_folder  # it imports Arrow and storage, a third of a second

    asked = time.time()
    try:
        folder = Path(cache or cache_folder()) / "listings"
        start = hashlib.sha256(place.encode("utf-8", _ESCAPE)).hexdigest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        if not refresh and (found := _newest(folder, start, place)) is not None:
            when = datetime.fromtimestamp(found.listed).isoformat(" ", "seconds")
            log.info("%s: using the listing of %s in %s; refresh=True lists again", place, when, found.path)
            return found
        # Processes of a host that need the listing at the same time wait for the one that makes it.
        with FileLock(f"{folder / start}.lock"):
            found = _newest(folder, start, place)
            if found is not None and (not refresh or found.listed >= asked):
                return found
            path = _write(folder, start, place, time.time(), *make())
            _remove_old(folder, start, than=path)
        if (found := _read(path, place)) is None:
            raise OSError(f"another program writes {path}")
        return found
    except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
        raise SplitError(
            f"Wanted a folder for the listing of {place}. Found: {error}. "
            "Make room, or name another folder: cache=..., or $IMAGESTRATA_CACHE."
        ) from error


def _newest(folder: Path, start: str, place: str) -> Listing | None:
    """The last listing of a place; None if there is none, or if it is damaged."""
    files = [(path.stat().st_mtime_ns, path) for path in folder.glob(f"{start}.*.names")]
    return _read(max(files)[1], place) if files else None


def _remove_old(folder: Path, start: str, *, than: Path) -> None:
    """Remove old listings of a place."""
    for path in folder.glob(f"{start}*.names"):
        if path != than and path.stat().st_mtime < time.time() - _KEPT_SECONDS:
            path.unlink(missing_ok=True)


def _write(
    folder: Path, start: str, place: str, listed: float, classes: Mapping[str, Packed], left: Sequence[tuple[str, str]]
) -> Path:
    names = sorted(classes)
    text = b"".join(classes[name][0] for name in names)
    ends = np.cumsum(np.concatenate([classes[name][1] for name in names]), dtype="<i8")
    sizes = np.concatenate([classes[name][2] for name in names]).astype("<i8")
    counts = {name: len(classes[name][1]) for name in names}
    digest = _digest(counts, ends, text)
    header = {"format": _FORMAT, "place": place, "listed": listed, "classes": counts, "bytes": len(text)}
    header["skipped"] = left
    line = json.dumps({**header, "digest": digest, "sizes": _digest({}, sizes)}).encode("ascii")
    path = folder / f"{start}.{digest[:16]}.names"
    with whole_file(path, durable=True) as file:
        file.write(line.ljust(-(-(len(line) + 1) // 8) * 8 - 1) + b"\n")
        file.write(ends.tobytes())
        file.write(sizes.tobytes())
        file.write(text)
    return path


def _read(path: Path, place: str) -> Listing | None:
    """The listing in a file, checked; None if there is none, or if it is damaged or of a newer format."""
    try:
        listing, header = _map(path)
        digests = _digest(listing.counts, listing._ends, listing._names), _digest({}, listing._sizes)
        if header["place"] == place and (listing.digest, header["sizes"]) == digests:
            return listing
        reason = "its digest differs"
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
    log.warning("Wanted the listing of %s in %s. Found: a damaged file (%s). Listing again.", place, path, reason)
    return None


def _map(path: Path) -> tuple[Listing, dict[str, Any]]:
    """The file and its header, unchecked; raises ValueError, KeyError, TypeError if it is not a listing."""
    with open(path, "rb") as file:
        line = file.readline(_MOST_HEADER)
        header: dict[str, Any] = json.loads(line)
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']}")
        rows = sum(header["classes"].values())
        size = len(line) + 16 * rows + header["bytes"]
        if rows < 1 or os.fstat(file.fileno()).st_size != size:
            raise ValueError(f"{os.fstat(file.fileno()).st_size} bytes instead of {size}")
        whole = np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)  # slicing a memmap is slow
    numbers = whole[len(line) : size - header["bytes"]].view("<i8")
    names = whole[size - header["bytes"] :]
    skipped = [(name, why) for name, why in header["skipped"]]
    columns = numbers[:rows], numbers[rows:], names
    return Listing(str(path), header["digest"], header["listed"], header["classes"], skipped, *columns), header


def _digest(counts: Mapping[str, int], *parts: Any) -> str:
    """The identity of a listing: classes and names, independent of the place."""
    digest = hashlib.blake2b(json.dumps(counts).encode("ascii"), digest_size=20)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _open_again(path: str, digest: str) -> Listing:
    try:
        listing, _ = _map(Path(path))
        found = "another listing" if listing.digest != digest else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = str(error)
    if found:
        raise SplitError(f"Wanted the listing of the folder in {path}. Found: {found}. Make the folder again.")
    return listing
