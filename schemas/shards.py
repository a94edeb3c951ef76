"""The manifest of a folder of shards. It is written last, and readers rely on it alone."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

from schemas.errors import SchemaError
from schemas.parsing import Count, Digest, check_digest, parsed, reader

FORMAT = 1  # the format version that this software writes, and the newest that it reads

NAME = "shards.json"

# The smallest size of a piece, except the last of a shard: the minimum for a part of a multipart upload to S3.
PIECE_BYTES = 5 << 20

# The largest size of a shard on S3: a multipart upload has at most 10,000 parts, and each part is one piece.
MOST_BYTES_ON_S3 = 10_000 * PIECE_BYTES

_SHARD_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f]+")  # of a file beside the manifest, and neither "." nor ".."


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive samples of a shard that are read together: their number, size in bytes and XXH3-128 hash. XXH3
    detects truncated, swapped or damaged bytes in a tenth of the time that SHA-256 takes, so every read is checked. The
    shard's SHA-256 is there for cryptographic checks.
    """

    samples: Count
    bytes: Count
    xxh3: Annotated[str, partial(check_digest, digits=32)]


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: file name, number of samples, size in bytes including headers, SHA-256, and pieces in order."""

    name: str
    samples: Count
    bytes: Count
    sha256: Digest
    pieces: tuple[Piece, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardManifest:
    """The contents of a folder of shards and how it was made. Samples are numbered through all shards in order; the key
    of a sample is its number. ``num_classes`` is one more than the largest class number. ``counts`` has the number of
    samples of each class number; it is empty if there are no class numbers. ``fingerprint`` is computed from the
    shards' contents. ``source_fingerprint`` identifies the images that went in: the fingerprint of the split, or one of
    ids, labels and sizes. ``options`` are the job's options.
    """

    samples: int
    bytes: int
    label_type: str
    num_classes: int
    class_names: Mapping[int, str]
    counts: Mapping[int, int]
    seed: int
    fingerprint: Digest
    source: str
    source_fingerprint: str
    options: Mapping[str, Any]
    shards: tuple[Shard, ...]
    created: str
    code_version: str
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as JSON text with one line per shard. Pieces are written as ``[samples, bytes, XXH3]``."""
        shards = [
            {**asdict(shard), "pieces": [[one.samples, one.bytes, one.xxh3] for one in shard.pieces]}
            for shard in self.shards
        ]
        lines = ",\n    ".join(json.dumps(shard) for shard in shards)
        rest = {name: value for name, value in asdict(self).items() if name != "shards"}
        head = json.dumps(rest, indent=2, ensure_ascii=False).rstrip("}\n ")
        return f'{head},\n  "shards": [\n    {lines}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "ShardManifest":
        """Read a manifest; error messages name ``place``. Raises `FormatVersionError` for a newer format, and
        `SchemaError` for other text and for inconsistent numbers.
        """
        manifest = parsed(text, reader(cls), what="manifest of shards", place=place, newest=FORMAT)
        manifest._check(place)
        return manifest

    def _check(self, place: str) -> None:
        counts = Counter(str(shard.name) for shard in self.shards)
        for name in (shard.name for shard in self.shards):
            count = counts[str(name)]
            if count > 1 or not isinstance(name, str) or not _SHARD_NAME.fullmatch(name):
                raise SchemaError(
                    f"Wanted unique shard names without folders in {place}. "
                    f"Found: {name!r}, in {count} of {len(self.shards)}"
                )
        for shard in self.shards:
            sums = (sum(one.samples for one in shard.pieces), sum(one.bytes for one in shard.pieces))
            if sums != (shard.samples, shard.bytes):
                raise SchemaError(
                    f"Wanted pieces of {shard.samples} samples and {shard.bytes} bytes for {shard.name} in {place}. "
                    f"Found: {sums[0]} and {sums[1]}"
                )
        if sum(shard.samples for shard in self.shards) != self.samples:
            raise SchemaError(
                f"Wanted shards of {self.samples} samples in {place}. "
                f"Found: {sum(shard.samples for shard in self.shards)}"
            )
