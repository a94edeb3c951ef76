"""Versions of label views, as runs record them."""

from etl.labels.versions import LabelVersions, unfinished_labels
from etl.tables.runs import FINISHED, STARTED, RecordedRun
from schemas import TableName
from schemas.feature_sources import Labels
from schemas.features import FeatureView


def run(sequence: int, state: str | None, kind: str = "labels") -> RecordedRun:
    return RecordedRun(
        sequence=sequence, clock=sequence, kind=kind, ingest_id=None, source="x.csv", started=None, state=state
    )


def test_runs_that_may_still_add_a_version_are_later_than_the_newest_one() -> None:
    runs = [run(6, STARTED), run(5, STARTED), run(4, FINISHED), run(3, STARTED, "ingest"), run(2, STARTED)]
    view = FeatureView(
        name="label", version=1, fields={"label": "int"}, source=Labels("x"), digest="0" * 64, sequence=4
    )
    versions = LabelVersions(metadata=TableName("k", "m"), views=(view,), recorded=frozenset())
    assert unfinished_labels(runs, versions, until=5) == [run(5, STARTED)]
    assert unfinished_labels(runs, None, until=3) == [run(2, STARTED)]
