"""The manifest of features that were written to Parquet for a whole table. It is written last."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from schemas.features import FieldType, ViewTitle
from schemas.manifest import SplitFile
from schemas.parsing import Count, parsed, reader

FORMAT = 1
NAME = "_features.json"


@dataclass(frozen=True, slots=True)
class OfflineView:
    """The values of one feature view, such as ``embedding@v1``. ``fields`` has the type of each field, ``rows`` the
    number of images that have values.
    """

    view: ViewTitle
    fields: Mapping[str, FieldType]
    rows: Count
    files: tuple[SplitFile, ...]


@dataclass(frozen=True, slots=True)
class OfflineManifest:
    """The contents of a folder of features."""

    metadata_table: str  # of the images, as ``keyspace.table``
    views: tuple[OfflineView, ...]
    created: str  # ISO 8601, UTC
    code_version: str
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "OfflineManifest":
        """Read a manifest; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, reader(cls), what="manifest of features", place=place, newest=FORMAT)
