"""The same images give the same tables, splits and shards on every version of Spark: literal fingerprints.

`make test` runs this file with Spark 4, and `make test-spark3` with Spark 3.5. A value here changes only if a
release is to write other splits or shards from the same images.
"""

import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.splits.plan import SplitPlan
from jobs import ingest, shard, split
from tests.support.shard_checks import contents
from tests.support.shard_jobs import plan as plan_of_shards
from tests.support.split_caches import ids, write_cache
from tests.support.trees import PlanOf, picture, plant

CLASSES = ("ant", "bee é", 'c" d,e')
# BMP, because every version of Pillow writes the same bytes.
PICTURES = {
    f"{name}/{number} ü.bmp": picture(100 * rank + number, kind="BMP", size=(8 + number, 9 + rank))
    for rank, name in enumerate(CLASSES)
    for number in range(9)
}
ROWS = 500
COLUMNS: dict[str, list[Any]] = {
    "id": ids(ROWS, name="versions"),
    "label": [min(number % 7, number % 3) for number in range(ROWS)],
    "group_id": [None if number % 11 == 0 else f"patient {number // 5}" for number in range(ROWS)],
    "site": [f"site {number % 4}" for number in range(ROWS)],
}


def test_the_pictures_of_this_test_are_always_the_same() -> None:
    digest = hashlib.sha256(b"".join(PICTURES.values())).hexdigest()
    assert digest == "b4a1dba0635544969d625621cf7039727c40556ef4cc2aecc9fe8c719d2dd5a2"


def test_tables_have_the_same_fingerprint(spark: SparkSession, plan_of: PlanOf, tmp_path: Path) -> None:
    root = plant(tmp_path / "root", {f"train/{path}": data for path, data in PICTURES.items()})
    report = ingest.run(spark, plan=plan_of(root, splits=("train",), dataset="versions"))
    assert report.images == len(PICTURES)
    assert report.fingerprint == "1a80d903f7aae4be79fb87be6b87c7cab4670337765a93abc3f747abc65ac6bf"


@pytest.mark.parametrize(
    ("options", "fingerprints"),
    [
        ({}, ["3641220c6375", "c1a90a044bc4", "74f70ab4c75c"]),
        ({"has_position": False}, ["68be1f5e0ba0", "71440276a931", "c9d5bd50b301"]),
        ({"balance": "uniform"}, ["8fc4957f4a60", "57b50aea7da6", "80f114e5182d"]),
        ({"group_column": "group_id"}, ["367c347a27c2", "d2d2bd94c7a0", "a873ff572317"]),
        ({"stratify": ("label", "site")}, ["86d0b1a7f9b9", "4ed3cd41a503", "51d94fe16e49"]),
        ({"where": "site <> 'site 2' AND label < 2", "limit": 100}, ["b8bf2a924dee", "b0395e6128f3", "2763ebba1cd7"]),
    ],
    ids=["plain", "without positions", "balanced", "groups", "two columns", "a condition"],
)
def test_splits_have_the_same_fingerprints(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], fingerprints: list[str]
) -> None:
    cache = write_cache(tmp_path / "cache", COLUMNS, files=3)
    given: dict[str, Any] = {"ratios": (Fraction(7), Fraction(2), Fraction(1)), "seed": 7, "has_leak_check": False}
    plan = SplitPlan(metadata_in=cache, out=str(tmp_path / "split"), **(given | options))
    assert [one[:12] for one in split.run(spark, plan=plan).fingerprints] == fingerprints


def test_shards_have_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    root = plant(tmp_path / "root", PICTURES)
    shard.run(spark, plan=plan_of_shards(root, tmp_path / "out", maxsize=20_000, seed=7))
    digest = hashlib.sha256()
    for name, data in sorted(contents(tmp_path / "out").items()):
        digest.update(name.encode() + data)
    assert digest.hexdigest() == "38dea65b7479bc16ba7b0dccb4a0087ff1d8ca57db2d1615b7e431b6750462d5"
