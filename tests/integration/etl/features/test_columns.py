"""Fields of views as columns: values of SQL views are the same in every session."""

import uuid
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import ConflictError
from etl.features.columns import Fields, with_fields
from etl.frames import setting
from schemas import TableName
from schemas.feature_sources import Sql
from schemas.features import FeatureView
from tests.support.spark_rows import rows_of

LATE = "at = cast('2026-03-01' as timestamp)"
EXPRESSIONS = {
    "hour(at)": ("int", "spark.sql.session.timeZone", "Asia/Tokyo"),
    "string(date(at))": ("text", "spark.sql.session.timeZone", "Asia/Tokyo"),
    LATE: ("boolean", "spark.sql.session.timeZone", "Asia/Tokyo"),
    "at = timestamp '2026-01-01 23:30:00'": ("boolean", "spark.sql.session.timeZone", "Asia/Tokyo"),
    "size(null)": ("int", "spark.sql.ansi.enabled", "false"),
    "typeof(to_timestamp('2026-03-01'))": ("text", "spark.sql.timestampType", "TIMESTAMP_NTZ"),
    "string(length('\\\\d'))": ("text", "spark.sql.parser.escapedStringLiterals", "true"),
    "typeof(1.5e10)": ("text", "spark.sql.legacy.exponentLiteralAsDecimal.enabled", "true"),
    "string(array_insert(array(1, 2), -1, 9)[1])": ("text", "spark.sql.legacy.negativeIndexInArrayInsert", "true"),
}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Metadata rows of two images."""
    texts = [(str(uuid.UUID(int=1)), "2026-01-01 23:30:00", 7), (str(uuid.UUID(int=2)), "2026-02-28 15:00:00", 300)]
    found = rows_of(spark, texts, "id STRING, text STRING, bytes BIGINT")
    return found.select(
        "id", F.to_timestamp(F.concat("text", F.lit(" UTC")), "yyyy-MM-dd HH:mm:ss zzz").alias("at"), "bytes"
    )


def value(expression: str, kind: str) -> Fields:
    """A registered view of a table without other views."""
    view = FeatureView(name="value", version=1, fields={"value": kind}, source=Sql(expression), digest="0" * 64)
    return Fields(view, ("value",), TableName("ks", "metadata"))


def values(rows: DataFrame, expression: str, kind: str, **settings: str) -> list[Any]:
    with ExitStack() as stack:
        for name, of_session in settings.items():
            stack.enter_context(setting(rows.sparkSession, name, of_session))
        found = rows.transform(with_fields, fields=[value(expression, kind)], key="id")
        return [row["value"] for row in found.orderBy("id").collect()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_of_sql_views_do_not_depend_on_the_session(rows: DataFrame, expression: str) -> None:
    kind, name, other = EXPRESSIONS[expression]
    plain = [row[0] for row in rows.orderBy("id").select(F.expr(expression)).collect()]
    with setting(rows.sparkSession, name, other):  # it would be another value
        assert [row[0] for row in rows.orderBy("id").select(F.expr(expression)).collect()] != plain
    before = rows.sparkSession.conf.get(name, None)
    assert values(rows, expression, kind) == values(rows, expression, kind, **{name: other})
    assert rows.sparkSession.conf.get(name, None) == before


def test_sql_views_fail_in_every_session_or_in_none(rows: DataFrame) -> None:
    for settings in ({}, {"spark.sql.ansi.enabled": "false"}):
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            values(rows, "bytes / (bytes - 7)", "double", **settings)
        assert values(rows, "try_divide(bytes, bytes - 7)", "double", **settings) == [None, 300 / 293]


def test_a_session_with_which_values_would_be_others_is_refused(rows: DataFrame) -> None:
    for name, other in (
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
        ("spark.sql.legacy.castComplexTypesToString.enabled", "true"),
    ):
        with pytest.raises(ConflictError, match=rf"value@v1 has the values .* Found: {name} is {other}.* Set it to"):
            values(rows, "bytes", "bigint", **{name: other})
    assert values(rows, "bytes", "bigint", **{"spark.sql.legacy.timeParserPolicy": "exception"}) == [7, 300]
