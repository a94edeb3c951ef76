"""WebDataset shards: tars with the files of each sample side by side, and the index files that DALI reads.

The files of a sample are named ``KEY.EXTENSION``: ``000000042.jpg``, ``000000042.cls``, ``000000042.json``. Headers are
USTAR with time 0, user 0 and group 0, so the same samples give the same bytes everywhere. Sizes include headers and
padding::

    | header 512 | data, filled up to a multiple of 512 | header | data | ... | 1,024 zeros |
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from formats.errors import DamagedError, ShardError
from formats.tar_headers import BLOCK, number, whole_blocks
from schemas.shards import PIECE_BYTES, Piece, Shard

END = bytes(2 * BLOCK)  # the end mark of a tar

_PADDING = bytes(BLOCK)
_MOST_BYTES = 8**11 - 1
_SMALL_BYTES = 16 << 10  # below this size, a copy is cheaper than a call
_INDEX_VERSION = "v1.2"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_EXTENSION = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")


class ShardWriter:
    """Write one shard piece by piece: ``write(*parts)`` gets its bytes in order, at least `PIECE_BYTES` at a time. A
    piece ends at the end of a sample, so it can be read by itself. Parts of an upload and read requests are whole
    pieces.
    """

    def __init__(self, write: Callable[..., object]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self._lines: list[str] = []
        self._piece: list[bytes] = []  # its parts are not joined, because that would take longer than hashing them
        self._piece_bytes = self._piece_samples = 0
        self._pieces: list[Piece] = []
        self.bytes = len(END)  # the size of the shard if it ends here

    def add(self, key: str, members: Mapping[str, bytes]) -> None:
        """Add one sample: its files by extension, in order. Raises `ShardError` for a key that is too long, not ASCII
        or has a dot, for an extension that is not in lower case, and for a file that is too large for a tar.
        """
        if not _KEY.fullmatch(key):
            raise ShardError(f"Wanted a key of up to 80 letters, digits, - and _. Found: {key!r}")
        if not members:
            raise ShardError(f"Wanted files of sample {key}. Found: none")
        for extension in members:
            if not _EXTENSION.fullmatch(extension):
                raise ShardError(f"Wanted an extension of lower-case letters and digits. Found: {extension!r} of {key}")
        headers = [header(f"{key}.{extension}", len(data)) for extension, data in members.items()]
        if self._piece_bytes >= PIECE_BYTES:  # later, so that the end mark is in the last piece
            self._give_away()
        entries = []  # nothing is written until all is checked, so there are no partial samples
        for block, (extension, data) in zip(headers, members.items(), strict=True):
            place = self.bytes - len(END) + BLOCK
            self._put(block)
            self._put(data)
            self._put(_PADDING[: -len(data) % BLOCK])
            entries.append(f"{extension} {place} {len(data)} {key}.{extension}")
        self._lines.append(" ".join(entries))
        self._piece_samples += 1

    def end(self, name: str) -> Shard:
        """Write the end mark of the tar and return the finished shard."""
        self._put(END)
        self.bytes -= len(END)  # its size was included from the start
        self._give_away()
        return Shard(name, len(self._lines), self.bytes, self._digest.hexdigest(), tuple(self._pieces))

    @property
    def index(self) -> str:
        """The text of the index file, as DALI's ``wds2idx`` would write it for this shard."""
        return "\n".join([f"{_INDEX_VERSION} {len(self._lines)}", *self._lines, ""])

    def _put(self, data: bytes) -> None:
        if data:
            self._piece.append(data)
            self._piece_bytes += len(data)
            self.bytes += len(data)

    def _give_away(self) -> None:
        parts = list(_together(self._piece))
        for part in parts:
            self._digest.update(part)
        self._pieces.append(Piece(self._piece_samples, self._piece_bytes, piece_digest(*parts)))
        self._piece.clear()
        self._piece_bytes = self._piece_samples = 0
        self._write(*parts)


_BEFORE_SIZE = b"0000644\0" + b"0000000\0" + b"0000000\0"  # mode, user, group
_BEHIND_SIZE = b"%011o\0" % 0  # time
_BEHIND_SUM = b"0" + bytes(100) + b"ustar\x0000" + bytes(BLOCK - 265)  # a regular file; no link
_SUM = sum(_BEFORE_SIZE) + sum(_BEHIND_SIZE) + sum(_BEHIND_SUM) + 8 * ord(" ")  # the checksum field counts as spaces


def header(name: str, size: int) -> bytes:
    """The 512 bytes before a regular file. Raises `ShardError` for a file of 8 GiB or more."""
    if size > _MOST_BYTES:
        raise ShardError(f"Wanted a file below 8 GiB, the limit of a tar header. Found: {name}, {size}")
    text, digits = name.encode("ascii"), b"%011o\0" % size
    checksum = b"%06o\0 " % (_SUM + sum(text) + sum(digits))
    return b"".join((text.ljust(100, b"\0"), _BEFORE_SIZE, digits, _BEHIND_SIZE, checksum, _BEHIND_SUM))


