"""Feature views: named and versioned values of images.

A view has a name, a version and fields. Each field has one of the types of `FIELD_TYPES`, or is a vector, ``float[N]``.
A view of one field names it like itself; otherwise each field's name begins with that of the view. So a name tells the
view of a field, and fields of different views never have the same name.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated

from schemas.errors import IdentifierError, SchemaError
from schemas.feature_sources import FeatureSource, Sql, parse_source
from schemas.parsing import check_digest, parsed, reader
from schemas.tables import MAX_NAME, TableName

FORMAT = 1
MAX_LENGTH = 65_536  # the most numbers in a vector
SERVICE = "service:"  # what the name of a feature service begins with, beside names of views

# The types of fields, in CQL and in Spark.
FIELD_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "text": "STRING",
    "blob": "BINARY",
}

_VIEW = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_FIELD = re.compile(r"[a-z][a-z0-9_]{0,47}")
_MAX_VIEW = 32
_VECTOR = re.compile(r"float\[([1-9][0-9]{0,5})\]")


def vector_length(kind: str) -> int | None:
    """The number of values of a vector type such as ``float[512]``; None for other types."""
    found = _VECTOR.fullmatch(kind)
    return int(found[1]) if found else None


def cql_type(kind: str) -> str:
    """The CQL type of a field. A vector is a blob of little-endian float32 numbers."""
    return kind if vector_length(kind) is None else "blob"


def spark_type(kind: str) -> str:
    """The Spark type of a field."""
    return FIELD_TYPES[cql_type(kind)]


def check_field_type(kind: str) -> str:
    """Return a valid field type unchanged. Raises `SchemaError`."""
    length = vector_length(kind)
    if kind not in FIELD_TYPES and (length is None or length > MAX_LENGTH):
        raise SchemaError(
            f"Wanted a type of {', '.join(FIELD_TYPES)}, or float[N] for up to {MAX_LENGTH:,} numbers. Found: {kind!r}"
        )
    return kind


@dataclass(frozen=True, slots=True)
class ViewName:
    """The name of a feature view as users write it: ``sharpness`` (the newest version) or ``embedding@v2``."""

    name: str
    version: int | None = None

    def __post_init__(self) -> None:
        if not _VIEW.fullmatch(self.name) or len(self.name) > _MAX_VIEW:
            raise IdentifierError(
                "Wanted the name of a feature view: a lower-case letter, then lower-case letters, digits or single _, "
                f"{_MAX_VIEW} at most. Found: {self.name!r}"
            )
        if self.version is not None and not 1 <= self.version <= 9999:
            raise IdentifierError(f"Wanted a version from v1 to v9999 for {self.name}. Found: v{self.version}")

    @classmethod
    def parse(cls, text: str) -> "ViewName":
        """Parse ``NAME`` or ``NAME@vN``. Raises `IdentifierError`."""
        name, at, version = text.partition("@")
        if at and not re.fullmatch(r"v[1-9][0-9]{0,3}", version):
            raise IdentifierError(f"Wanted a feature view as NAME or NAME@v1. Found: {text!r}")
        return cls(name, int(version[1:]) if at else None)

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@v{self.version}"


@dataclass(frozen=True, slots=True)
class ServiceName:
    """The name of a feature service as users write it: ``service:sorting`` (the newest version) or
    ``service:sorting@v2``. After the colon, it is like the name of a view.
    """

    service: ViewName

    def __str__(self) -> str:
        return f"{SERVICE}{self.service}"


def parse_feature(text: str) -> ViewName | ServiceName:
    """Parse the name of a view or of a service. Raises `IdentifierError`."""
    return ServiceName(ViewName.parse(text.removeprefix(SERVICE))) if text.startswith(SERVICE) else ViewName.parse(text)


# In manifests: the name of a view with its version, and the type of a field.
ViewTitle = Annotated[str, lambda text: str(ViewName.parse(text))]
FieldType = Annotated[str, check_field_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureView:
    """The definition of a feature view. It never changes; another definition is another version."""

    name: str
    version: int
    fields: Mapping[str, str]  # the type of each field
    source: Annotated[FeatureSource, parse_source]
    digest: str  # SHA-256 of the code, model, expression or file
    # of a label view: the run that wrote this version; all versions are in one table, see `column`
    sequence: int | None = None
    uses: tuple[str, ...] = ()  # of an on-demand view: the views whose fields its expression has, with their versions
    format: int = field(default=FORMAT)

    def __post_init__(self) -> None:
        ViewName(self.name, self.version)
        if not self.fields:
            raise SchemaError(f"Wanted fields in the feature view {self.title}. Found: none")
        for name, kind in self.fields.items():
            check_field_type(kind)
            if not _FIELD.fullmatch(name) or (name != self.name and not name.startswith(f"{self.name}_")):
                raise SchemaError(
                    f"Wanted the field name {self.name}, or {self.name}_ and lower-case letters, digits or _, 48 in "
                    f"all at most. Found: {name!r}"
                )
        check_digest(self.digest)

    @property
    def is_on_demand(self) -> bool:
        """Whether values are computed when they are read, and stored nowhere."""
        return isinstance(self.source, Sql)

    @property
    def title(self) -> str:
        """The name with the version: ``sharpness@v2``."""
        return f"{self.name}@v{self.version}"

    def table_of(self, metadata: TableName) -> TableName:
        """The table of this view's values for the images of a metadata table. Raises `IdentifierError` for a name that
        is too long.
        """
        return metadata.derived(f"_{self.name}" + (f"_v{self.version}" if self.sequence is None else ""))

    @property
    def column(self) -> str:
        """The column of a label view's version, in the table of all versions."""
        return f"run_{self.sequence}"

    @property
    def label_columns(self) -> dict[str, str]:
        """The columns of a label view's version with their CQL types: its labels, and the SHA-256 and the class number
        that each image had when it got this label.
        """
        return {self.column: "int", f"sha256_{self.sequence}": "blob", f"label_{self.sequence}": "int"}

    @property
    def vector(self) -> tuple[str, int] | None:
        """The name and the length of the only field, if that is a vector."""
        if len(self.fields) != 1:
            return None
        ((name, kind),) = self.fields.items()
        length = vector_length(kind)
        return None if length is None else (name, length)

    def index_table_of(self, metadata: TableName) -> TableName:
        """The table of the vectors that are indexed, if there is an index. Raises `IdentifierError` for a name that is
        too long.
        """
        return metadata.derived(f"_{self.name}_v{self.version}_index", longest=MAX_NAME - len("_ann"))

    def to_json(self) -> str:
        """The definition as JSON text, the same for equal definitions."""
        return json.dumps({**asdict(self), "source": str(self.source)}, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "FeatureView":
        """Read a definition; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, reader(cls), what="feature view", place=place, newest=FORMAT)
