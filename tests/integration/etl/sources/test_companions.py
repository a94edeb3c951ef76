"""Masks and label arrays: which belongs to which image."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from etl.sources.companions import attach, split_arrays, unmatched
from etl.sources.entries import ENTRIES
from tests.support.spark_rows import rows_of


def listed(spark: SparkSession, names: Sequence[tuple[bytes, bytes, str | None]], *, folder: bytes) -> DataFrame:
    """Entries of (split, path, reason). Places are below a folder, and sizes are the lengths of the names."""
    rows = [
        (
            split + b"/" + path,
            split,
            path,
            None,
            None,
            folder + split + b"/" + path,
            None,
            len(path),
            *[None] * 3,
            reason,
        )
        for split, path, reason in names
    ]
    return rows_of(spark, [tuple(bytearray(v) if isinstance(v, bytes) else v for v in row) for row in rows], ENTRIES)


IMAGES: list[tuple[bytes, bytes, str | None]] = [
    (b"train", b"a/1.jpg", None),
    (b"train", b"a/2.x.JPEG", None),
    (b"val", b"a/1.jpg", None),
    (b"train", b"b/1.jpg", None),
    (b"train", b"b/2.jpg", None),
    (b"train", b"b/3.jpg", None),
    (b"train", b"b/pipe.jpg", "not a regular file: a pipe"),
    (b"train", b"c.d/no-extension", None),
    (b"train", b"c.d/.jpg", None),
    (b"train", b"c.d/\xff.jpg", None),
    (b"train", b"c.d/\xfe.jpg", None),
    (b"train", b"c.d/line\n.jpg", None),
]


MASKS: list[tuple[bytes, bytes, str | None]] = [
    (b"train", b"a/1.png", None),
    (b"train", b"a/2.x.png", None),
    (b"val", b"a/1.png", None),
    (b"train", b"b/2.png", None),
    (b"train", b"b/2.PNG", None),
    (b"train", b"b/3.png", "broken link: it leads nowhere"),
    (b"train", b"b/pipe.png", None),
    (b"train", b"c.d/no-extension.png", None),
    (b"train", b"c.d/.jpg", None),
    (b"train", b"c.d/\xff.png", None),
    (b"train", b"c.d/line\n.png", None),
    (b"val", b"a/2.x.png", None),
    (b"", b"README.md", None),
]


def test_masks_are_matched_to_images_by_name(spark: SparkSession) -> None:
    entries, masks = listed(spark, IMAGES, folder=b"/i/"), listed(spark, MASKS, folder=b"/m/")
    found = entries.transform(attach, companions=masks, what="mask")
    assert found.columns == entries.columns
    got = {
        (bytes(row.or_split), bytes(row.path)): (
            row.reason,
            row.label_place and bytes(row.label_place),
            row.label_bytes,
        )
        for row in found.collect()
    }
    missing = ("no mask: no file of the same name", None, None)
    assert got == {
        (b"train", b"a/1.jpg"): (None, b"/m/train/a/1.png", 7),
        (b"train", b"a/2.x.JPEG"): (None, b"/m/train/a/2.x.png", 9),
        (b"val", b"a/1.jpg"): (None, b"/m/val/a/1.png", 7),
        (b"train", b"b/1.jpg"): missing,
        (b"train", b"b/2.jpg"): ("two masks", None, None),
        (b"train", b"b/3.jpg"): ("bad mask: broken link: it leads nowhere", None, None),
        (b"train", b"b/pipe.jpg"): ("not a regular file: a pipe", None, None),
        (b"train", b"c.d/no-extension"): (None, b"/m/train/c.d/no-extension.png", 20),
        (b"train", b"c.d/.jpg"): (None, b"/m/train/c.d/.jpg", 8),
        (b"train", b"c.d/\xff.jpg"): (None, b"/m/train/c.d/\xff.png", 9),
        (b"train", b"c.d/\xfe.jpg"): missing,
        (b"train", b"c.d/line\n.jpg"): (None, b"/m/train/c.d/line\n.png", 13),
    }
    names = masks.transform(unmatched, entries=entries).collect()
    assert sorted(row.name for row in names) == ["README.md", "val/a/2.x.png"]


def test_arrays_beside_images_are_not_listed_as_images(spark: SparkSession) -> None:
    names: list[tuple[bytes, bytes, str | None]] = [
        (b"", name, None) for name in (b"a.jpg", b"a.npy", b"b.jpg", b"c.NPY")
    ]
    images, found = split_arrays(listed(spark, names, folder=b"/i/"))
    rows = images.transform(attach, companions=found, what="array").orderBy("path").collect()
    assert [(bytes(row.path), row.label_place and bytes(row.label_place), row.reason) for row in rows] == [
        (b"a.jpg", b"/i//a.npy", None),
        (b"b.jpg", None, "no array: no file of the same name"),
    ]
    assert [row.name for row in found.transform(unmatched, entries=images).collect()] == ["c.NPY"]
