"""The number of images that may be deleted, and the report."""

from dataclasses import replace

import pytest

from etl.deleting.deletion import DeleteReport, check_count
from etl.deleting.plan import DeletePlan
from etl.errors import EtlError
from schemas import TableName

TABLES = (TableName("ks", "data"), TableName("ks", "metadata"))

WOULD = DeleteReport(
    data_table="ks.data", metadata_table="ks.metadata", images=3, of=100, bytes=2_500_000, sources={"file:/data": 3},
    before=1, replaced=4,
    values=["ks.metadata_phash_v2"], splits={"splits/x": 3, "splits/y": None}, caches={}, confirm=3,
    models={"m.pt@v1 (training)": 2}, shards={"shards/x@v1": 2, "shards/y@v1": None}, protected=["splits/x"],
    history="ks.metadata_history", outside={"backups": "remove them"}, sequence=None, seconds=1.0,
)  # fmt: skip


def plan(count: int | None) -> DeletePlan:
    return DeletePlan(data_table=TABLES[0], metadata_table=TABLES[1], source="s", reason="r", count=count)


def test_more_than_one_percent_of_the_images_must_be_confirmed() -> None:
    for images, of, count in ((10, 1000, None), (11, 1000, 11), (0, 5, None), (10, 1000, 10)):
        check_count(images, of=of, plan=plan(count))
    for images, count, found in ((11, None, "no --count"), (11, 10, "--count 10"), (2, 3, "--count 3")):
        with pytest.raises(
            EtlError, match=rf"Wanted --count {images}, to delete {images} of 1,000 .* Found: {found}\."
        ):
            check_count(images, of=1000, plan=plan(count))


def test_a_plan_says_what_would_be_deleted_and_how_to_confirm_it() -> None:
    assert str(WOULD).splitlines() == [
        "file:/data: 3 images",
        "splits/x: 3 images; it is pinned or named by --split, so --force is needed",
        "splits/y: cannot be read",
        "model m.pt@v1 (training): has seen 2 images",
        "shards shards/x@v1: 2 images; remove them, or make them again",
        "shards shards/y@v1: may have images; remove them, or make them again",
        "4 copies of bytes that were replaced earlier",
        "values in ks.metadata_phash_v2",
        "not removed: backups (remove them)",
        "would delete 3 of 100 images (2.5 MB) of ks.metadata and ks.data; 1 were deleted before; nothing was deleted; "
        "to delete them, add --count 3",
    ]


def test_a_report_says_what_was_deleted_and_from_which_splits() -> None:
    lines = str(replace(WOULD, sequence=7, caches={"cache": 1}, before=0, confirm=None)).splitlines()
    assert lines[1] == "splits/x: 3 images deleted"
    assert lines[6] == "cache: 1 image removed from this cache"
    assert lines[-1] == (
        "deleted 3 of 100 images (2.5 MB) from ks.metadata and ks.data in 1.0 s; run 7; recorded in ks.metadata_history"
    )
