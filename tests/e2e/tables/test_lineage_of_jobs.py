"""What jobs register, and the lineage of it: from a real table, its splits, shards and a model."""

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from etl.catalog.products import Product, product_at, register_product
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
from tests.support.services import fresh_name
from tests.support.trees import picture, plant


@dataclass(frozen=True, kw_only=True)
class Made:
    """A table of 12 images, a split of it, shards of its split 0, and a registered model; later tests replace some."""

    control: Control
    metadata: TableName
    rows: str
    split: str
    shards: str
    model: Path
    opened: OpenSplit

    @property
    def where(self) -> list[str]:
        """The options of commands that use the tables."""
        cluster = self.control.cluster
        return ["--host", ",".join(cluster.hosts), "--port", str(cluster.port)]

    @property
    def tracer(self) -> Tracer:
        """What follows products of the keyspace."""
        return Tracer(self.control, keyspace=self.metadata.keyspace)

    def product(self, place: str | Path) -> Product:
        """The split, shards or model at a place."""
        found = product_at(str(place))
        assert found is not None
        return found

    def images(self, index: int) -> list[UUID]:
        """The images of a split, by position."""
        return [UUID(bytes=bytes(one)) for one in self.opened.rows(index, cache=self.model.parent / "cache").ids]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """What jobs make, and a model as train.py records it."""
    place, keyspace = tmp_path_factory.mktemp("lineage"), fresh_name("lineage")
    tree = plant(place / "tree", {f"{name}/{seed}.png": picture(seed) for seed in range(6) for name in "ab"})
    ingest(spark, tree, keyspace)
    rows, out, shards, model = (str(place / name) for name in ("rows", "split", "shards", "model.pt"))
    split.run(spark, plan=SplitPlan(**tables_of(keyspace), out=out, metadata_out=rows))
    shard.run(spark, plan=ShardPlan(split=out, index=0, out=shards, maxsize=10_240))
    Path(model).write_bytes(b"weights")
    training, validation = (loader.open_split(out, index=index, cache=place / "opened") for index in (0, 1))
    loader.record_model(model, training=training, validation=validation, arch="resnet18", epochs=3, epoch=3)
    with Control.from_spark(spark) as control:
        made = Made(
            control=control,
            metadata=TableName(keyspace, "metadata"),
            rows=rows,
            split=out,
            shards=shards,
            model=Path(model),
            opened=open_split(out),
        )
        assert register_product(control, made.product(model)).title == f"{model}@v1"
        yield made


def test_what_jobs_make_is_registered_once(made: Made) -> None:
    assert main(["registry", "add", made.split, *made.where]) == 0  # the job has registered it
    entries = {one.kind: one for one in registry.everything(made.control, keyspace=made.metadata.keyspace)}
    assert [(kind, one.version) for kind, one in entries.items()] == [("model", 1), ("shard set", 1), ("split", 1)]
    document = json.loads(entries["split"].document)
    assert (document["address"], document["metadata_table"]) == (made.split, str(made.metadata))
    prints = [one.fingerprint for one in made.opened.manifest.splits]
    assert (document["fingerprint"], document["sequence"]) == (prints, 1)


def test_a_model_is_followed_back_to_the_split_of_its_record_and_not_to_a_copy(made: Made, tmp_path: Path) -> None:
    copy = str(shutil.copytree(made.split, tmp_path / "copy"))  # with the same fingerprints
    assert main(["registry", "add", copy, *made.where]) == 0
    back = made.tracer.of_product(made.product(made.model))
    assert {(edge.source, edge.target, edge.text) for edge in back.edges} == {
        (f"run {made.metadata}#1", f"table {made.metadata}", ""),
        (f"table {made.metadata}", f"split {made.split}@v1", "at run 1 or before"),
        (f"split {made.split}@v1", f"model {made.model}@v1", "training: split 0"),
        (f"split {made.split}@v1", f"model {made.model}@v1", "validation: split 1"),
    }
    made.control.execute(f"DELETE FROM {made.metadata.keyspace}.registry WHERE kind = 'split' AND name = ?", (copy,))


def test_a_split_leads_to_its_shards_and_to_the_versions_of_labels_and_features(made: Made) -> None:
    of_split = made.product(made.split)
    assert f"shard set {made.shards}@v1" in {edge.target for edge in made.tracer.of_product(of_split).edges}
    view = FeatureView(
        name="label", version=2, fields={"label": "int"}, source=Labels("new.csv"), digest="0" * 64, sequence=3
    )
    entry = Entry(kind=registry.label_views_of(made.metadata), name="label", version=2, document=view.to_json())
    registry.register(made.control, entry, keyspace=made.metadata.keyspace)
    with_views = {**of_split.content, "features": ["sharpness@v2"], "label_view": "label@v2"}
    seen = made.tracer.of_product(replace(of_split, content=with_views, fingerprint=("f" * 64,)))
    assert "  label view label@v2: labels:new.csv" in as_text(seen)
    assert "  feature view sharpness@v2: not registered" in as_text(seen)
    assert as_svg(seen).count("<rect") == 1 + len(seen.nodes)


