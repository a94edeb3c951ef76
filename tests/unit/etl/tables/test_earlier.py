"""The run that a point in the history of a table means."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from etl.errors import TableError
from etl.tables.earlier import EarlierMetadata, resolve
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import FINISHED, STARTED, RecordedRun, is_shared, new_ingest_id, overlapping, unfinished
from schemas import Columns, TableName
from schemas.as_of import AsOf

TABLE = TableName("ks", "metadata")
NOW = datetime(2026, 3, 10, tzinfo=UTC)
IDS = [uuid.UUID(int=number) for number in range(5)]


def run(sequence: int, *, day: int, ingest: int, state: str | None = FINISHED, kind: str = "ingest") -> RecordedRun:
    clock = (datetime(2026, 3, day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return RecordedRun(
        sequence=sequence, clock=clock, kind=kind, ingest_id=IDS[ingest], source="/tree", started=None, state=state
    )


RUNS = [
    run(4, day=5, ingest=3, kind="labels", state=STARTED),
    run(3, day=4, ingest=1),  # continues run 2
    run(2, day=3, ingest=1, state=STARTED),
    run(1, day=2, ingest=0),
]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", 1),
        ("4", 4),
        (str(IDS[1]), 3),
        ("2026-03-02", 1),
        ("2026-03-03T23:59", 2),
        ("2026-03-04T00:30+01:00", 2),
        ("2026-03-09", 4),
    ],
)
def test_the_last_run_that_counts(text: str, wanted: int) -> None:
    assert resolve(AsOf.parse(text), RUNS, table=TABLE, now=NOW) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", r"Wanted a run on ks\.metadata from 1 to 4 for --as-of\. Found: 5"),
        ("0", "Found: 0"),
        (str(IDS[4]), r"Wanted an ingest .*run 3 \(ingest of /tree\)"),
        ("2026-03-01", "Wanted a time after the first run on ks.metadata, 2026-03-02T00:00:00 UTC"),
        ("2026-03-11", "Wanted a time up to now .* in the future"),
    ],
)
def test_points_without_a_run_are_refused(text: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        resolve(AsOf.parse(text), RUNS, table=TABLE, now=NOW)


def test_tables_without_runs_have_no_history() -> None:
    with pytest.raises(TableError, match="none are recorded"):
        resolve(AsOf.parse("1"), [], table=TABLE, now=NOW)


def test_runs_that_may_still_write() -> None:
    assert unfinished(RUNS, until=4) == []  # run 3 has finished the ingest of run 2; run 4 writes no images
    killed = [run(6, day=7, ingest=2, state=STARTED), run(5, day=6, ingest=4, state=None), *RUNS]
    assert [one.sequence for one in unfinished(killed, until=6)] == [6]
    assert unfinished(killed, until=5) == []
    assert [one.sequence for one in unfinished(RUNS, until=2)] == [2]  # as of run 2, its ingest was not finished
    again = [run(7, day=8, ingest=1, state=STARTED), *RUNS]  # a finished ingest is carried on
    assert [one.sequence for one in unfinished(again)] == [7]


def test_runs_at_the_same_time_are_those_that_began_before_another_one_had_ended() -> None:
    third = replace(run(3, day=4, ingest=2), newest=5)
    runs = [run(6, day=7, ingest=4), run(5, day=6, ingest=3), run(4, day=5, ingest=3, kind="labels"), third, *RUNS[2:]]
    assert [one.sequence for one in overlapping(runs, until=3)] == [5]  # run 4 writes no images
    assert overlapping(runs, until=2) == overlapping(runs, until=5) == []


def test_other_runs_may_write_while_this_one_does() -> None:
    old, mine = [run(1, day=2, ingest=0)], run(2, day=3, ingest=1, state=STARTED)
    assert not is_shared(old, [mine, *old], own=2)
    assert not is_shared([], old, own=1)
    assert is_shared(old, [run(3, day=4, ingest=2), mine, *old], own=2)
    killed = [run(1, day=2, ingest=0, state=STARTED)]
    assert is_shared(killed, [mine, *old], own=2)  # it has finished since


@pytest.mark.parametrize(("ttl", "warnings"), [(0, 0), (3600, 0), (-1, 1)])
def test_a_table_as_of_a_run_says_that_images_have_expired(ttl: int, warnings: int) -> None:
    known: Any = None
    recorded = replace(RUNS[-1], ingest_id=new_ingest_id(), ttl=ttl)
    table = MetadataTable(
        spark=known, control=known, name=TABLE, columns=Columns(), fields={"sha256": "blob", "ingest_id": "timeuuid"},
        runs=(recorded,), history=None, record=None,
    )  # fmt: skip
    earlier = EarlierMetadata.open(table, label_type="int", as_of="1", skips=False)
    assert earlier is not None
    assert len(earlier.warnings) == warnings
    assert all("those that have expired are left out" in warning for warning in earlier.warnings)
