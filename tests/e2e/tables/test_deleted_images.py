"""Images are deleted on request: from all tables, with a record, for good, and also after an interruption."""

import io
import json
import logging
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.catalog.lineage import Tracer
from etl.catalog.products import product_at, register_product
from etl.deleting.deletion import DeleteReport
from etl.deleting.plan import DeletePlan
from etl.errors import ConflictError, EtlError, SourceError, TableError
from etl.ingest.plan import IngestPlan
from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from etl.shards import sharding
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.tables import removal
from etl.tables.removal import remove
from etl.verify.plan import VerifyPlan
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import delete as job
from jobs import ingest as ingest_job
from jobs import verify as verify_job
from schemas import image_id
from tests.support.features import featurize, tables_of
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.trees import plant

NAMES = [f"{name}/{i}.png" for name in ("anna", "bert") for i in range(8)]
IDS = {name: image_id("d", b"", name.encode()) for name in NAMES}
ANNA = {one for name, one in IDS.items() if name.startswith("anna")}
BERT = {*IDS.values()} - ANNA


@dataclass(frozen=True, kw_only=True)
class People:
    """Tables with images of two people, and what was made of them: a split that is pinned, caches and a model."""

    control: Control
    keyspace: str
    place: Path
    ingest: IngestPlan
    plan: DeletePlan
    split: str
    cache: str
    model: str
    parts: list[loader.Split]
    before: dict[str, dict[uuid.UUID, Any]]

    @property
    def tables(self) -> dict[str, Any]:
        """The tables, as fields of plans."""
        return tables_of(self.keyspace)

    def rows(self, table: str) -> dict[uuid.UUID, Any]:
        """The rows of a table of the keyspace, by id."""
        return {row.id: row for row in self.control.execute(f"SELECT * FROM {self.keyspace}.{table}")}

    def seen(self, images: set[uuid.UUID]) -> dict[str, int]:
        """How many of these images the model has seen, in training and validation."""
        counts = [sum(uuid.UUID(bytes=one.tobytes()) in images for one in part.ids) for part in self.parts]
        uses = zip((f"{self.model}@v1 (training)", f"{self.model}@v1 (validation)"), counts, strict=True)
        return {name: count for name, count in uses if count}


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """Images, features, labels with a version, a split, a metadata cache and a model, before anything is deleted."""
    place, keyspace = tmp_path_factory.mktemp("people"), fresh_name("people")
    pictures = {name: texture(number) for number, name in enumerate(NAMES)}
    pictures["bert/0.png"] = pictures["anna/0.png"]
    tables = tables_of(keyspace)
    ingest = IngestPlan(source=SourcePlan(address=str(plant(place / "tree", pictures))), dataset="d", **tables)
    ingest_job.run(spark, plan=ingest)
    featurize(spark, keyspace, "brightness")
    labels = place / "labels.csv"
    labels.write_text("path,label\nanna/1.png,bert\nbert/1.png,anna\n")
    relabelling.run(spark, plan=RelabelPlan(**tables, labels=str(labels)))
    with pytest.MonkeyPatch.context() as patch:  # a run that is killed leaves a table of labels that no view has
        patch.setattr(relabelling, "register_view", lambda *_, **__: (_ for _ in ()).throw(EtlError("killed")))
        with pytest.raises(EtlError, match="killed"):
            relabelling.run(spark, plan=RelabelPlan(**tables, labels=str(labels), view="killed"))
    folder, cache, model = (str(place / name) for name in ("split", "cache", "model.pt"))
    splitting.run(spark, plan=SplitPlan(**tables, out=folder, ratios=(3, 1), metadata_out=cache))
    shutil.copytree(cache, place / "old")
    Path(model).write_bytes(b"weights")
    parts = [loader.open_split(folder, index=index, cache=place / "opened") for index in (0, 1)]
    loader.record_model(model, training=parts[0], validation=parts[1])
    with Control.from_spark(spark) as control:
        prints = [part.fingerprint for part in open_split(folder).manifest.splits]
        document = json.dumps({"address": folder, "metadata_table": f"{keyspace}.metadata", "fingerprint": prints})
        pinned = registry.Entry(kind="split", name="s", version=1, document=document, tags={"pinned": "true"})
        registry.register(control, pinned, keyspace=keyspace)
        product = product_at(model)
        assert product is not None
        register_product(control, product)
        made = People(
            control=control,
            keyspace=keyspace,
            place=place,
            ingest=ingest,
            plan=DeletePlan(**tables, where="path LIKE 'anna/%' AND brightness >= 0", reason=" request 17 "),
            split=folder,
            cache=cache,
            model=model,
            parts=parts,
            before={},
        )
        made.before.update({name: made.rows(name) for name in ("metadata", "data")})
        yield made