def test_an_image_is_found_in_the_split_the_shards_and_the_model_that_have_it(made: Made) -> None:
    for row, image in enumerate(made.images(0)):
        found = made.tracer.of_image(image, metadata=made.metadata)
        texts = {edge.target: edge.text for edge in found.edges}
        assert f"split 0, position {row}, label" in texts[f"split {made.split}@v1"]
        assert f"sample {row:09}" in texts[f"shard set {made.shards}@v1"]
        assert {edge.text for edge in found.edges if edge.target == f"model {made.model}@v1"} == {"training"}
        assert not found.unknown
    other = made.images(1)[0]
    found = made.tracer.of_image(other, metadata=made.metadata)
    assert f"shard set {made.shards}@v1" not in found.nodes
    assert {edge.text for edge in found.edges if edge.target == f"model {made.model}@v1"} == {"validation"}
    assert image_id(made.metadata.keyspace, b"", found.subject.details["path"].encode()) == other
    assert found.subject.details["source"].endswith(str(made.model.with_name("tree")))
    assert as_svg(found).count("<rect") == 1 + len(found.nodes)


def test_a_deleted_image_is_found_with_time_and_reason(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    control, metadata, image = made.control, made.metadata, made.images(1)[0]
    path = made.tracer.of_image(image, metadata=metadata).subject.details["path"]
    control.define(create_history(metadata))
    insert = f"INSERT INTO {history_of(metadata).quoted} (id, until, since, kind, reason, at) VALUES (?, ?, ?, ?, ?, ?)"
    control.execute(insert, (image, 2, 1, "deleted", "asked to", datetime(2026, 11, 24, tzinfo=UTC)))
    control.execute(f"DELETE FROM {metadata.quoted} WHERE id = ?", (image,))
    assert main(["lineage", path, "-m", str(metadata), *made.where]) == 0
    out = capsys.readouterr().out
    assert "deleted by run 2, 2026-11-24 00:00:00 UTC: asked to" in out
    assert f"split {made.split}@v1: split 1, position 0" in out


def test_what_does_not_exist_has_no_lineage(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TableError, match="no such image, and no split has it"):
        made.tracer.of_image(UUID(int=0), metadata=made.metadata)
    assert main(["lineage", "a/none.png", "-m", str(made.metadata), *made.where]) == 1
    assert "nothing of this kind at a/none.png" in capsys.readouterr().err


def test_nothing_is_said_of_a_split_whose_files_were_replaced(made: Made, spark: SparkSession) -> None:
    image = made.images(0)[0]
    split.run(spark, plan=SplitPlan(metadata_in=made.rows, out=made.split, overwrite=True, seed=9))
    versions = registry.entries(made.control, keyspace=made.metadata.keyspace, kind="split", name=made.split)
    assert [one.version for one in versions] == [2, 1]
    found = made.tracer.of_image(image, metadata=made.metadata)
    assert f"split {made.split}@v1: its files were replaced: they have other fingerprints" in found.unknown
    lost = f"model {made.model}@v1: training used {made.split}: its files were replaced"
    assert any(line.startswith(lost) for line in found.unknown)
    assert "not known" in as_text(found)


def test_a_checkpoint_is_found_by_its_hash_and_refused_with_the_record_of_another(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, record = str(shutil.copy(made.model, tmp_path / "model.pt")), Path(f"{made.model}{SUFFIX}")
    assert main(["lineage", model, "-k", made.metadata.keyspace, "--json", *made.where]) == 0
    assert json.loads(capsys.readouterr().out)["subject"] == f"model {made.model}@v1"
    shutil.copy(record, f"{model}{SUFFIX}")
    Path(model).write_bytes(b"other weights")
    assert main(["lineage", model, *made.where]) == 1
    assert "Use the checkpoint and the record of the same training" in capsys.readouterr().err


def test_a_split_that_cannot_be_registered_is_made_and_says_how_to_register_it(
    made: Made, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made.control.define(f"DROP TABLE {made.metadata.keyspace}.registry")
    made.control.define(f"CREATE TABLE {made.metadata.keyspace}.registry (kind text PRIMARY KEY)")
    with caplog.at_level(logging.WARNING, logger="imagestrata.registry"):
        assert split.run(spark, plan=SplitPlan(metadata_in=made.rows, out=str(tmp_path / "late"))).rows
    assert f"Register it later: imagestrata registry add {tmp_path / 'late'}" in caplog.text
