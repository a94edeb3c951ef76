"""Names of columns: those of users' tables may be any, and ours stand beside them in a namespace of their own.

A DataFrame with columns of users has ours only under `ours`. Where no user's name is needed any more, columns of users
get our names, so that later steps need not care. Names are compared as they are written (`exact_names`): a table may
have ``label`` and ``Label``.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import TableError
from etl.frames import setting
from schemas.cache import OURS

_CASE = "spark.sql.caseSensitive"


def ours(name: str) -> str:
    """The name of a column of ours in a DataFrame that has columns of users too."""
    return OURS + name


def theirs(rows: DataFrame) -> list[str]:
    """The names of the columns that are not `ours`."""
    return [name for name in rows.columns if not name.startswith(OURS)]


def check_theirs(names: Iterable[str], *, place: object) -> None:
    """Raise `TableError` if a column of a user has a name that only `ours` have. ``place`` has the columns."""
    if taken := [name for name in names if name.startswith(OURS)]:
        raise TableError(
            f"Wanted columns in {place} whose names do not begin with {OURS}, which is reserved. Found: {taken[0]}. "
            "Rename it."
        )


def quoted(name: str) -> str:
    """A name as Spark parses it: any characters, also dots and backticks."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """The column with exactly this name."""
    return F.col(quoted(name))


def filled(schema: str, values: Mapping[str, Column]) -> list[Column]:
    """The columns of a schema in Spark's notation, without commas in its types; those without a value are null."""
    columns = (column.split()[:2] for column in schema.split(", "))
    return [values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in columns]


@contextmanager
def exact_names(spark: SparkSession) -> Iterator[None]:
    """Let names of columns differ in nothing but case, as in Cassandra."""
    with setting(spark, _CASE, "true"):
        yield


@contextmanager
def names_in_any_case(spark: SparkSession) -> Iterator[None]:
    """Let Spark find columns whatever the case of their names, as it usually does."""
    with setting(spark, _CASE, "false"):
        yield
