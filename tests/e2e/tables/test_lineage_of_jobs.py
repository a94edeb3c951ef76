"""What jobs register, and the lineage of it: from a real table, its splits, shards and a model."""

import json
import logging
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import Entry
from etl.catalog.drawing import as_svg, as_text
from etl.catalog.lineage import Tracer
from etl.catalog.products import product_at, register_product
from etl.errors import TableError
from etl.shards.plan import ShardPlan
from etl.splits.plan import SplitPlan
from formats import OpenSplit, open_split
from imagestrata.cli import main
from jobs import shard, split
from schemas import TableName, image_id
from schemas.feature_sources import Labels
from schemas.features import FeatureView
from schemas.models import SUFFIX
from schemas.tables import create_history, history_of
from tests.support.features import ingest, tables_of
from tests.support.trees import picture, plant


def write_model(place: Path, folder: OpenSplit) -> None:
    """A checkpoint and its record, as train.py writes them."""
    place.write_bytes(b"weights")
    cache = place.parent / "opened"
    training, validation = (loader.open_split(folder.address, index=index, cache=cache) for index in (0, 1))
    loader.record_model(place, training=training, validation=validation, arch="resnet18", epochs=3, epoch=3)


def test_what_jobs_make_is_registered_and_can_be_followed_back_and_forward(
    spark: SparkSession,
    control: Control,
    keyspace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tree = plant(tmp_path / "tree", {f"{name}/{seed}.png": picture(seed) for seed in range(6) for name in "ab"})
    ingest(spark, tree, keyspace)
    metadata, place, shards, model = (
        TableName(keyspace, "metadata"), tmp_path / "split", tmp_path / "shards", tmp_path / "model.pt"
    )  # fmt: skip
    plan = SplitPlan(**tables_of(keyspace), out=str(place))
    split.run(spark, plan=replace(plan, metadata_out=str(tmp_path / "rows")))
    where = ["--host", ",".join(control.cluster.hosts), "--port", str(control.cluster.port)]
    assert main(["registry", "add", str(place), *where]) == 0  # the same split: registered once
    shard.run(spark, plan=ShardPlan(split=str(place), index=0, out=str(shards), maxsize=10_240))
    folder = open_split(place)
    write_model(model, folder)
    product = product_at(str(model))
    assert product is not None
    assert register_product(control, product).title == f"{model}@v1"
    made = {one.kind: one for one in registry.everything(control, keyspace=keyspace)}
    assert [(kind, one.version) for kind, one in made.items()] == [("model", 1), ("shard set", 1), ("split", 1)]
    document = json.loads(made["split"].document)
    assert (document["address"], document["metadata_table"]) == (str(place), str(metadata))
    assert (document["fingerprint"], document["sequence"]) == ([one.fingerprint for one in folder.manifest.splits], 1)

    # A copy has the same fingerprints: the model was trained on the one whose address its record has.
    copy = str(shutil.copytree(place, tmp_path / "copy"))
    assert main(["registry", "add", copy, *where]) == 0

    # Back from the checkpoint, and forward from the split.
    tracer = Tracer(control, keyspace=keyspace)
    back = tracer.of_product(product)
    assert {(edge.source, edge.target, edge.text) for edge in back.edges} == {
        (f"run {metadata}#1", f"table {metadata}", ""),
        (f"table {metadata}", f"split {place}@v1", "at run 1 or before"),
        (f"split {place}@v1", f"model {model}@v1", "training: split 0"),
        (f"split {place}@v1", f"model {model}@v1", "validation: split 1"),
    }
    control.execute(f"DELETE FROM {keyspace}.registry WHERE kind = 'split' AND name = ?", (copy,))
    of_split = product_at(str(place))
    assert of_split is not None
    assert f"shard set {shards}@v1" in {edge.target for edge in tracer.of_product(of_split).edges}

    # The versions of labels and features that a split was made with, and their sources.
    view = FeatureView(
        name="label", version=2, fields={"label": "int"}, source=Labels("new.csv"), digest="0" * 64, sequence=3
    )
    kind = registry.label_views_of(metadata)
    registry.register(control, Entry(kind=kind, name="label", version=2, document=view.to_json()), keyspace=keyspace)
    with_views = {**of_split.content, "features": ["sharpness@v2"], "label_view": "label@v2"}
    seen = Tracer(control, keyspace=keyspace).of_product(replace(of_split, content=with_views, fingerprint=("f" * 64,)))
    assert "  label view label@v2: labels:new.csv" in as_text(seen)
    assert "  feature view sharpness@v2: not registered" in as_text(seen)
    assert as_svg(seen).count("<rect") == 1 + len(seen.nodes)

    # An image of training is in the split, the shards and the model; one of validation is not in the shards.
    ids = {row: bytes(one) for row, one in enumerate(folder.rows(0, cache=tmp_path / "cache").ids)}
    for row, image in ids.items():
        found = tracer.of_image(UUID(bytes=image), metadata=metadata)
        texts = {edge.target: edge.text for edge in found.edges}
        assert f"split 0, position {row}, label" in texts[f"split {place}@v1"]
        assert f"sample {row:09}" in texts[f"shard set {shards}@v1"]
        assert {edge.text for edge in found.edges if edge.target == f"model {model}@v1"} == {"training"}
        assert not found.unknown
    other = bytes(folder.rows(1, cache=tmp_path / "cache").ids[0])
    found = tracer.of_image(UUID(bytes=other), metadata=metadata)
    assert f"shard set {shards}@v1" not in found.nodes
    assert {edge.text for edge in found.edges if edge.target == f"model {model}@v1"} == {"validation"}
    path = found.subject.details["path"]
    assert image_id(keyspace, b"", path.encode()).bytes == other
    assert found.subject.details["source"].endswith(str(tree))
    assert as_svg(found).count("<rect") == 1 + len(found.nodes)

    # The image is deleted: the history says when and why, and the split still holds it.
    control.define(create_history(metadata))
    insert = f"INSERT INTO {history_of(metadata).quoted} (id, until, since, kind, reason, at) VALUES (?, ?, ?, ?, ?, ?)"
    control.execute(insert, (UUID(bytes=other), 2, 1, "deleted", "asked to", datetime(2026, 11, 24, tzinfo=UTC)))
    control.execute(f"DELETE FROM {metadata.quoted} WHERE id = ?", (UUID(bytes=other),))
    assert main(["lineage", path, "-m", str(metadata), *where]) == 0
    out = capsys.readouterr().out
    assert "deleted by run 2, 2026-11-24 00:00:00 UTC: asked to" in out
    assert f"split {place}@v1: split 1, position 0" in out
    with pytest.raises(TableError, match="no such image, and no split has it"):
        tracer.of_image(UUID(int=0), metadata=metadata)
    assert main(["lineage", "a/none.png", "-m", str(metadata), *where]) == 1
    assert "nothing of this kind at a/none.png" in capsys.readouterr().err

    # Other files at the address are not the registered split: nothing is said about them.
    again = SplitPlan(metadata_in=str(tmp_path / "rows"), out=str(place), overwrite=True, seed=9)
    split.run(spark, plan=again)
    versions = registry.entries(control, keyspace=keyspace, kind="split", name=str(place))
    assert [one.version for one in versions] == [2, 1]
    lines = Tracer(control, keyspace=keyspace).of_image(UUID(bytes=ids[0]), metadata=metadata).unknown
    assert f"split {place}@v1: its files were replaced: they have other fingerprints" in lines
    assert any(line.startswith(f"model {model}@v1: training used {place}: its files were replaced") for line in lines)
    assert "not known" in as_text(Tracer(control, keyspace=keyspace).of_image(UUID(bytes=ids[0]), metadata=metadata))

    # A checkpoint without its record is found by its SHA-256; with the record of another one it is refused.
    Path(f"{model}{SUFFIX}").rename(tmp_path / "aside")
    assert main(["lineage", str(model), "-k", keyspace, "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)["subject"] == f"model {model}@v1"
    (tmp_path / "aside").rename(f"{model}{SUFFIX}")
    model.write_bytes(b"other weights")
    assert main(["lineage", str(model), *where]) == 1
    assert "Use the checkpoint and the record of the same training" in capsys.readouterr().err

    # The registry cannot be used: the job is done, and says how to register its split.
    control.define(f"DROP TABLE {keyspace}.registry")
    control.define(f"CREATE TABLE {keyspace}.registry (kind text PRIMARY KEY)")
    with caplog.at_level(logging.WARNING, logger="imagestrata.registry"):
        assert split.run(spark, plan=SplitPlan(metadata_in=str(tmp_path / "rows"), out=str(tmp_path / "late"))).rows
    assert f"Register it later: imagestrata registry add {tmp_path / 'late'}" in caplog.text
