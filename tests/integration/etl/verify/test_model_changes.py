"""Changes are counted from the split that a model was trained on. If that split is gone, they are not known."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

import loader
from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import SPLIT
from etl.catalog.lineage import Tracer, UsedImages
from etl.catalog.products import Product, model_at, product_at, register_product
from etl.shards.plan import ShardPlan
from etl.splits.plan import SplitPlan
from etl.verify import model_changes
from etl.verify.model_changes import ModelImages
from formats.origin import created
from jobs import ingest, shard, split
from tests.support.trees import PlanOf, picture, tree


def test_a_split_that_was_made_again_later_does_not_tell_what_has_changed(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    folder, address = tree(tmp_path / "tree", classes="ab", each=2), str(tmp_path / "split")
    plan = plan_of(folder)
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    of_split = SplitPlan(**tables, out=address, ratios=(Fraction(1),))
    ingest.run(spark, plan=plan)
    split.run(spark, plan=of_split)
    opened = loader.open_split(address, cache=tmp_path / "cache")
    images = UsedImages("training", opened.fingerprint, opened.opened.manifest.created, (address,), created())
    used = ModelImages("model", [images])
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_bytes(b"weights")
    loader.record_model(checkpoint, training=opened)
    model = register_product(control, model_at(str(checkpoint)))
    shards = str(tmp_path / "shards")
    shard.run(spark, plan=ShardPlan(source=None, split=address, out=shards))
    (folder / "train" / "a" / "0.png").write_bytes(picture(9999))
    ingest.run(spark, plan=replace(plan, overwrite=True))
    (found,) = model_changes.run(spark, plan=used).uses
    assert found.since["bytes replaced"].images == 1
    split.run(spark, plan=replace(of_split, overwrite=True))  # it has the same fingerprint
    registered = registry.entries(control, keyspace=plan.data_table.keyspace, kind=SPLIT, name=address)
    assert [one.version for one in registered] == [2, 1]
    told = model_changes.run(spark, plan=used)
    assert told.uses == []
    assert f"{address} was made again at " in told.not_known[0]
    during = ModelImages("model", [replace(images, created=created())])  # the record was written after that
    told = model_changes.run(spark, plan=during)
    assert told.uses == []
    assert f"{address} was made at " in told.not_known[0]

    tracer = Tracer(control, keyspace=plan.data_table.keyspace)
    traced = tracer.of_model(model_at(str(checkpoint)).fingerprint[0], name="model.pt")
    traced.edges += tracer.of_product(cast(Product, product_at(shards))).edges
    made = {f"model {model.title}", f"shard set {shards}@v1"}
    assert {edge.source for edge in traced.edges if edge.target in made} == {f"split {address}@v1"}
    assert not made & tracer.of_product(cast(Product, product_at(address))).nodes.keys()
