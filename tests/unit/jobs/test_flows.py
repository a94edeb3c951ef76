"""What each job reads and writes, for OpenLineage events."""

from types import SimpleNamespace
from typing import Any

import pytest

from etl.catalog.events import Dataset, Flow
from etl.features.plan import FeatureRequest, FeaturizePlan
from etl.ingest.plan import IngestPlan
from etl.labels.plan import RelabelPlan
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from etl.splits.plan import SplitPlan
from jobs.flows import flow_of
from schemas import TableName

DATA, METADATA = TableName("ks", "data"), TableName("ks", "metadata")
TABLES: dict[str, Any] = {"data_table": DATA, "metadata_table": METADATA}
SOURCE = SourcePlan(address="s3://bucket/data")


@pytest.mark.parametrize(
    ("plan", "report", "flow"),
    [
        (
            IngestPlan(source=SOURCE, **TABLES),
            {"fingerprint": "f", "images": 3, "bytes": 9},
            Flow([Dataset("s3://bucket/data")], [Dataset(DATA, "f", 3, 9), Dataset(METADATA, "f", 3)]),
        ),
        (
            IngestPlan(source=SOURCE, target="/out"),
            {"fingerprint": "f", "images": 3, "bytes": 9},
            Flow([Dataset("s3://bucket/data")], [Dataset("/out", "f", 3, 9)]),
        ),
        (
            SplitPlan(out="/s", **TABLES),
            {"out": "/s", "fingerprints": ["f", "g"], "rows": [2, 1]},
            Flow([Dataset(METADATA)], [Dataset("/s/split=0", "f", 2), Dataset("/s/split=1", "g", 1)]),
        ),
        (SplitPlan(out="/s", metadata_in="/cache"), None, Flow([Dataset("/cache")])),
        (
            ShardPlan(split="/s", index=1, out="/shards"),
            {"out": "/shards", "source_fingerprint": "g", "fingerprint": "h", "images": 1, "bytes": 9, "shards": 1},
            Flow([Dataset("/s/split=1", "g")], [Dataset("/shards", "h", 1, 9, 1)]),
        ),
        (
            FeaturizePlan(features=FeatureRequest.parse_all(["phash"]), **TABLES),
            {"tables": {"phash@v2": "ks.metadata_phash_v2"}, "views": {"phash@v2": SimpleNamespace(computed=3)}},
            Flow(
                [Dataset(DATA), Dataset(METADATA)],
                [Dataset(TableName("ks", "metadata_phash_v2"), "phash@v2", 3)],
            ),
        ),
        (
            RelabelPlan(labels="/new.csv", **TABLES),
            {"view": "label@v2", "images": 3},
            Flow([Dataset("/new.csv"), Dataset(METADATA)], [Dataset(TableName("ks", "metadata_label"), "label@v2", 3)]),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_job_names_what_it_reads_and_writes(plan: object, report: dict[str, Any] | None, flow: Flow) -> None:
    assert flow_of(plan, report and SimpleNamespace(**report)) == flow
    assert flow_of(plan, None).inputs[0].place == flow.inputs[0].place