@pytest.fixture(scope="module")
def left(spark: SparkSession, people: People) -> set[uuid.UUID]:
    """The images that are still there after a run that was interrupted: after the record, and half of the images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal, "remove", lambda ids, **more: remove(ids.limit(4), **more))
        with pytest.raises(TableError, match="Run this again"):
            job.run(spark, plan=replace(people.plan, force=True, caches=(people.cache,), count=8))
    return ANNA & people.rows("metadata").keys()


@pytest.fixture(scope="module")
def deleted(spark: SparkSession, people: People, left: set[uuid.UUID]) -> tuple[DeleteReport, str]:
    """The report of the same run again, without the values of an image that the first one may have removed; its log."""
    people.control.execute(f"DELETE FROM {people.keyspace}.metadata_brightness_v2 WHERE id = ?", (min(left),))
    logging.getLogger().addHandler(handler := logging.StreamHandler(told := io.StringIO()))
    report = job.run(spark, plan=replace(people.plan, force=True, caches=(people.cache,), count=8))
    logging.getLogger().removeHandler(handler)
    return report, told.getvalue()


def test_a_plan_counts_images_splits_and_models(spark: SparkSession, people: People) -> None:
    would = job.estimate(spark, plan=people.plan)
    assert (would.images, would.of, would.confirm, would.sequence) == (8, 16, 8, None)
    assert (would.splits, would.models) == ({people.split: 8}, people.seen(ANNA))
    assert "nothing was deleted; to delete them, add --count 8" in str(would)


def test_what_a_split_needs_and_unknown_ids_are_refused_before_anything_changes(
    spark: SparkSession, people: People
) -> None:
    refused = rf"Found: {people.split} has 8 of these images\. Nothing was deleted\. --force"
    with pytest.raises(ConflictError, match=refused):
        job.run(spark, plan=replace(people.plan, count=8))
    with pytest.raises(SourceError, match=r"Found: 1 ids that no image has or had: 0000"):
        job.run(spark, plan=replace(people.plan, force=True, where=None, ids=(uuid.UUID(int=1), IDS["anna/0.png"])))
    assert {name: people.rows(name) for name in people.before} == people.before
    assert people.control.columns(replace(people.tables["metadata_table"], table="metadata_history")) is None


def test_splits_and_shards_leave_out_what_an_interrupted_run_has_recorded(
    spark: SparkSession, people: People, left: set[uuid.UUID]
) -> None:
    assert len(left) == 4
    half = splitting.run(spark, plan=SplitPlan(**people.tables, out=str(people.place / "half"), ratios=(1,)))
    told = "left out: 4 images recorded as deleted but still there, because delete.py was interrupted. Run it again"
    assert told in half.warnings
    assert half.rows == [8]
    packed = sharding.run(spark, plan=ShardPlan(**people.tables, out=str(people.place / "shards")))
    assert (packed.images, told in packed.remarks) == (8, True)
    stored = featurize(spark, people.keyspace, "brightness", offline=str(people.place / "offline")).stored
    assert [*stored.values()] == [8]
    tracer = Tracer(people.control, keyspace=people.keyspace)
    lineage = tracer.of_image(min(left), metadata=people.tables["metadata_table"])
    assert "which deletes this image, was interrupted: it is still there" in str(lineage.unknown)


def test_a_run_continues_and_reports_what_the_rest_was_used_for(
    people: People, left: set[uuid.UUID], deleted: tuple[DeleteReport, str]
) -> None:
    report, told = deleted
    assert "4 of them are those that an interrupted run has begun to delete" in told
    assert (report.images, report.splits, report.models) == (4, {people.split: 4}, people.seen(left))
    values = ("brightness_v2", "killed", "label")
    assert report.values == [f"{people.keyspace}.metadata_{name}" for name in values]


@pytest.mark.usefixtures("deleted")
def test_deleted_images_are_gone_from_all_tables_and_the_history_has_no_path(
    spark: SparkSession, people: People
) -> None:
    history = people.control.execute(f"SELECT * FROM {people.keyspace}.metadata_history")
    assert sorted(row.id for row in history) == sorted(ANNA)
    assert {(row.kind, row.reason, row.since, row.or_label) for row in history} == {
        ("deleted", "request 17", 1, "anna")
    }
    assert {bytes(row.sha256) for row in history} == {people.before["metadata"][one].sha256 for one in ANNA}
    assert not {"path", "group_id"} & {*history[0]._fields}
    assert {*people.rows("metadata")} == {*people.rows("metadata_brightness_v2")} == BERT
    assert {one for one, row in people.rows("data").items() if row.data is None and row.label is None} == ANNA
    assert {*people.rows("metadata_label")} == {IDS["bert/1.png"]}
    assert {*people.rows("metadata_killed")} == {IDS["bert/1.png"]}
    cached = spark.read.parquet(f"{people.cache}/rows").collect()
    assert {bytes(row["id"]) for row in cached} == {one.bytes for one in BERT}


@pytest.mark.usefixtures("deleted")
def test_an_old_cache_with_deleted_images_is_refused(spark: SparkSession, people: People) -> None:
    with pytest.raises(TableError, match=r"Found: 8 of .* no longer lists them\. They were deleted after"):
        splitting.run(spark, plan=SplitPlan(metadata_in=str(people.place / "old"), out=people.split + "2", ratios=(1,)))


@pytest.mark.usefixtures("deleted")
def test_the_same_ids_again_and_a_repair_change_nothing(spark: SparkSession, people: People) -> None:
    again = DeletePlan(**people.tables, ids=tuple(ANNA), reason="again", caches=(people.cache,))
    finished = job.run(spark, plan=again)
    assert (finished.images, finished.before, finished.caches) == (0, 8, {people.cache: 0})
    assert len(people.control.execute(f"SELECT id FROM {people.keyspace}.metadata_history")) == 8
    with_source = replace(people.ingest, create=False, overwrite=True)
    repair = VerifyPlan(**people.tables, check="hashes", ingest=with_source, repair=True)
    assert verify_job.run(spark, plan=repair).problems == {}


@pytest.mark.usefixtures("deleted")
def test_the_loader_skips_deleted_images_and_ranks_have_as_many_batches(cassandra: Cassandra, people: People) -> None:
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 1}
    split, found = people.parts[0], []
    for rank in range(2):
        options = where | {"on_missing": "skip", "max_missing": 0.0, "last_batch_policy": "FILL"}
        with loader.CassandraSource(split, rank=rank, world_size=2, **options) as source:
            batches = list(source.epoch(0))
            found.append((len(batches), {uuid.UUID(bytes=row.tobytes()) for batch in batches for row in batch.ids}))
    assert [steps for steps, _ in found] == [6, 6]
    assert not ANNA & (found[0][1] | found[1][1])
    with loader.CassandraSource(split, **where) as source, pytest.raises(loader.DeletedImageError, match="deleted"):
        list(source.epoch(0))


@pytest.mark.usefixtures("deleted")
def test_an_ingest_leaves_deleted_images_out_until_they_are_restored(spark: SparkSession, people: People) -> None:
    repeated = ingest_job.run(spark, plan=people.ingest)
    assert (repeated.images, repeated.deleted, repeated.quarantined) == (8, 8, 0)
    assert "8 images were deleted and left out (to ingest them: --restore-deleted)" in str(repeated)
    resumed = replace(people.ingest, resume=True)
    would = ingest_job.estimate(spark, plan=resumed)
    assert (would.already_there, would.deleted) == (8, 8)
    assert {*people.rows("metadata")} == BERT
    restored = ingest_job.run(spark, plan=replace(resumed, restore_deleted=True))
    assert (restored.images, restored.deleted) == (8, 0)
    assert {one: bytes(row.data) for one, row in people.rows("data").items()} == {
        one: bytes(row.data) for one, row in people.before["data"].items()
    }
    assert ingest_job.run(spark, plan=resumed).deleted == 0
