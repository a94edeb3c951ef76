"""Whether tables have their current form. `imagestrata migrate` brings those of earlier versions into it."""

from collections.abc import Collection

from etl.errors import TableError
from schemas import TableName
from schemas.tables import lacking


def check_current(table: TableName, found: Collection[str], *, definition: str, metadata: TableName) -> None:
    """Raise `TableError` if a table with these columns is one of an earlier version, which its definition is not:
    ``metadata`` itself, or a table that belongs to it.
    """
    if missing := lacking(found, definition):
        what = f"the column {min(missing)}" if len(missing) == 1 else f"the columns {', '.join(sorted(missing))}"
        raise not_migrated(f"{table} lacks {what}, which an earlier version did not write", metadata=metadata)


def not_migrated(found: str, *, metadata: TableName, more: str = "") -> TableError:
    """The error for tables of an earlier version, with ``more`` options of the command that migrates them."""
    return TableError(
        f"Wanted tables of version 0.2. Found: {found}. Run `imagestrata migrate -m {metadata}{more}`, which adds "
        "what is missing and changes nothing else."
    )
