"""Point-in-time joins, compared with a search through all values for each request."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.features.history import KnownValues, newest_of_images, points_in_time, values_of_bytes
from etl.tables.earlier import CURRENT, EARLIER, REPLACED, THEN, metadata_as_of
from etl.tables.states import states_at
from schemas import Columns
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


def known(values: dict[tuple[bytes, int], int | None], image: bytes, run: int) -> int | None:
    """The slow way: the value of the last run up to this one."""
    runs = [one for (name, one) in values if name == image and one <= run]
    return values[image, max(runs)] if runs else None


def table(spark: SparkSession, values: dict[tuple[bytes, int], int | None]) -> Any:
    rows = [(image, run, time_of(run), score) for (image, run), score in values.items()]
    return rows_of(spark, rows, VALUES)


def ordered(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return sorted(((*row[:-1], -1 if row[-1] is None else row[-1]) for row in rows), key=repr)


@hypothesis_settings(max_examples=12)
@given(values=values_of_runs, requests=requests_of_runs)
def test_each_request_gets_what_was_known_then(
    spark: SparkSession, values: dict[tuple[bytes, int], int | None], requests: list[tuple[bytes, int]]
) -> None:
    stored = table(spark, values)
    by_run = rows_of(
        spark, [(name, run, n) for n, (name, run) in enumerate(requests)], "id BINARY, sequence BIGINT, n INT"
    )
    found = by_run.transform(points_in_time, views=[KnownValues(stored, ["score"])]).select("n", "score").collect()
    assert ordered(found) == ordered((n, known(values, *one)) for n, one in enumerate(requests))
    by_time = rows_of(
        spark, [(name, time_of(run), n) for n, (name, run) in enumerate(requests)], "id BINARY, at TIMESTAMP, n INT"
    )
    found = by_time.transform(points_in_time, views=[KnownValues(stored, ["score"])]).select("n", "score").collect()
    assert ordered(found) == ordered((n, known(values, *one)) for n, one in enumerate(requests))


def test_values_of_bytes_are_the_newest_and_there_since_the_first(spark: SparkSession) -> None:
    rows = [(b"a", run, time_of(created), digest, score)
            for run, created, digest, score in
            ((0, 1, b"x", None), (1, 2, b"x", 10), (3, 4, b"y", 20), (5, 6, b"x", 30))]  # fmt: skip
    kinds = "id BINARY, sequence BIGINT, created_timestamp TIMESTAMP, sha256 BINARY, score INT"
    found = rows_of(spark, rows, kinds).transform(values_of_bytes, fields=["score"]).orderBy("sha256")
    shown = found.select("sha256", "score", F.unix_micros("created_timestamp").alias("at")).collect()
    since = [int((time_of(run) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6) for run in (2, 4)]
    assert [(bytes(row.sha256), row.score, row["at"]) for row in shown] == [(b"x", 30, since[0]), (b"y", 20, since[1])]


def test_the_newest_values_of_images(spark: SparkSession) -> None:
    stored = table(spark, {(b"a", 1): 10, (b"a", 4): None, (b"b", 3): 30})
    found = stored.transform(newest_of_images).collect()
    assert sorted((bytes(row.id), row.sequence, row.score) for row in found) == [(b"a", 4, None), (b"b", 3, 30)]


ROWS = "id STRING, since BIGINT, label INT, or_label STRING, sha256 BINARY, path STRING"
HISTORY = (
    "id STRING, until BIGINT, since BIGINT, kind STRING, label INT, or_label STRING, sha256 BINARY, xxhash64 BIGINT, "
    "kept BOOLEAN"
)

# What runs do: a run gives some images a label and bytes, or removes them.
state_of_image = st.none() | st.tuples(st.integers(0, 1), st.sampled_from([b"x", b"y"]))
runs_of_table = st.lists(st.dictionaries(st.sampled_from("abcd"), state_of_image, max_size=4), min_size=1, max_size=5)
Replayed = tuple[dict[str, tuple[int, tuple[int, bytes]]], list[tuple[Any, ...]], list[dict[str, tuple[int, bytes]]]]


def replay(runs: list[dict[str, tuple[int, bytes] | None]]) -> Replayed:
    """The rows and the history that runs leave, and the slow way: all images after each run."""
    rows: dict[str, tuple[int, tuple[int, bytes]]] = {}
    history, snapshots = [], []
    for run, changes in enumerate(runs, start=1):
        for image, state in changes.items():
            since, before = rows.get(image, (0, None))
            if before is not None and before != state:
                kind = "pruned" if state is None else "replaced"
                history.append((image, run, since, kind, before[0], str(before[0]), before[1], None, None))
            if state is None:
                rows.pop(image, None)
            elif before != state:
                rows[image] = (run, state)
        snapshots.append({image: state for image, (_, state) in rows.items()})
    return rows, history, snapshots


@hypothesis_settings(max_examples=10)
@given(runs=runs_of_table, data=st.data())
def test_metadata_as_of_a_run_are_the_images_after_that_run(
    spark: SparkSession, runs: list[dict[str, tuple[int, bytes] | None]], data: st.DataObject
) -> None:
    rows, history, snapshots = replay(runs)
    sequence = data.draw(st.integers(0, len(runs)))
    wanted = snapshots[sequence - 1] if sequence else {}
    current = rows_of(
        spark, [(one, since, n, str(n), sha, f"{one}.png") for one, (since, (n, sha)) in rows.items()], ROWS
    )
    states = rows_of(spark, history, HISTORY).transform(states_at, sequence=sequence)
    held = {row.id: (row.label, bytes(row.sha256)) for row in states.collect()}
    assert held.keys() == {one for one in wanted if one not in rows or rows[one][0] > sequence}
    assert all(wanted[one] == state for one, state in held.items())
    found = current.transform(
        metadata_as_of, states=states.drop("labels"), sequence=sequence, columns=Columns(), label_type="int"
    ).collect()
    assert {row.id: row.label for row in found} == {one: wanted[one][0] for one in wanted if one in rows}
    for row in found:
        same_bytes = wanted[row.id][1] == rows[row.id][1][1]
        kind = CURRENT if row.id not in held else EARLIER if same_bytes else REPLACED
        assert (row[THEN], row.or_label, row.path) == (kind, str(row.label), f"{row.id}.png")


def test_masks_and_arrays_of_then_are_gone_once_they_are_written_again(spark: SparkSession) -> None:
    """Masks have no hash, but checksums are also of them."""
    rows = rows_of(
        spark,
        [("a", 2, [1], b"x", 7), ("b", 2, [2], b"x", 8), ("c", 2, [2], b"x", None)],
        "id STRING, since BIGINT, labels ARRAY<INT>, sha256 BINARY, xxhash64 BIGINT",
    ).selectExpr("*", "CAST(NULL AS INT) AS label")
    then = "id STRING, until BIGINT, since BIGINT, label INT, labels ARRAY<INT>, sha256 BINARY, kind STRING"
    then += ", xxhash64 BIGINT, kept BOOLEAN"
    # two runs at the same time recorded the state of b that they replaced
    states = rows_of(
        spark,
        [
            (one, until, 1, None, labels, b"x", "replaced", checksum, None)
            for one, until, labels, checksum in (("a", 2, [1], 7), ("b", 2, [9], 9), ("b", 3, [9], 9), ("c", 2, [2], 7))
        ],
        then,
    ).transform(states_at, sequence=1)
    no_checksums = rows.drop("xxhash64")
    for label_type, current, wanted in (
        ("multi", rows, [EARLIER, REPLACED, EARLIER]),
        ("blob", rows, [EARLIER, REPLACED, REPLACED]),
        ("blob", no_checksums, [REPLACED, REPLACED, REPLACED]),
    ):
        found = current.transform(
            metadata_as_of, states=states, sequence=1, columns=Columns(), label_type=label_type
        ).orderBy("id")
        assert [row[THEN] for row in found.collect()] == wanted
