"""The options of runs that compute features or add labels, validated before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas import Columns, IdentifierError, TableName
from schemas.features import ViewName

MAX_VIEWS = 60
"""The most views of a run: the ones that an image lacks are bits of a number."""


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """A feature view to compute, and where its function is, unless it is built in or registered."""

    view: ViewName
    function: str | None = None

    @classmethod
    def parse(cls, text: str) -> "FeatureRequest":
        """Parse ``NAME``, ``NAME@v2`` or ``NAME=MODULE:FUNCTION``. Raises ValueError."""
        name, is_equal, function = text.partition("=")
        module, colon, call = function.partition(":")
        if is_equal and not (colon and call.isidentifier() and all(map(str.isidentifier, module.split(".")))):
            raise ValueError(f"Wanted a feature view as NAME=MODULE:FUNCTION. Found: {text!r}")
        try:
            return cls(ViewName.parse(name.strip()), function if is_equal else None)
        except IdentifierError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def parse_all(cls, texts: Sequence[str]) -> "tuple[FeatureRequest, ...]":
        """Parse requests with commas between them. Raises ValueError."""
        return tuple(cls.parse(item) for text in texts for item in text.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizePlan:
    """The options of a run that computes features.

    ``features`` are the views. Only images that lack a view are read. ``retry`` also computes the values that an
    earlier run could not compute. ``timeout`` is in seconds, for an image or a list of images, and holds for functions
    that are not built in. Raises ValueError for invalid options.
    """

    data_table: TableName
    metadata_table: TableName
    features: tuple[FeatureRequest, ...]
    columns: Columns = field(default_factory=Columns)
    retry: bool = False
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        names = [request.view.name for request in self.features]
        if not names or len(names) > MAX_VIEWS:
            raise ValueError(f"Wanted from 1 to {MAX_VIEWS} feature views. Found: {len(names)}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"Wanted each feature view once. Found: {twice[0]} twice")
        if not 0 < self.timeout <= 86_400:
            raise ValueError(f"Wanted a timeout of more than 0 s and at most a day. Found: {self.timeout:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelPlan:
    """The options of a run that adds a version of a label view.

    ``labels`` is a table of labels as ``ingest.py --labels`` reads it. Classes that the dataset does not have are
    refused unless ``new_classes``. Raises ValueError for invalid options.
    """

    data_table: TableName
    metadata_table: TableName
    labels: str
    view: str = "label"
    path_column: str | None = None
    label_column: str | None = None
    new_classes: bool = False
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        if not self.labels.lower().endswith((".csv", ".tsv", ".parquet")):
            raise ValueError(f"Wanted labels in a .csv, .tsv or .parquet file. Found: {self.labels!r}")
        try:
            ViewName(self.view)
        except IdentifierError as error:
            raise ValueError(str(error)) from None
