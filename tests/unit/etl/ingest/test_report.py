"""The last line of an ingest, and of its plan."""

from dataclasses import replace

from etl.ingest.report import IngestEstimate, IngestReport

REPORT = IngestReport(
    images=1, already_there=0, bytes=1_000, classes=1, quarantined=1, quarantined_by_reason={"no label": 1},
    images_by_split={"": 1}, notes={}, unmatched=[], new_classes=None, similar_classes=[], executors={},
    data_table="ks.data", metadata_table="ks.metadata", quarantine_table="ks.quarantine", target=None, dataset="ks",
    ingest_id="x", sequence=None, clock=None, fingerprint="f",
)  # fmt: skip


def test_small_runs_have_no_rate() -> None:
    small = str(REPORT.with_seconds(4.0))
    assert small.startswith("ingested 1 image (0.0 MB) of 1 class into ks.data and ks.metadata in 4.0 s; ")
    assert "; 1 rejected (no label: 1): SELECT" in small
    large = str(replace(REPORT, images=2_000).with_seconds(4.0))
    assert "ingested 2,000 images" in large
    assert " in 4.0 s (500 images/s); " in large


def test_a_plan_says_what_was_not_checked() -> None:
    estimate = IngestEstimate(
        images=62, bytes=600_000, classes=5, rejected=2, rejected_by_reason={"empty": 2}, images_by_split={"": 62}
    )
    text = str(estimate)
    assert text.startswith("would ingest 62 of 62 files (0.6 MB; 62 without a split) of 5 classes: ")
    assert "; 2 of 64 files cannot be ingested (empty: 2); " in text
    assert text.endswith("; the contents of files are checked when they are ingested; nothing was written")
    assert "(0.6 MB; train 40, val 22)" in str(replace(estimate, images_by_split={"train": 40, "val": 22}))
