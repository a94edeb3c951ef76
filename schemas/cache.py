"""The manifest of a metadata cache: a folder of Parquet files with the rows of a metadata table, and ``cache.json``.

``cache.json`` is written last. In the Parquet files, the columns ``id`` (16 big-endian bytes) and ``label`` have these
names whatever the table calls them. The other columns have the names that they have in the table.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from schemas.manifest import SplitFile
from schemas.parsing import Count, Digest, parsed, reader
from schemas.tables import Columns

# The format version. In format 1, the column with the times at which images expire was called ``expires``.
FORMAT = 2

NAME = "cache.json"

# How the names of columns begin that the table does not have: what a split needs besides.
OURS = "imagestrata:"


@dataclass(frozen=True, slots=True)
class CacheManifest:
    """The contents of a metadata cache and the tables that they come from. ``fingerprint`` covers the ids and labels of
    all rows, in any order. ``created`` is in ISO 8601, UTC. ``features``, ``label_view``, ``labels_of_replaced``,
    ``as_of``, ``sequence`` and ``unfinished`` are as in a split manifest.
    """

    data_table: str
    metadata_table: str
    columns: Columns
    label_type: str
    class_names: Mapping[int, str]
    rows: Count
    fingerprint: Digest
    files: tuple[SplitFile, ...]
    created: str
    features: tuple[str, ...] = ()
    label_view: str | None = None
    labels_of_replaced: str | None = None
    as_of: int | None = None
    sequence: int | None = None
    unfinished: tuple[int, ...] = ()
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "CacheManifest":
        """Read a manifest; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, reader(cls), what="metadata cache", place=place, newest=FORMAT)