def _together(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join adjacent small parts, so that there are fewer calls."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < _SMALL_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield b"".join(small)


def piece_digest(*parts: bytes | memoryview) -> str:
    """The XXH3-128 hash (Yann Collet's published specification) of a piece, as 32 hexadecimal digits."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Contents:
    """The samples of a shard or of a piece: their keys and the byte ranges of their files. Sample ``i`` has the files
    ``firsts[i]`` to ``firsts[i + 1]`` (exclusive), each with an extension and its bytes from ``starts`` to ``stops``.
    """

    # Lists of plain values, because the garbage collector repeatedly traverses nested containers.
    keys: list[str]
    firsts: list[int]
    extensions: list[str]
    starts: list[int]
    stops: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    def files(self, number: int, data: memoryview) -> dict[str, bytes]:
        """Return the files of a sample by extension, from the bytes that these contents describe."""
        files = range(self.firsts[number], self.firsts[number + 1])
        return {self.extensions[file]: bytes(data[self.starts[file] : self.stops[file]]) for file in files}

    def size(self, number: int) -> int:
        """The total size of a sample's files, without headers."""
        files = range(self.firsts[number], self.firsts[number + 1])
        return sum(self.stops[file] - self.starts[file] for file in files)


def contents_of(data: memoryview) -> Contents:
    """Parse a shard, or a piece of one. Raises ValueError for bytes that no `ShardWriter` wrote."""
    found = Contents([], [], [], [], [])
    place, before = 0, None
    while place < len(data) and data[place]:
        block = bytes(data[place : place + BLOCK])
        if len(block) < BLOCK:
            raise ValueError(f"a header that extends past the end, at {place}")
        name = block[:100].rstrip(b"\0").decode("ascii")
        size = number(block[124:136])
        key, dot, extension = name.partition(".")
        if not dot or block[257:262] != b"ustar":
            raise ValueError(f"no header of a sample's file at {place}")
        if key != before:
            found.keys.append(key)
            found.firsts.append(len(found.extensions))
            before = key
        found.extensions.append(extension)
        found.starts.append(place + BLOCK)
        found.stops.append(place + BLOCK + size)
        place += BLOCK + whole_blocks(size)
    if place > len(data):
        raise ValueError(f"a file of {found.stops[-1] - found.starts[-1]:,} bytes that extends past the end")
    found.firsts.append(len(found.extensions))
    return found


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of a sample, and where its bytes are in the shard."""

    key: str
    extension: str
    start: int
    size: int


def indexed_files(text: str, *, shard: str) -> list[list[IndexedFile]]:
    """The files of each sample, from the text of a shard's index file. Raises `DamagedError` for other text."""
    found = []
    try:
        for line in text.splitlines()[1:]:
            words = line.split()
            files = zip(*(words[first::4] for first in range(4)), strict=True)
            found.append([
                IndexedFile(name.partition(".")[0], extension, int(start), int(size))
                for extension, start, size, name in files
            ])  # fmt: skip
    except ValueError as error:
        raise DamagedError(f"Wanted the index of {shard}. Found: {error!r} in {index_name(shard)}") from None
    return found


def sample_bytes(sizes: Iterable[int]) -> int:
    """The size of a sample in a shard, from the sizes of its files."""
    return sum(BLOCK + whole_blocks(size) for size in sizes)


def cut(
    sizes: NDArray[np.int64], *, maxsize: int, maxcount: int, order: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Pack samples into shards in order: the first sample of each shard, and then their number, int64 ``(shards +
    1,)``. Each shard takes as many samples as fit. Sizes are in bytes, that of a shard includes the end mark. Samples
    with the same number in ``order``, ascending, stay together. Raises `ShardError` if a sample or a group of equal
    numbers does not fit in a shard, or ``maxcount`` is below 1.
    """
    if maxcount < 1:
        raise ShardError(f"Wanted shards of 1 sample or more. Found: --maxcount {maxcount}")
    room = maxsize - len(END)
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    if len(sizes) and int(sizes.max()) > room:
        place = int(sizes.argmax())
        raise ShardError(
            f"Wanted samples that fit into a shard of {maxsize:,} bytes. "
            f"Found: number {place} of {sizes[place]:,} bytes. Use a larger --maxsize."
        )
    cuts = [0]
    while cuts[-1] < len(sizes):
        start = cuts[-1]
        end = min(int(np.searchsorted(ends, ends[start] + room, side="right")) - 1, start + maxcount)
        while order is not None and start < end < len(sizes) and order[end] == order[end - 1]:
            end -= 1
        if end == start:
            raise ShardError(
                "Wanted all images of equal rank in one shard. Found: more than fit into "
                f"--maxsize {maxsize} and --maxcount {maxcount}. Use larger values."
            )
        cuts.append(end)
    return np.array(cuts, dtype=np.int64)


def shard_name(tag: str, number: int, shards: int) -> str:
    """The file name of a shard, such as ``TAG-000012.tar``. The number of shards decides how many digits there are: six
    or more.
    """
    return f"{tag}-{number:0{max(6, len(str(shards - 1)))}}.tar"


def index_name(name: str) -> str:
    """Make the file name of a shard's index, such as ``TAG-000012.idx``."""
    return f"{name.removesuffix('.tar')}.idx"


def keys(first: int, count: int, samples: int) -> Sequence[str]:
    """The keys of a shard's samples: their numbers over all ``samples``, padded to the same width."""
    width = max(9, len(str(samples - 1)))
    return [f"{number:0{width}}" for number in range(first, first + count)]


def content_fingerprint(shards: Iterable[Shard]) -> str:
    """The fingerprint of the contents of shards, in order: the SHA-256 of their SHA-256 digests."""
    return hashlib.sha256("\n".join(["shards 1", *(shard.sha256 for shard in shards)]).encode()).hexdigest()
