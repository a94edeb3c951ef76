"""Images are deleted on request: from all tables, with a record, for good, and also after an interruption."""

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.catalog.lineage import Tracer
from etl.catalog.products import product_at, register_product
from etl.deleting import deletion
from etl.deleting.plan import DeletePlan
from etl.errors import ConflictError, SourceError, TableError
from etl.ingest.plan import IngestPlan
from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.tables import removal
from etl.verify.plan import VerifyPlan
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import delete as job
from jobs import ingest as ingest_job
from jobs import verify as verify_job
from schemas import image_id
from tests.support.features import featurize, tables_of
from tests.support.pictures import texture
from tests.support.trees import plant

NAMES = [f"{name}/{i}.png" for name in ("anna", "bert") for i in range(8)]
OF_ANNA = "path LIKE 'anna/%' AND brightness >= 0"


def rows(control: Control, table: str) -> dict[uuid.UUID, Any]:
    return {row.id: row for row in control.execute(f"SELECT * FROM {table}")}


def test_deleted_images_are_gone_from_everywhere_and_stay_away(
    spark: SparkSession,
    control: Control,
    cassandra: Cassandra,
    keyspace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pictures = {name: texture(number) for number, name in enumerate(NAMES)}
    pictures["bert/0.png"] = pictures["anna/0.png"]
    tables = tables_of(keyspace)
    ingest = IngestPlan(source=SourcePlan(address=str(plant(tmp_path / "tree", pictures))), dataset="d", **tables)
    ingest_job.run(spark, plan=ingest)
    ids = {name: image_id("d", b"", name.encode()) for name in NAMES}
    deleted = {one for name, one in ids.items() if name.startswith("anna")}
    featurize(spark, keyspace, "brightness")
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\nanna/1.png,bert\nbert/1.png,anna\n")
    relabelling.run(spark, plan=RelabelPlan(**tables, labels=str(labels)))
    folder, cache = str(tmp_path / "split"), str(tmp_path / "cache")
    splitting.run(spark, plan=SplitPlan(**tables, out=folder, ratios=(3, 1), metadata_out=cache))
    old = str(shutil.copytree(cache, tmp_path / "old"))
    prints = [part.fingerprint for part in open_split(folder).manifest.splits]
    document = json.dumps({"address": folder, "metadata_table": f"{keyspace}.metadata", "fingerprint": prints})
    pinned = registry.Entry(kind="split", name="s", version=1, document=document, tags={"pinned": "true"})
    registry.register(control, pinned, keyspace=keyspace)
    model = tmp_path / "model.pt"
    model.write_bytes(b"weights")
    parts = [loader.open_split(folder, index=index, cache=tmp_path / "opened") for index in (0, 1)]
    loader.record_model(model, training=parts[0], validation=parts[1])
    product = product_at(str(model))
    assert product is not None
    register_product(control, product)
    before = {name: rows(control, f"{keyspace}.{name}") for name in ("metadata", "data")}

    plan = DeletePlan(**tables, where=OF_ANNA, reason=" request 17 ")
    would = job.estimate(spark, plan=plan)
    assert (would.images, would.of, would.confirm, would.splits, would.sequence) == (8, 16, 8, {folder: 8}, None)
    assert "nothing was deleted; to delete them, add --count 8" in str(would)

    def seen(images: set[uuid.UUID]) -> dict[str, int]:
        of_parts = [sum(uuid.UUID(bytes=one.tobytes()) in images for one in part.ids) for part in parts]
        uses = zip((f"{model}@v1 (training)", f"{model}@v1 (validation)"), of_parts, strict=True)
        return {name: count for name, count in uses if count}

    assert would.models == seen(deleted)
    with pytest.raises(ConflictError, match=rf"Found: {folder} has 8 of these images\. Nothing was deleted\. --force"):
        job.run(spark, plan=replace(plan, count=8))
    forced = replace(plan, force=True, caches=(cache,))
    with pytest.raises(SourceError, match=r"Found: 1 ids that no image has or had: 0000"):
        job.run(spark, plan=replace(forced, where=None, ids=(uuid.UUID(int=1), ids["anna/0.png"])))
    assert {name: rows(control, f"{keyspace}.{name}") for name in before} == before
    assert control.columns(replace(tables["metadata_table"], table="metadata_history")) is None

    with monkeypatch.context() as patch:  # after the record, and after half of the images
        patch.setattr(deletion, "remove", lambda ids, **more: removal.remove(ids.limit(4), **more))
        with pytest.raises(TableError, match="Run this again"):
            job.run(spark, plan=replace(forced, count=8))
    left = deleted & rows(control, f"{keyspace}.metadata").keys()
    assert len(left) == 4
    half = splitting.run(spark, plan=SplitPlan(**tables, out=str(tmp_path / "half"), ratios=(1,)))
    told = "left out: 4 images recorded as deleted but still there, because delete.py was interrupted. Run it again"
    assert told in half.warnings
    assert half.rows == [8]
    lineage = Tracer(control, keyspace=keyspace).of_image(min(left), metadata=tables["metadata_table"])
    assert "which deletes this image, was interrupted: it is still there" in str(lineage.unknown)
    control.execute(f"DELETE FROM {keyspace}.metadata_brightness_v2 WHERE id = ?", (min(left),))
    report = job.run(spark, plan=replace(forced, count=8))  # the same again
    assert report.images == len(left)
    assert "4 of them are those that an interrupted run has begun to delete" in caplog.text

    history = control.execute(f"SELECT * FROM {keyspace}.metadata_history")
    assert sorted(row.id for row in history) == sorted(deleted)
    assert {(row.kind, row.reason, row.since, row.or_label) for row in history} == {
        ("deleted", "request 17", 1, "anna")
    }
    assert {bytes(row.sha256) for row in history} == {before["metadata"][one].sha256 for one in deleted}
    assert not {"path", "group_id"} & {*history[0]._fields}
    assert {*rows(control, f"{keyspace}.metadata")} == {*ids.values()} - deleted
    data = rows(control, f"{keyspace}.data")
    assert {one for one, row in data.items() if row.data is None and row.label is None} == deleted
    assert {*rows(control, f"{keyspace}.metadata_brightness_v2")} == {*ids.values()} - deleted
    assert {*rows(control, f"{keyspace}.metadata_label")} == {ids["bert/1.png"]}
    assert (report.splits, report.models) == ({folder: len(left)}, seen(left))
    assert report.values == [f"{keyspace}.metadata_brightness_v2", f"{keyspace}.metadata_label"]
    assert {bytes(row["id"]) for row in spark.read.parquet(f"{cache}/rows").collect()} == {
        one.bytes for one in {*ids.values()} - deleted
    }

    with pytest.raises(TableError, match=r"Found: 8 of .* no longer lists them\. They were deleted after"):
        splitting.run(spark, plan=SplitPlan(metadata_in=old, out=folder + "2", ratios=(1,)))

    again = DeletePlan(**tables, ids=tuple(deleted), reason="again", caches=(cache,))
    finished = job.run(spark, plan=again)
    assert (finished.images, finished.before, finished.caches) == (0, 8, {cache: 0})
    assert len(control.execute(f"SELECT id FROM {keyspace}.metadata_history")) == 8
    verification = VerifyPlan(**tables, check="hashes")
    with_source = replace(verification, ingest=replace(ingest, create=False, overwrite=True), repair=True)
    assert verify_job.run(spark, plan=with_source).problems == {}

    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 1}
    split = loader.open_split(folder, cache=tmp_path / "opened")
    found = []
    for rank in range(2):
        options = where | {"on_missing": "skip", "max_missing": 0.0, "last_batch_policy": "FILL"}
        with loader.CassandraSource(split, rank=rank, world_size=2, **options) as source:
            batches = list(source.epoch(0))
            found.append((len(batches), {uuid.UUID(bytes=row.tobytes()) for batch in batches for row in batch.ids}))
    assert [steps for steps, _ in found] == [6, 6]
    assert not deleted & (found[0][1] | found[1][1])
    with loader.CassandraSource(split, **where) as source, pytest.raises(loader.DeletedImageError, match="deleted"):
        list(source.epoch(0))

    repeated = ingest_job.run(spark, plan=ingest)
    assert (repeated.images, repeated.deleted, repeated.quarantined) == (8, 8, 0)
    assert "8 images were deleted and left out (to ingest them: --restore-deleted)" in str(repeated)
    would_again = ingest_job.estimate(spark, plan=replace(ingest, resume=True))
    assert (would_again.already_there, would_again.deleted) == (8, 8)
    assert {*rows(control, f"{keyspace}.metadata")} == {*ids.values()} - deleted
    restored = ingest_job.run(spark, plan=replace(ingest, resume=True, restore_deleted=True))
    assert (restored.images, restored.deleted) == (8, 0)
    assert {one: bytes(row.data) for one, row in rows(control, f"{keyspace}.data").items()} == {
        one: bytes(row.data) for one, row in before["data"].items()
    }
    assert ingest_job.run(spark, plan=replace(ingest, resume=True)).deleted == 0
