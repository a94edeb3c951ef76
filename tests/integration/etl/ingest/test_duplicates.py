"""Exact duplicates: groups and their summary, spread over partitions."""

import hashlib

from pyspark.sql import SparkSession

from etl.ingest.duplicates import IMAGES, DuplicateGroup, duplicate_groups, summarise
from tests.support.spark_rows import rows_of


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def image(number: int, label: int | None, or_split: str, path: str, content: str | None) -> tuple[object, ...]:
    sha256 = None if content is None else bytearray(sha(content))
    return bytearray(number.to_bytes(16, "big")), label, or_split, path, sha256


ROWS = [
    image(1, 0, "train", "a/1", "both"),
    image(2, 1, "val", "b/1", "both"),
    image(3, 0, "train", "a/2", "splits"),
    image(4, 0, "val", "a/2", "splits"),
    image(5, 0, "train", "a/3", "labels"),
    image(6, 2, "train", "c/3", "labels"),
    *(image(10 + i, 0, "train", f"a/same{i}", "many") for i in range(7)),
    image(20, None, "", "x.png", "plain"),
    image(21, None, "", "w.png", "plain"),
    image(22, 0, "train", "a/alone", "alone"),
    image(23, 0, "train", "a/unknown", None),
    image(24, 0, "train", "a/unknown2", None),
]


def test_groups_say_where_labels_and_splits_differ(spark: SparkSession) -> None:
    images = rows_of(spark, ROWS, IMAGES).repartition(5)
    groups = images.transform(duplicate_groups)
    assert {bytes(row.sha256): tuple(row[1:]) for row in groups.collect()} == {
        sha("both"): (2, True, True, "train/a/1", "val/b/1"),
        sha("splits"): (2, False, True, "train/a/2", "val/a/2"),
        sha("labels"): (2, True, False, "train/a/3", "train/c/3"),
        sha("many"): (7, False, False, "train/a/same0", "train/a/same6"),
        sha("plain"): (2, False, False, "w.png", "x.png"),
    }
    summary = summarise(groups)
    assert (summary.groups, summary.images) == (5, 15)
    assert (summary.with_different_labels, summary.in_different_splits) == (2, 2)
    names = ["both", "labels", "splits", "many", "plain"]
    assert [group.sha256 for group in summary.examples] == [sha(name).hex() for name in names]
    assert summary.examples[0] == DuplicateGroup(sha("both").hex(), 2, True, True, "train/a/1", "val/b/1")
    assert str(summary.examples[0]) == "train/a/1 and val/b/1 differ in label and split"
    assert str(summary.examples[3]) == "train/a/same0 and train/a/same6 (7 images)"
    assert str(summary).startswith("15 images are exact duplicates, in 5 groups; 2 of these groups have different")
    few = summarise(groups, examples=1)
    assert [group.sha256 for group in few.examples] == [sha("both").hex()]
    assert (few.groups, few.images) == (5, 15)


def test_the_summary_without_duplicates_is_empty(spark: SparkSession) -> None:
    images = rows_of(spark, ROWS[-3:], IMAGES)
    summary = summarise(images.transform(duplicate_groups))
    assert (summary.groups, summary.images, summary.examples) == (0, 0, [])
    assert str(summary) == "no exact duplicates"
