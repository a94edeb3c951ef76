"""The listed images of a source have the classes that its labels mean."""

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
    assert (images.counts.classes, images.counts.files, images.counts.rejected) == ({"2", "10"}, 5, 2)
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
    assert (images.listing.order, images.counts.classes) == (("cat", "ant", "bee"), {"cat", "ant", "bee"})
    images, rows = _listed(spark, replace(plan, class_names="number"))
    assert rows == {"a": ("2", None), "b": ("0", None)}
    assert (images.listing.order, images.counts.classes) == ((), {"0", "2"})
    with pytest.raises(SourceError, match=r"Wanted labels from 0 to 2, for the class names .* Found: '-1'"):
        _listed(spark, replace(plan, no_label=None))
