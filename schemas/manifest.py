"""The manifest of a split folder: the one file that readers trust. It is written last."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from schemas.datasets import check_path
from schemas.errors import SchemaError
from schemas.features import FieldType, ViewTitle
from schemas.parsing import Count, Digest, parsed, reader
from schemas.tables import Columns

FORMAT = 1  # the format version that this software writes, and the newest one that it reads

# Its name. Readers of Parquet folders, such as pandas and Spark, skip files whose names begin with ``_``.
NAME = "_manifest.json"

NAMES = (NAME, "manifest.json")  # where to look for it, in this order: version 0.1 wrote it without the underscore


NEWER: Final = "newer"


@dataclass(frozen=True, slots=True)
class SplitFile:
    """One Parquet file of a split: its path, relative to the split folder, and its number of rows."""

    path: Annotated[str, check_path]  # a manifest with a path that leads out of the folder is refused
    rows: Count


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One split of a folder, with its rows by class number."""

    index: int
    rows: Count
    counts: Mapping[int, int]
    fingerprint: Digest  # 64 hexadecimal digits that identify the rows and their order
    files: tuple[SplitFile, ...]
    checksums: Digest | None = None  # the fingerprint of the rows' checksums; None if the files have none
    without_checksum: Count = 0  # the images whose checksum is not known


@dataclass(frozen=True, slots=True)
class FeaturePart:
    """The values of a feature view for one split. The files have ``position`` and the fields, and as many rows as the
    split.
    """

    fingerprints: Mapping[str, Digest]  # by field; they identify its values and the split that they belong to
    files: tuple[SplitFile, ...]


@dataclass(frozen=True, slots=True)
class StoredFeature:
    """A feature view, such as ``embedding@v1``, whose values are beside the splits, in their order. ``fields`` has the
    type of each field.
    """

    view: ViewTitle
    fields: Mapping[str, FieldType]
    splits: tuple[FeaturePart, ...]

    def __post_init__(self) -> None:
        if any(self.fields.keys() - part.fingerprints.keys() for part in self.splits):
            raise SchemaError(f"Wanted a fingerprint of each field of {self.view} in each split. Found: not all")


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The groups of the images of splits, which count even if images are deleted later."""

    column: str  # of the metadata table
    kind: str  # the column's type in Spark SQL, such as ``string``
    splits: tuple[tuple[SplitFile, ...], ...]  # by split, files with ``group``: the xxhash64 of each of its groups


@dataclass(frozen=True, slots=True)
class SplitManifest:
    """The contents of a split folder, and how it was made."""

    data_table: str
    metadata_table: str
    columns: Columns
    label_type: str  # "int" for class numbers, "blob" for masks, "multi" for label arrays, "none"
    num_classes: int  # one more than the largest class number: the number of a classifier's outputs
    class_names: Mapping[int, str]  # some may be missing, if the tables do not have them
    seed: int
    options: Mapping[str, Any]  # of the job, verbatim
    splits: tuple[SplitPart, ...]
    created: str  # ISO 8601, UTC
    code_version: str
    # without positions, readers compute the rank by (xxhash64 of the id, seeded with ``seed``; id)
    has_position: bool = True
    warnings: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # the feature views that options of the job named, with their versions
    label_view: str | None = None  # the version that the labels come from; None for those of the metadata table
    # whose label images have that were replaced since it was corrected: `NEWER` (of the metadata) or ``keep`` (the
    # correction); None without a label view, and for splits of earlier versions, which kept corrections
    labels_of_replaced: str | None = None
    replaced: Count = 0  # the number of these images
    expires: str | None = None  # when the first images expire (``ingest.py --ttl``), ISO 8601, UTC
    as_of: int | None = None  # the run whose images and labels the split has; None for the newest ones
    sequence: int | None = None  # the newest run on the metadata table when it was read
    unfinished: tuple[int, ...] = ()  # runs up to ``sequence`` that could still write images
    stored_features: tuple[StoredFeature, ...] = ()  # the feature views whose values are in ``_features/``
    # the feature services that it was made with, ``name@v1``, and the views that each stands for
    services: Mapping[str, tuple[ViewTitle, ...]] = field(default_factory=dict)
    groups: StoredGroups | None = None  # in ``_groups/``; None if they were not kept together
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as indented JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "SplitManifest":
        """Read a manifest; messages name its ``place``. Raises `FormatVersionError` if its format is newer,
        `SchemaError` if it is none.
        """
        return parsed(text, reader(cls), what="split manifest", place=place, newest=FORMAT)
