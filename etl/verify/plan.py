"""What a verification is asked to do: its options, checked before anything starts."""

from dataclasses import dataclass, field
from typing import Literal

from etl.ingest.plan import IngestPlan
from schemas import Columns, TableName

Check = Literal["sizes", "hashes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """The options of one verification: which tables, how closely, against which source (that of ``ingest``), if any."""

    data_table: TableName
    metadata_table: TableName
    columns: Columns = field(default_factory=Columns)
    check: Check = "hashes"
    repair: bool = False
    ingest: IngestPlan | None = None

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")

    @property
    def quarantine(self) -> TableName:
        """Where rejected files are told."""
        return TableName(self.metadata_table.keyspace, "quarantine")
