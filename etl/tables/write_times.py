"""When the rows of a table were written, from the driver."""

from etl.cassandra.control import Control
from schemas import TableName
from schemas.tables import check_column

# Each query reads one range of tokens and returns one row. A thousand ranges keep a query within the request's time for
# tables of a billion rows.
_RANGES = 1024
_FIRST_TOKEN = -(2**63)
_STEP = 2**64 // _RANGES


def latest_write(control: Control, table: TableName, *, key: str, column: str) -> int:
    """The latest write to a column of a whole table, in microseconds since 1970; 0 if no row has a value in it. The
    servers read all rows; only the result is sent. ``key`` is the one column of the partition key, and ``column`` is
    not part of the key. Raises `TableError` if the table lacks one of them.
    """
    token = f'token("{check_column(key)}")'
    query = (
        f'SELECT max(writetime("{check_column(column)}")) AS latest FROM {table.quoted} '
        f"WHERE {token} > ? AND {token} <= ?"
    )
    starts = range(_FIRST_TOKEN, 2**63, _STEP)
    ranges = [(start, min(start + _STEP, 2**63 - 1)) for start in starts]
    return max((rows[0].latest or 0) for rows in control.execute_all(query, ranges))
