"""The options of a run that adds labels, validated before anything starts."""

import re
from dataclasses import dataclass, field

from schemas import Columns, IdentifierError, TableName
from schemas.features import ViewName

_OF_FEATURES = re.compile(r".*_v\d+(_index)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelPlan:
    """The options of a run that adds a version of a label view, from a file as ``ingest.py --labels`` reads it. Raises
    ValueError for invalid options.
    """

    data_table: TableName
    metadata_table: TableName
    labels: str
    view: str = "label"
    path_column: str | None = None
    label_column: str | None = None
    new_classes: bool = False  # whether the dataset may lack some of the classes
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
        # Its table is named after it, and must not be the history of the metadata table or belong to a feature view.
        if self.view == "history" or _OF_FEATURES.fullmatch(self.view):
            raise ValueError(
                f"Wanted another name for a label view than history, or one that ends as v1 does. Found: {self.view!r}"
            )
