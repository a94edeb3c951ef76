"""Tables as DataFrames, through the Spark connector: metadata are read, small rows are written."""

import time
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.cluster import CONNECT_SECONDS
from etl.cassandra.control import Control, check_columns
from schemas import TableName
from schemas.tables import check_column

_PAGE_ROWS = "5000"  # of metadata: 1 to 2 MB; a fifth faster than the connector's own 1,000
# What the connector says of a table or keyspace that it does not know yet. It was built for Spark 3.5, and raises
# classes that Spark 4 does not have: there, only the name of the missing class is seen.
_UNKNOWN = ("Couldn't find", "NoSuchTableException", "NoSuchNamespaceException")
_FORMAT = "org.apache.spark.sql.cassandra"


def read_table(
    spark: SparkSession,
    table: TableName,
    *,
    columns: Sequence[str],
    page_rows: int | None = None,
) -> DataFrame:
    """The rows of a table, these columns in this order; uuids are text (see `uuid_bytes`).

    ``page_rows`` is how many rows the server sends at a time: few where rows hold pictures, because it has whole pages
    in memory.
    Raises `TableError` naming all columns that are missing, `UnreachableError`.
    """
    with Control.from_spark(spark) as control:
        check_columns(control, table, columns=columns)
    # A quorum of each datacenter, as rows are written with: one replica alone may not have the last ones.
    consistency = spark.conf.get("spark.cassandra.input.consistency.level", None) or "LOCAL_QUORUM"
    reader = spark.read.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    reader = reader.option("spark.cassandra.input.consistency.level", consistency)
    rows = str(page_rows or spark.conf.get("spark.cassandra.input.fetch.sizeInRows", None) or _PAGE_ROWS)
    reader = reader.option("spark.cassandra.input.fetch.sizeInRows", rows)
    if page_rows is not None:  # such a table is large: tasks of seconds, whatever is lost with one
        split = spark.conf.get("spark.cassandra.input.split.sizeInMB", None) or "256"
        reader = reader.option("spark.cassandra.input.split.sizeInMB", split)
    # The connector would turn joins on uuids that we made binary into look-ups by uuid, and fail.
    frame = _load(reader.option("directJoinSetting", "off"))
    return frame.select(*(F.col(check_column(name)) for name in columns))


def _load(reader: DataFrameReader) -> DataFrame:
    """Open a table that exists. The connector learns of a new table about a second after its creation."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return reader.load()
        except (AnalysisException, Py4JJavaError) as error:
            if not any(text in str(error) for text in _UNKNOWN) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def uuid_bytes(column: str | Column) -> Column:
    """The 16 big-endian bytes of a uuid that `read_table` gave as text."""
    return F.unhex(F.replace(F.col(column) if isinstance(column, str) else column, F.lit("-"), F.lit("")))


def uuid_text(column: str | Column) -> Column:
    """The text of a uuid's 16 bytes, as `append_rows` takes it."""
    digits = F.lower(F.hex(column))
    return F.regexp_replace(digits, "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def append_rows(frame: DataFrame, *, table: TableName, clock: int | None = None) -> None:
    """Write small rows to a table, over those of the same key; columns that the frame lacks are left as they are.

    ``clock`` is their write time, in microseconds since 1970; that of each machine unless it is given.
    """
    written = frame.write.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    if clock is not None:
        written = written.option("spark.cassandra.output.timestamp", str(clock))
    written.mode("append").save()
