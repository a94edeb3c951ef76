"""Which rows are stale, and which ones a run has written."""

import uuid

from pyspark.sql import SparkSession

from etl.ingest.existing_images import written_by
from etl.ingest.stale_rows import not_found
from formats.image_names import HIDDEN

OWN, OTHER = uuid.uuid1(), uuid.uuid1()


def test_listed_images_are_stale_only_if_they_were_refused(spark: SparkSession) -> None:
    names = ["written", "there", "damaged", "unreadable", "twice", "lost", "gone", "hidden"]
    rows = spark.createDataFrame(
        [(name, "", f"{name}.png") for name in names], "id STRING, or_split STRING, path STRING"
    )
    unreadable, twice = "unreadable: EIO", "twice: in a tar"
    entries = [(name, None) for name in names[:6]] + [("twice", twice), ("hidden", HIDDEN)]
    outcomes = [
        ("written", "written", None), ("there", "already there", None), ("damaged", "read", "not an image: zeros"),
        ("unreadable", "read", unreadable), ("twice", "written", None), ("twice", "list", twice),
        ("hidden", "list", HIDDEN),
    ]  # fmt: skip
    stale = not_found(
        rows,
        entries=spark.createDataFrame(entries, "id STRING, reason STRING"),
        outcomes=spark.createDataFrame(outcomes, "id STRING, stage STRING, reason STRING"),
    )
    found = {row.id: row.is_hidden for row in stale.collect()}
    assert found == {"damaged": False, "gone": False, "hidden": True}


def test_a_run_knows_its_rows_by_its_id_or_if_it_continues_an_ingest_by_its_number(spark: SparkSession) -> None:
    rows = [("own", str(OWN), 3), ("own, as before", str(OWN), 1), ("other", str(OTHER), 2), ("old", None, None)]
    frame = spark.createDataFrame(rows, "name STRING, ingest_id STRING, since BIGINT")
    for is_continued, wanted in ((False, {"own", "own, as before"}), (True, {"own"})):
        own = frame.where(written_by(OWN, sequence=3, is_continued=is_continued))
        left = frame.where(~written_by(OWN, sequence=3, is_continued=is_continued))
        assert {row.name for row in own.collect()} == wanted
        assert {row.name for row in left.collect()} == {name for name, *_ in rows} - wanted
