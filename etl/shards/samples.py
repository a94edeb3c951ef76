"""What a sample of a shard is made of: the picture, its class number, what is known of it, its mask or array."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import xxhash

from etl.shards.plan import Compression
from etl.sources.entries import Entry, text
from formats.shards.layout import sample_bytes
from formats.shards.sample_metadata import class_text, facts_text

EXTENSIONS = {
    "JPEG": "jpg",
    "PNG": "png",
    "TIFF": "tif",
    "BMP": "bmp",
    "WEBP": "webp",
    "JPEG2000": "jp2",
    "PNM": "ppm",
    "GIF": "gif",
    "": "bin",
}
"""By the format that a picture has, whatever its file was called."""

_NOT_COMPRESSED = ("bmp", "ppm", "tif")
ZSTD = ".zst"
_LEVEL = 9


class Sample(NamedTuple):
    """The files of one sample: the picture with its extension, and the mask or array that belongs to it, if any."""

    extension: str
    data: bytes
    label: int | None
    metadata: bytes
    companion_extension: str | None = None
    companion: bytes | None = None

    @property
    def members(self) -> Mapping[str, bytes]:
        """The files by their extensions, the picture first."""
        found = {self.extension: self.data}
        if self.companion is not None and self.companion_extension is not None:
            found[self.companion_extension] = self.companion
        if self.label is not None:
            found["cls"] = class_text(self.label)
        return {**found, "json": self.metadata}

    @property
    def size(self) -> int:
        """What it takes in a shard."""
        return sample_bytes(map(len, self.members.values()))


def sample_metadata(entry: Entry, *, label: int | None) -> bytes:
    """What stands in the ``.json`` file of an image."""
    split, path = text(entry.or_split), text(entry.path)
    return facts_text(entry.id, path, split=split, name=entry.or_label, group=entry.group_id, label=label)


def listed_size(entry: Entry, *, label: int | None) -> int:
    """What an image will take in a shard if it is kept as it is, as far as its listing tells sizes rightly."""
    return _size(entry, label, sample_metadata(entry, label=label))


def measured(entry: Entry, *, label: int | None) -> tuple[int, int]:
    """What an image takes in a shard (`listed_size`; 0 with a reason), and XXH3-64 of all that its listing tells."""
    metadata = sample_metadata(entry, label=label)
    rest = f"{entry.size} {entry.label_size} {entry.reason}".encode()
    digest = int.from_bytes(xxhash.xxh3_64_digest(metadata + rest), "big", signed=True)
    return 0 if entry.reason else _size(entry, label, metadata), digest


def _size(entry: Entry, label: int | None, metadata: bytes) -> int:
    sizes = [entry.size, len(metadata)]
    if label is not None:
        sizes.append(len(class_text(label)))
    if entry.label_size is not None:
        sizes.append(entry.label_size)
    return sample_bytes(sizes)


def compressed(extension: str, data: bytes, *, compress: Compression) -> tuple[str, bytes]:
    """A picture with its extension, smaller where its format does not compress and zstd makes it so."""
    if compress == "zstd" and extension in _NOT_COMPRESSED:
        smaller = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
        if len(smaller) < len(data):
            return extension + ZSTD, smaller
    return extension, data
