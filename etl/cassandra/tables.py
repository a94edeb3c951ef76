"""Tables as DataFrames, through the Spark connector: reads metadata and writes small rows."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.cluster import CONNECT_SECONDS
from etl.cassandra.control import Control, check_columns
from etl.columns import column, exact_names
from etl.frames import start_anywhere
from etl.tls import connector_options
from formats.retries import Retries
from schemas import TableName

_PAGE_ROWS = "5000"  # of metadata: 1 to 2 MB; a fifth faster than the connector's own 1,000
# Errors for a keyspace, table or column that the connector does not know yet. It was built for Spark 3.5 and raises
# exceptions that Spark 4 does not have: there, the error names the missing class.
_UNKNOWN = (
    "Couldn't find",
    "NoSuchTableException",
    "NoSuchNamespaceException",
    "UNRESOLVED_COLUMN",
    "Columns not found",
)
_NEW_TABLE_RETRIES = Retries(seconds=CONNECT_SECONDS)
_FORMAT = "org.apache.spark.sql.cassandra"

T = TypeVar("T")


def read_table(
    spark: SparkSession,
    table: TableName,
    *,
    columns: Sequence[str],
    page_rows: int | None = None,
) -> DataFrame:
    """Read these columns of a table, in this order; uuids are text (see `uuid_bytes`). Raises `TableError`, which names
    all columns that do not exist, and `UnreachableError`.
    """
    start_anywhere(spark)
    with Control.from_spark(spark) as control:
        check_columns(control, table, columns=columns)
    # Rows are written at a quorum as well. One replica alone may lack the latest rows.
    consistency = spark.conf.get("spark.cassandra.input.consistency.level", None) or "LOCAL_QUORUM"
    reader = spark.read.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    reader = reader.option("spark.cassandra.input.consistency.level", consistency)
    # The server keeps a page in memory: few rows where they hold images.
    rows = str(page_rows or spark.conf.get("spark.cassandra.input.fetch.sizeInRows", None) or _PAGE_ROWS)
    reader = reader.option("spark.cassandra.input.fetch.sizeInRows", rows)
    if page_rows is not None:  # such a table is large: tasks of seconds, so that a retry repeats little
        split = spark.conf.get("spark.cassandra.input.split.sizeInMB", None) or "256"
        reader = reader.option("spark.cassandra.input.split.sizeInMB", split)
    # The connector would turn joins on uuids that are binary here into look-ups by uuid, and fail.
    reader = reader.option("directJoinSetting", "off").options(**connector_options(spark))
    with exact_names(spark):
        return _once_known(lambda: reader.load().select(*map(column, columns)))


def _once_known(use: Callable[[], T]) -> T:
    """Use a table that exists. The connector learns of new tables and columns about a second after their creation."""
    errors = (AnalysisException, Py4JJavaError)
    return _NEW_TABLE_RETRIES.run(use, errors, is_passing=lambda error: any(text in str(error) for text in _UNKNOWN))


def uuid_bytes(column: str | Column) -> Column:
    """Convert a uuid from the text that `read_table` returns to its 16 big-endian bytes."""
    return F.unhex(F.replace(F.col(column) if isinstance(column, str) else column, F.lit("-"), F.lit("")))


def uuid_text(column: str | Column) -> Column:
    """Convert a uuid from its 16 bytes to the text that `append_rows` accepts."""
    digits = F.lower(F.hex(column))
    return F.regexp_replace(digits, "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def append_rows(frame: DataFrame, *, table: TableName, clock: int | None = None, ttl: str | None = None) -> None:
    """Write small rows to a table, at ``clock`` (microseconds) or at each machine's time. They replace rows of the same
    key; other columns of those stay unchanged. ``ttl`` is a column of the frame with the seconds after which rows
    expire, 0 for never.
    """
    written = frame.write.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    written = written.options(**connector_options(frame.sparkSession))
    if clock is not None:
        written = written.option("spark.cassandra.output.timestamp", str(clock))
    if ttl is not None:
        written = written.option("ttl", ttl)
    _once_known(written.mode("append").save)
