"""The files of a sample in a shard: the image, its class number, its metadata, and its mask or array."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import xxhash

from etl.shards.plan import Compression
from etl.sources.entries import Entry, text
from formats.shards.layout import sample_bytes
from formats.shards.sample_metadata import class_text, facts_text

_NOT_COMPRESSED = ("bmp", "ppm", "tif")
ZSTD = ".zst"
_LEVEL = 9


class Sample(NamedTuple):
    """The files of one sample: the image with its extension, and its mask or array, if any."""

    extension: str
    data: bytes
    label: int | None
    metadata: bytes
    companion_extension: str | None = None
    companion: bytes | None = None

    @property
    def members(self) -> Mapping[str, bytes]:
        """The files by extension, the image first."""
        found = {self.extension: self.data}
        if self.companion is not None and self.companion_extension is not None:
            found[self.companion_extension] = self.companion
        if self.label is not None:
            found["cls"] = class_text(self.label)
        return {**found, "json": self.metadata}

    @property
    def size(self) -> int:
        """The size in a shard."""
        return sample_bytes(map(len, self.members.values()))


def metadata_text(entry: Entry, *, label: int | None) -> bytes:
    """The contents of the ``.json`` file of an image."""
    split, path = text(entry.or_split), text(entry.path)
    return facts_text(entry.id, path, split=split, name=entry.or_label, group=entry.group_id, label=label)


def listed_size(entry: Entry, *, label: int | None) -> int:
    """The size of an unchanged image in a shard, if the sizes in its listing are right."""
    return _size(entry, label, metadata_text(entry, label=label))


def measured(entry: Entry, *, label: int | None, checksum: int | None) -> tuple[int, int]:
    """The size of an image in a shard (`listed_size`; 0 with a reason), and the XXH3-64 of all that is known of it."""
    metadata = metadata_text(entry, label=label)
    known = "" if checksum is None else f" {checksum}"  # equal sizes say nothing of the bytes
    rest = f"{entry.size} {entry.label_size} {entry.reason}{known}".encode()
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
    """An image with its extension, compressed with zstd if its format does not compress and it gets smaller."""
    if compress == "zstd" and extension in _NOT_COMPRESSED:
        smaller = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
        if len(smaller) < len(data):
            return extension + ZSTD, smaller
    return extension, data
