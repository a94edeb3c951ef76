"""The manifest of a split folder: the one file that readers trust, written last."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from schemas.datasets import check_path
from schemas.parsing import check_count, check_digest, parsed
from schemas.tables import Columns

FORMAT = 1
"""The format version that this software writes, and the newest that it reads."""

NAME = "_manifest.json"
"""Its name. Readers of Parquet folders, such as pandas and Polars, skip files whose names begin with ``_``."""

NAMES = (NAME, "manifest.json")
"""Where to look for it, in this order: version 0.1 wrote it without the underscore."""


@dataclass(frozen=True, slots=True)
class SplitFile:
    """One Parquet file of a split: its path relative to the split folder, and its rows."""

    path: str
    rows: int

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "SplitFile":
        """The file that a manifest names. Raises `SchemaError` for a path that leads out of the folder."""
        return cls(path=check_path(found["path"]), rows=check_count(found["rows"]))


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One split: its rows, its rows by class number, its fingerprint and its files."""

    index: int
    rows: int
    counts: Mapping[int, int]
    fingerprint: str
    files: tuple[SplitFile, ...]


@dataclass(frozen=True, slots=True)
class SplitManifest:
    """What a split folder holds and how it was made.

    ``num_classes`` is one more than the largest class number, so that it is the width of a classifier's output.
    ``options`` are the job's options, verbatim, ``warnings`` what it found worth knowing. Class names may be fewer than
    classes, where tables do not tell them. Without ``has_position`` the files have no positions: they are the ranks of
    the rows by (xxhash64 of the id, seeded with ``seed``; id), which readers compute.
    """

    data_table: str
    metadata_table: str
    columns: Columns
    label_type: str
    num_classes: int
    class_names: Mapping[int, str]
    seed: int
    options: Mapping[str, Any]
    splits: tuple[SplitPart, ...]
    created: str
    code_version: str
    has_position: bool = True
    warnings: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "SplitManifest":
        """Read a manifest; ``place`` is named in errors.

        Raises `FormatVersionError` for a newer format, `SchemaError` for anything that is no manifest.
        """
        return parsed(text, cls._read, what="split manifest", place=place, newest=FORMAT)

    @classmethod
    def _read(cls, found: dict[str, Any]) -> "SplitManifest":
        return cls(
            data_table=found["data_table"],
            metadata_table=found["metadata_table"],
            columns=Columns(**found["columns"]),
            label_type=found["label_type"],
            num_classes=found["num_classes"],
            class_names={int(label): name for label, name in found["class_names"].items()},
            seed=found["seed"],
            options=found["options"],
            splits=tuple(_part(part) for part in found["splits"]),
            created=found["created"],
            code_version=found["code_version"],
            has_position=found.get("has_position", True),
            warnings=tuple(found.get("warnings", ())),
            format=found["format"],
        )


def _part(found: Mapping[str, Any]) -> SplitPart:
    return SplitPart(
        index=found["index"],
        rows=check_count(found["rows"]),
        counts={int(label): rows for label, rows in found["counts"].items()},
        fingerprint=check_digest(found["fingerprint"]),
        files=tuple(map(SplitFile.read, found["files"])),
    )
