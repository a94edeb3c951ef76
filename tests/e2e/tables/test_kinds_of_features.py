"""Features of real tables from ONNX models and SQL expressions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.errors import ConflictError, FunctionError
from etl.features.computing.pictures import Picture
from etl.features.report import ViewCounts
from etl.frames import setting
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from formats import OpenSplit, open_split
from schemas import image_id
from schemas.features import ViewName
from tests.support import onnx_models
from tests.support.features import FUNCTIONS, featurize, ingest, tables_of
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.trees import plant

ANSI = "spark.sql.ansi.enabled"
IMAGES = {f"a/{seed}.png": texture(seed) for seed in range(8)}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of small images. Each test adds views of other names."""
    keyspace = fresh_name("test")
    ingest(spark, plant(tmp_path_factory.mktemp("tree"), IMAGES), keyspace)
    return keyspace


def test_onnx_models_by_file(spark: SparkSession, control: Control, tables: str, tmp_path: Path) -> None:
    model = onnx_models.channel_means(tmp_path / "model.onnx")
    report = featurize(spark, tables, f"mean=onnx:{model}", preprocess="0-1")
    assert report.views == {"mean@v1": ViewCounts(8, 0)}
    stored = {row.id: row.mean for row in control.execute(f"SELECT id, mean FROM {tables}.metadata_mean_v1")}
    for path, data in IMAGES.items():
        value = np.frombuffer(stored[image_id(tables, b"", path.encode())], "<f4")
        image = Picture(data).rgb
        side = 8 * image.width // min(image.size), 8 * image.height // min(image.size)
        assert side == (8, 8)
        np.testing.assert_allclose(value, np.asarray(image.resize((8, 8), 2), np.float64).mean((0, 1)) / 255, rtol=1e-4)
    moved = model.rename(tmp_path / "moved.onnx")
    with pytest.raises(FunctionError, match=r"model\.onnx\. Found: No such file.*write NAME=onnx:FILE"):
        featurize(spark, tables, "mean")
    assert featurize(spark, tables, f"mean=onnx:{moved}", preprocess="0-1").images == 0
    with pytest.raises(ConflictError, match=r"Found: onnx:imagenet:.*Make it a new version: mean@v2=onnx:"):
        featurize(spark, tables, f"mean=onnx:{moved}")
    onnx_models.channel_means(moved, size=4)
    with pytest.raises(ConflictError, match=r"the model has changed since then"):
        featurize(spark, tables, f"mean=onnx:{moved}", preprocess="0-1")
    moved.write_bytes(b"no model")
    for name, file, message in (
        ("none", moved, r"Wanted to load onnx:imagenet:.*Found: Wanted an ONNX model\."),
        ("elsewhere", onnx_models.with_weights_elsewhere(tmp_path / "w.onnx"), r"external_data=False"),
    ):
        with pytest.raises(FunctionError, match=message):
            featurize(spark, tables, f"{name}=onnx:{file}")
    titles = [view.title for view in registered_views(control, keyspace=tables)]
    assert [title for title in titles if title.startswith(("mean", "none", "elsewhere"))] == ["mean@v1"]


def test_on_demand_views(spark: SparkSession, control: Control, tables: str, tmp_path: Path) -> None:
    def split(out: str, **options: object) -> OpenSplit:
        plan = SplitPlan(**tables_of(tables), out=str(tmp_path / out), ratios=(1,))
        splitting.run(spark, plan=replace(plan, **options))  # type: ignore[arg-type]
        return open_split(tmp_path / out)

    red, total = f"red={FUNCTIONS}:redness", "big=sql:CASE WHEN red > 100 THEN size_width * bytes END"
    with pytest.raises(FunctionError, match=r"Found: red, size_width\. Compute a view first"):
        featurize(spark, tables, total)
    report = featurize(spark, tables, f"size,{red}", total, "bin=sql:int(red / 8)")
    assert report.on_demand == {"big@v1": ("red@v1", "size@v1"), "bin@v1": ("red@v1",)}
    assert "bin@v1: computed when it is read, from red@v1" in str(report)
    assert {
        view.title: dict(view.fields) for view in registered_views(control, keyspace=tables) if view.is_on_demand
    } == {
        "big@v1": {"big": "bigint"},
        "bin@v1": {"bin": "int"},
    }
    values = {row.id: row.red for row in control.execute(f"SELECT id, red FROM {tables}.metadata_red_v1")}
    chosen = sorted(values, key=lambda one: values[one])[4]
    limit = int(values[chosen] / 8)
    folder = split("a", where=f"bin >= {limit} AND big IS NULL OR big > 0", group_column="bin")
    wanted = {one.bytes for one in values if values[one] > 100 or int(values[one] / 8) >= limit}
    assert {bytes(one) for one in folder.rows(0, cache=tmp_path / "cache").ids} == wanted
    assert folder.manifest.features == ("big@v1", "bin@v1")
    # Another version of a view that an expression uses changes only new versions of the expression.
    featurize(spark, tables, f"red@v2={FUNCTIONS}:raises")
    assert featurize(spark, tables, "bin=sql:int(red / 8)").on_demand == {"bin@v1": ("red@v1",)}
    featurize(spark, tables, "bin@v2=sql:int(red / 8)")
    both = split("b", where=f"bin >= {limit} AND red < 1000", features=(ViewName("bin", 1),))
    assert both.manifest.features == ("bin@v1", "red@v2")
    assert both.manifest.splits[0].rows == sum(int(value / 8) >= limit for value in values.values())
    # Another session computes the same values.
    date = "date(timestamp_seconds(1000 * bytes))"
    featurize(spark, tables, f"day=sql:coalesce(size(null), 7) + 100 * datediff({date}, date('1970-01-01'))")
    days = split("utc", features=(ViewName("day"),), stratify=("label", "day"))
    with setting(spark, "spark.sql.session.timeZone", "Pacific/Kiritimati"), setting(spark, ANSI, "false"):
        same = split("far", features=(ViewName("day"),), stratify=("label", "day"))
    assert same.fingerprints == days.fingerprints
    assert [one.splits[0].fingerprints for one in same.manifest.stored_features] == [
        one.splits[0].fingerprints for one in days.manifest.stored_features
    ]
    spark.udf.register("plus_one", lambda value: value + 1, "double")
    for expression, message in (
        ("red +", r"Wanted an expression in Spark SQL for bad"),
        ("rand() * red", "changes from run to run"),
        ("current_timestamp() > '2020' AND red > 1", "changes from run to run"),
        (f"datediff(date('today'), {date}) + red", "changes from run to run"),
        ("year(ingested_at) + red", "Found: ingested_at"),
        ("plus_one(red)", "with a function that other sessions do not have"),
        ("red > ${spark.app.limit}", r"Wanted an expression in Spark SQL for bad\. Found: 'red > \${spark"),
        ("avg(red)", "needs more than the row of one image"),
        ("red > (SELECT 1)", "queries other tables"),
        ("1 + 1", "Found: no name of a column"),
        ("label + red", "Found: label"),
        ("bin + 1", "Found: bin"),
        ("bytes * 1.5", r"of type decimal.*Convert it"),
    ):
        with pytest.raises(FunctionError, match=message):
            featurize(spark, tables, f"bad=sql:{expression}")
    with pytest.raises(ConflictError, match=r"Make it a new version: --features \"bin@v3=sql:red\""):
        featurize(spark, tables, "bin=sql:red")
