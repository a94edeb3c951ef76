"""Splits by features: conditions, strata and groups, and images without values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import TableError
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from formats import open_split
from schemas import image_id
from schemas.features import ViewName
from tests.support.features import FUNCTIONS, featurize, ingest, tables_of
from tests.support.trees import picture, plant


def plan_of(keyspace: str, out: Path, **options: Any) -> SplitPlan:
    return SplitPlan(**tables_of(keyspace), out=str(out), **options)


def test_splits_choose_by_features_of_the_bytes_that_images_have_now(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    tree = plant(tmp_path / "tree", {f"a/{seed}.png": picture(seed) for seed in range(8)})
    ingest(spark, tree, keyspace)
    plan = plan_of(keyspace, tmp_path / "split", where="red >= 4", ratios=(1,))
    with pytest.raises(TableError, match=r"red"):
        splitting.run(spark, plan=plan)
    featurize(spark, keyspace, f"red={FUNCTIONS}:redness", "brightness")
    report = splitting.run(spark, plan=plan)
    folder = open_split(tmp_path / "split")
    assert folder.manifest.features == ("red@v1",)
    ids = {bytes(one) for one in folder.rows(0, cache=tmp_path / "cache").ids}
    assert ids == {image_id(keyspace, b"", f"a/{seed}.png".encode()).bytes for seed in range(4, 8)}
    assert not [line for line in report.warnings if "red" in line]
    plant(tree, {"a/0.png": picture(200)})
    ingest(spark, tree, keyspace)
    again = replace(plan, out=str(tmp_path / "again"))
    with pytest.raises(TableError, match=r"Found: 1 images without red@v1\. Compute them: .* --features red@v1"):
        splitting.run(spark, plan=again)
    featurize(spark, keyspace, "red")
    splitting.run(spark, plan=again)
    assert open_split(tmp_path / "again").manifest.splits[0].rows == 5
    with pytest.raises(TableError, match=r"Wanted values of red@v7 .* Found: none"):
        splitting.run(spark, plan=replace(plan, out=str(tmp_path / "x"), features=(ViewName("red", 7),)))
