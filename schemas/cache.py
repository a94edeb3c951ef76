"""The manifest of a metadata cache: ``cache.json``, written last, beside Parquet files of a metadata table's rows.

In the files the id is ``id`` (16 big-endian bytes) and the label ``label``, whatever the table calls them; the other
columns have the table's own names.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from schemas.manifest import SplitFile
from schemas.parsing import check_count, check_digest, parsed
from schemas.tables import Columns

FORMAT = 1
NAME = "cache.json"


@dataclass(frozen=True, slots=True)
class CacheManifest:
    """What a metadata cache holds, and of which tables.

    ``fingerprint`` is that of its rows' ids and labels, in any order. ``created``: ISO 8601, UTC.
    """

    data_table: str
    metadata_table: str
    columns: Columns
    label_type: str
    class_names: Mapping[int, str]
    rows: int
    fingerprint: str
    files: tuple[SplitFile, ...]
    created: str
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "CacheManifest":
        """Read a manifest; ``place`` is named in errors. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, cls._read, what="metadata cache", place=place, newest=FORMAT)

    @classmethod
    def _read(cls, found: dict[str, Any]) -> "CacheManifest":
        return cls(
            data_table=found["data_table"],
            metadata_table=found["metadata_table"],
            columns=Columns(**found["columns"]),
            label_type=found["label_type"],
            class_names={int(label): name for label, name in found["class_names"].items()},
            rows=check_count(found["rows"]),
            fingerprint=check_digest(found["fingerprint"]),
            files=tuple(map(SplitFile.read, found["files"])),
            created=found["created"],
            format=found["format"],
        )
