"""The options of a verification, validated before anything starts."""

from dataclasses import dataclass, field
from typing import Literal

from etl.ingest.plan import IngestPlan
from schemas import Columns, TableName

Check = Literal["sizes", "hashes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """The options of one verification: the tables, the kind of check, and optionally the source (of ``ingest``)."""

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
        """The table of rejected files."""
        return TableName(self.metadata_table.keyspace, "quarantine")


def failure(plan: VerifyPlan | str, *, found: str) -> str:
    """The message for problems of the tables of a plan, or for changes of the split at an address."""
    if isinstance(plan, str):
        return f"Wanted {plan} as it was made. Found: {found}."
    hint = "" if plan.repair else " Add --repair to repair what can be repaired."
    return f"Wanted {plan.metadata_table} and {plan.data_table} to agree. Found: {found}.{hint}"
