"""Point-in-time joins, compared with a search through all values for each request."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from etl.features.history import known_at, point_in_time
from tests.support.spark_rows import rows_of

START = datetime(2026, 3, 1, tzinfo=UTC)
VALUES = "id BINARY, sequence BIGINT, event_timestamp TIMESTAMP, score INT"

# Values of few images and few runs, so that requests meet them; a run has one value of an image at most.
values_of_runs = st.dictionaries(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 8)), st.none() | st.integers(0, 99), max_size=16
)
requests_of_runs = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"d"]), st.integers(0, 9)), max_size=12)


def time_of(run: int) -> datetime:
    """The clock of a run. Runs are not regular."""
    return START + timedelta(minutes=run * run)


def known(values: dict[tuple[bytes, int], int | None], image: bytes, run: int, *, ttl: int | None = None) -> int | None:
    """The slow way: the value of the last run up to this one."""
    runs = [one for (name, one) in values if name == image and one <= run]
    if not runs or (ttl is not None and time_of(run) - time_of(max(runs)) > timedelta(seconds=ttl)):
        return None
    return values[image, max(runs)]


def table(spark: SparkSession, values: dict[tuple[bytes, int], int | None]) -> Any:
    rows = [(image, run, time_of(run), score) for (image, run), score in values.items()]
    return rows_of(spark, rows, VALUES)


def ordered(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return sorted(((*row[:-1], -1 if row[-1] is None else row[-1]) for row in rows), key=repr)


@hypothesis_settings(max_examples=12)
@given(values=values_of_runs, requests=requests_of_runs, ttl=st.none() | st.integers(60, 1800))
def test_each_request_gets_what_was_known_then(
    spark: SparkSession, values: dict[tuple[bytes, int], int | None], requests: list[tuple[bytes, int]], ttl: int | None
) -> None:
    stored = table(spark, values)
    by_run = rows_of(
        spark, [(name, run, n) for n, (name, run) in enumerate(requests)], "id BINARY, sequence BIGINT, n INT"
    )
    found = by_run.transform(point_in_time, values=stored, fields=["score"]).select("n", "score").collect()
    assert ordered(found) == ordered((n, known(values, *one)) for n, one in enumerate(requests))
    by_time = rows_of(
        spark, [(name, time_of(run), n) for n, (name, run) in enumerate(requests)], "id BINARY, at TIMESTAMP, n INT"
    )
    found = by_time.transform(point_in_time, values=stored, fields=["score"], ttl=ttl).select("n", "score").collect()
    assert ordered(found) == ordered((n, known(values, *one, ttl=ttl)) for n, one in enumerate(requests))


def test_the_newest_values_up_to_a_run(spark: SparkSession) -> None:
    values = {(b"a", 1): 10, (b"a", 4): None, (b"b", 3): 30}
    stored = table(spark, values)
    names = ("id", "sequence", "score")
    for until, wanted in (
        (None, [(b"a", 4, None), (b"b", 3, 30)]),
        (3, [(b"a", 1, 10), (b"b", 3, 30)]),
        (0, []),
    ):
        found = stored.transform(known_at, sequence=until).select(*names).collect()
        assert sorted((bytes(row.id), row.sequence, row.score) for row in found) == wanted
