"""The report of a run that computes features."""

from dataclasses import replace

from etl.features.report import FeaturizeReport, ViewCounts

REPORT = FeaturizeReport(
    data_table="ks.data", metadata_table="ks.metadata", views={"size@v1": ViewCounts(1, 1)}, on_demand={},
    indexed={"size@v1": 1}, tables={"size@v1": "ks.size"}, images=1, gone=1, sequence=2, run_id="x", offline="out",
    stored={"size@v1": 1}, seconds=4.0,
)  # fmt: skip


def test_one_is_one_image_and_small_runs_have_no_rate() -> None:
    assert str(REPORT).splitlines() == [
        "size@v1: 1 value in ks.size, 1 image without one",
        "size@v1: 1 vector added to the vector index",
        "reasons: SELECT path, stage, reason FROM ks.quarantine WHERE ingest_id = x; --retry computes these again",
        "1 image was deleted or changed in the meantime; run the job again",
        "size@v1: 1 row in out/size@v1",
        "1 image of ks.metadata in 4.0 s",
    ]
    large = str(replace(REPORT, images=2_000, gone=2))
    assert "\n2 images were deleted" in large
    assert large.endswith("2,000 images of ks.metadata in 4.0 s (500 images/s)")
