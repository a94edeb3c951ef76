"""The listed images of a source have the classes that its labels mean."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.ingest.listed_images import ListedImages
from etl.sources.plan import SourcePlan
from tests.support.archives import tar


def _listed(spark: SparkSession, plan: SourcePlan) -> tuple[ListedImages, dict[str, tuple[str | None, str | None]]]:
    images = ListedImages.of(spark, plan, dataset="d", keep=lambda frame: frame)
    rows = {bytes(row.path).decode(): (row.or_label, row.reason) for row in images.entries.collect()}
    assert rows == {bytes(row.path).decode(): (row.or_label, row.reason) for row in images.without(None).collect()}
    return images, rows


def test_labels_become_classes_and_images_without_one_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    labels = ["02", "10", "-1", " 2", None, "nan"]
    table = pa.table({"image": [b"x"] * 6, "path": [*"abcdef"], "label": labels})
    pq.write_table(table, tmp_path / "t.parquet")
    plan = SourcePlan(address=str(tmp_path / "t.parquet"), path_column="path", no_label="-1")
    images, rows = _listed(spark, plan)
    lost = (None, "no label")
    assert rows == {"a": ("2", None), "b": ("10", None), "d": ("2", None), "e": lost, "f": lost}
    assert (sorted(images.counts.classes), images.counts.files, images.counts.rejected) == (["10", "2"], 5, 2)
    assert images.source.report_lines() == ["1 image with the label -1 left out, as --no-label says"]
    with pytest.raises(SourceError, match=r"because all labels are numbers\. Found: '-1'\. .* --no-label -1\. "):
        _listed(spark, replace(plan, no_label=None))
    pq.write_table(pa.table({"image": [b"x"], "label": [-1]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"Found: all 1 have the label of --no-label -1\. Set --label-type none"):
        _listed(spark, SourcePlan(address=plan.address, no_label="-1"))


@pytest.mark.parametrize("kind", ["images", "labels"])
def test_classes_have_the_names_of_the_schema(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    features = {"info": {"features": {"label": {"names": ["cat", "ant", "bee"], "_type": "ClassLabel"}}}}
    table = {"path": ["a", "b", "c"], "label": pa.array([2, 0, -1], pa.int64())}
    options: dict[str, Any]
    if kind == "images":
        table["image"] = [b"x"] * 3
        options = {"address": str(tmp_path / "t.parquet"), "path_column": "path"}
    else:
        (tmp_path / "tree").mkdir()
        for name in ("a", "b", "c"):
            (tmp_path / "tree" / name).write_bytes(b"x")
        options = {"address": str(tmp_path / "tree"), "labels": str(tmp_path / "t.parquet")}
    schema = pa.table(table).schema.with_metadata({"huggingface": json.dumps(features)})
    pq.write_table(pa.table(table, schema=schema), tmp_path / "t.parquet")
    plan = SourcePlan(**options, no_label="-1")
    images, rows = _listed(spark, plan)
    assert rows == {"a": ("bee", None), "b": ("cat", None)}
    assert images.listing.order == ("cat", "ant", "bee")
    assert sorted(images.counts.classes) == ["ant", "bee", "cat"]
    images, rows = _listed(spark, replace(plan, class_names="number"))
    assert rows == {"a": ("2", None), "b": ("0", None)}
    assert (list(images.listing.order), sorted(images.counts.classes)) == ([], ["0", "2"])
    with pytest.raises(SourceError, match=r"Wanted labels from 0 to 2, for the class names .* Found: '-1'"):
        _listed(spark, replace(plan, no_label=None))


def test_archives_that_may_have_more_images_are_named(spark: SparkSession, tmp_path: Path) -> None:
    whole = tar({f"{name}/{number}.jpg": b"x" for name in "ab" for number in range(2)})
    twice = tar({"a/0.jpg": b"x"})[:1024] + whole
    truncated, followed = (
        "truncated: the archive ends without its end mark",
        "unread: another archive follows the end mark",
    )
    for name, data, files, fault in [
        ("cut.tar", whole[: 3 * 1024], 3, f"{truncated} (@3072)"),
        ("two.tar", whole + whole, 4, f"{followed} of this one (@{len(whole)})"),
        ("twice.tar", twice, 4, "twice: a later member has this name (a/0.jpg@512)"),
        ("two.tar.gz", gzip.compress(whole) + gzip.compress(whole), 4, f"{followed} of this one (@{len(whole)})"),
        ("inner.tar", tar({"a.tar": whole[: 3 * 1024], "b.tar": whole}), 7, f"{truncated} (a/@3584)"),
    ]:
        place = tmp_path / name
        place.write_bytes(data)
        images, _ = _listed(spark, SourcePlan(address=str(place)))
        assert (images.counts.files - images.counts.rejected, images.counts.rejected) == (files, 1)
        assert images.source.report_lines() == [f"{place}: {fault}"] == [*images.faults]
    for number in range(7):
        (tmp_path / f"x-{number}.tar").write_bytes(tar({f"{number}.jpg": b"x", f"{number}.cls": b"1"})[:2048])
    images, _ = _listed(spark, SourcePlan(address=str(tmp_path / "x-*.tar")))
    assert images.faults[0] == f"{tmp_path}/x-0.tar: {truncated} (x-0/@2048)"
    assert images.faults[5:] == ("more archives have faults",)
