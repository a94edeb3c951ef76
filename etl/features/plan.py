"""The options of a run that computes features, validated before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas import Columns, SchemaError, TableName
from schemas.feature_sources import SQL, Onnx, Preprocess, Python, Sql, parse_typed
from schemas.features import ViewName

MAX_VIEWS = 60
"""The most views of a run: the ones that an image lacks are bits of a number."""


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """A feature view to compute, and its source, unless it is built in or registered."""

    view: ViewName
    source: Python | Onnx | Sql | None = None

    @classmethod
    def parse(cls, text: str, *, preprocess: Preprocess | None = None) -> "FeatureRequest":
        """Parse ``NAME``, ``NAME@v2``, or ``NAME=`` and a source: ``MODULE:FUNCTION``, ``onnx:FILE`` or
        ``sql:EXPRESSION``. Raises ValueError for anything else.
        """
        name, is_equal, given = text.partition("=")
        try:
            source = parse_typed(given, preprocess=preprocess or Preprocess()) if is_equal else None
        except SchemaError:
            raise ValueError(
                f"Wanted a feature view as NAME=MODULE:FUNCTION, NAME=onnx:FILE or NAME=sql:EXPRESSION. Found: {text!r}"
            ) from None
        return cls(ViewName.parse(name.strip()), source)

    @classmethod
    def parse_all(cls, texts: Sequence[str], *, preprocess: str | None = None) -> "tuple[FeatureRequest, ...]":
        """Parse requests with commas between them; ``preprocess`` is the value of ``--onnx-preprocess``. Raises
        ValueError for a text that is no request, and for a ``preprocess`` that is wrong or that no ONNX model needs.
        """
        items: list[str] = []
        for text in texts:
            before, is_sql, expression = text.partition(f"={SQL}")
            items += before.split(",")
            items[-1] += is_sql + expression
        parsed = None if preprocess is None else Preprocess.parse(preprocess)
        found = tuple(cls.parse(item, preprocess=parsed) for item in items)
        if parsed is not None and not any(isinstance(one.source, Onnx) for one in found):
            raise ValueError(f"Wanted a feature NAME=onnx:FILE for --onnx-preprocess {preprocess}. Found: none")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizePlan:
    """The options of a run that computes features. Only images that lack a view are read. Raises ValueError for invalid
    options.
    """

    data_table: TableName
    metadata_table: TableName
    features: tuple[FeatureRequest, ...]
    columns: Columns = field(default_factory=Columns)
    retry: bool = False  # also compute the values that an earlier run could not compute
    timeout: float = 60.0  # Seconds for an image, or a list of images; for functions that are not built in.
    vector_index: bool = False  # make their vectors searchable
    offline: str | None = None  # a folder for the values of all images as Parquet
    overwrite: bool = False  # that folder

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        names = [request.view.name for request in self.features]
        if not names or len(names) > MAX_VIEWS:
            raise ValueError(f"Wanted from 1 to {MAX_VIEWS} feature views. Found: {len(names)}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"Wanted each feature view once. Found: {twice[0]} twice")
        sql = [one.view for one in self.features if isinstance(one.source, Sql)]
        if sql and self.vector_index:
            raise ValueError(
                f"Wanted --vector-index only with values that are stored. Found: {sql[0]}, computed when it is read"
            )
        if not 0 < self.timeout <= 86_400:
            raise ValueError(f"Wanted a timeout of more than 0 s and at most a day. Found: {self.timeout:g}")
        if self.offline is not None and not self.offline.strip():
            raise ValueError("Wanted a folder for --offline. Found: an empty name")
        if self.overwrite and self.offline is None:
            raise ValueError("Wanted --overwrite with --offline, whose folder it may replace. Found: no --offline")
