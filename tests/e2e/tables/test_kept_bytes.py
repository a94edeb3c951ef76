"""Time travel for bytes: what an ingest replaces and keeps is what splits as of then are made of."""

import tarfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.deleting import forgetting
from etl.deleting.plan import DeletePlan, ForgetPlan
from etl.errors import ConflictError, EtlError, TableError
from etl.ingest.plan import IngestPlan
from etl.shards.plan import ShardPlan
from etl.splits.plan import SplitPlan
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import take_run
from etl.verify.kept_bytes import KEPT_DAMAGED, KEPT_MISSING
from etl.verify.plan import VerifyPlan
from etl.verify.split_changes import changes_of
from formats import open_split
from formats.checksums import checksum
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import delete, ingest, shard, split, verify
from schemas import image_id
from tests.support.archives import mask
from tests.support.features import featurize
from tests.support.trees import PlanOf, picture, plan_maker, plant

DARK, BRIGHT = 1, 250
VERSIONS = ({"p": (DARK, 5), "q": (DARK, 6)}, {"p": (BRIGHT, 7), "q": (DARK, 6)}, {"p": (DARK, 8), "q": (BRIGHT, 9)})
"""The files of each run: a colour and a width."""


@pytest.fixture
def plan(plan_of: PlanOf, tmp_path: Path) -> IngestPlan:
    (tmp_path / "tree" / "train").mkdir(parents=True)
    return plan_of(tmp_path / "tree", splits=("train",))


def ingested(spark: SparkSession, plan: IngestPlan, number: int) -> dict[UUID, bytes]:
    """Ingest the files of a run; their bytes by id."""
    files = {name: picture(colour, size=(width, 4)) for name, (colour, width) in VERSIONS[number - 1].items()}
    plant(Path(plan.source.address), {f"train/a/{name}.png": data for name, data in files.items()})
    ingest.run(spark, plan=plan)
    return {image_id(plan.dataset, b"train", f"a/{name}.png".encode()): data for name, data in files.items()}


def names_of(spark: SparkSession, plan: IngestPlan, out: Path, **options: Any) -> dict[UUID, int]:
    """The checksums in a split of all images, by id."""
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    report = split.run(spark, plan=SplitPlan(**tables, out=str(out), ratios=(Fraction(1),), overwrite=True, **options))
    assert report.warnings == ["there is only one split: nothing is held out"]
    rows = pq.read_table(out / "split=0", partitioning=None).to_pylist()
    return {UUID(bytes=row["id"]): row["xxhash64"] for row in rows}


def test_a_split_as_of_each_run_names_the_bytes_of_then(spark: SparkSession, plan: IngestPlan, tmp_path: Path) -> None:
    keeping, runs = replace(plan, keep_replaced=True), {}
    for number in (1, 2, 3):
        runs[2 * number - 1] = ingested(spark, keeping, number)
        featurize(spark, plan.metadata_table.keyspace, "brightness")
    out = tmp_path / "split"
    for (sequence, images), files in zip(runs.items(), VERSIONS, strict=True):
        wanted = {one: checksum(data) for one, data in images.items()}
        assert names_of(spark, plan, out, as_of=str(sequence)) == wanted
        # what else the tables say of the bytes is of then, too
        of_names = dict(zip(images, files.values(), strict=True))
        chosen = {one: wanted[one] for one, (colour, width) in of_names.items() if width > 6 and colour == BRIGHT}
        if chosen:
            where = "width > 6 AND brightness > 20"
            assert names_of(spark, plan, out, as_of=str(sequence), where=where) == chosen


def test_what_was_not_kept_is_refused(spark: SparkSession, control: Control, plan: IngestPlan, tmp_path: Path) -> None:
    ingested(spark, plan, 1)
    ingested(spark, plan, 2)
    kept, _ = plan.tables.kept
    assert control.columns(kept) is None
    with pytest.raises(TableError, match=r"1 image \(1 replaced, 0 removed since\) whose bytes of then no longer"):
        names_of(spark, plan, tmp_path / "split", as_of="1")
    keeping = replace(plan, keep_replaced=True)
    with pytest.raises(TableError, match=rf"Wanted the table {kept}, for --keep-replaced\. Found: no such.* CREATE TA"):
        ingested(spark, replace(keeping, create=False), 3)
    control.define(f"CREATE TABLE {kept} (id uuid PRIMARY KEY, label int, data blob)")
    with pytest.raises(TableError, match=f"Wanted {kept} to be free for the replaced bytes of .* columns data blob"):
        ingested(spark, keeping, 3)
    control.define(f"DROP TABLE {kept}")
    ingested(spark, replace(plan, ttl=1000), 3)
    with pytest.raises(ConflictError, match=r"for images that do not expire\. Found: 1 ingest into .* with --ttl"):
        ingested(spark, replace(keeping, ttl=0), 1)


def copies(control: Control, plan: IngestPlan) -> set[tuple[UUID, int]]:
    return {(row.id, row.xxhash64) for row in control.execute(f"SELECT id, xxhash64 FROM {plan.tables.kept[0]}")}


def test_kept_bytes_of_earlier_runs_are_forgotten_also_after_a_kill(
    spark: SparkSession, control: Control, plan: IngestPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, out = replace(plan, keep_replaced=True), tmp_path / "split"
    runs = [ingested(spark, keeping, number) for number in (1, 2, 3)]
    named = [{(one, checksum(data)) for one, data in of_run.items()} for of_run in runs]
    assert copies(control, plan) == (named[0] | named[1]) - named[2]
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    forget = ForgetPlan(**tables, before="2")
    found = delete.forget(spark, plan=forget, is_plan=True)
    size = sum(len(runs[0][one]) for one, _ in named[0] - named[1])
    assert (found.copies, found.of, found.states, found.bytes, found.confirm) == (1, 3, 1, size, 1)
    with pytest.raises(EtlError, match=r"Wanted --count 1, to delete 1 of 3 copies in .* Found: no --count\. Nothing"):
        delete.forget(spark, plan=forget)
    names_of(spark, plan, tmp_path / "pinned", as_of="1")
    assert changes_of(spark, open_split(str(tmp_path / "pinned"))).counts == {}
    keyspace = plan.metadata_table.keyspace
    (pinned,) = registry.entries(control, keyspace=keyspace, kind=registry.SPLIT)
    registry.describe(control, pinned, keyspace=keyspace, tags={"pinned": "true"})
    with pytest.raises(ConflictError, match=r"Found: .*pinned, of run 1, which may name these bytes\. Nothing was"):
        delete.forget(spark, plan=replace(forget, count=1))
    registry.describe(control, pinned, keyspace=keyspace, tags={"pinned": ""})
    with monkeypatch.context() as patch, pytest.raises(TableError, match="killed"):
        patch.setattr(forgetting, "delete_rows", lambda *_, **__: (_ for _ in ()).throw(TableError("killed")))
        delete.forget(spark, plan=replace(forget, count=1))
    with pytest.raises(TableError, match=r"1 image \(1 replaced, 0 removed since\)"):
        names_of(spark, plan, out, as_of="1")
    report = delete.forget(spark, plan=replace(forget, count=1))
    assert (report.copies, report.states, report.left) == (1, 0, 0)
    assert copies(control, plan) == named[1] - named[2]
    assert changes_of(spark, open_split(str(tmp_path / "pinned"))).counts == {"other bytes": 1}
    assert set(names_of(spark, plan, out, as_of="2").items()) == named[1]

    # a task of a run that has not finished has copied bytes, and not replaced them yet
    image, number = next(iter(named[2]))
    insert = f"INSERT INTO {plan.tables.kept[0]} (id, xxhash64, until, bytes, data) VALUES (?, ?, ?, 1, ?)"
    unfinished = take_run(
        control, table=plan.metadata_table, kind="ingest", dataset=plan.dataset, source="", ingest_id=new_ingest_id()
    )
    control.execute(insert, (image, number, unfinished.sequence, b"x"))
    now = replace(forget, before=str(unfinished.sequence))
    report = delete.forget(spark, plan=replace(now, count=2))
    assert (report.copies, report.left) == (2, 1)
    assert copies(control, plan) == {(image, number)}


def test_replaced_bytes_that_are_lost_or_damaged_are_found(
    spark: SparkSession, control: Control, plan: IngestPlan
) -> None:
    for number in (1, 3):
        ingested(spark, replace(plan, keep_replaced=True), number)
    of_tables = VerifyPlan(data_table=plan.data_table, metadata_table=plan.metadata_table)
    assert verify.run(spark, plan=of_tables).problems == {}
    lost, damaged = sorted(copies(control, plan))
    table, key = plan.tables.kept[0], "WHERE id = ? AND xxhash64 = ?"
    control.execute(f"DELETE FROM {table} {key}", lost)
    control.execute(f"UPDATE {table} SET data = 0x00 {key}", damaged)
    found = verify.run(spark, plan=of_tables)
    assert found.examples == {
        KEPT_MISSING: [f"{lost[0]}, checksum {lost[1]}"],
        KEPT_DAMAGED: [f"{damaged[0]}, checksum {damaged[1]}"],
    }
    assert verify.run(spark, plan=replace(of_tables, check="sizes")).problems == {KEPT_MISSING: 1}


def test_a_deletion_removes_kept_bytes_and_what_an_earlier_state_says_of_them(
    spark: SparkSession, control: Control, plan: IngestPlan, tmp_path: Path
) -> None:
    keeping = replace(plan, keep_replaced=True)
    runs = [ingested(spark, keeping, number) for number in (1, 3)]
    first, second = runs[0]
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    request = DeletePlan(**tables, ids=(first,), reason="request 17", count=1)
    assert delete.estimate(spark, plan=request).replaced == 1
    assert "\n1 copy of bytes that were replaced earlier\n" in str(delete.run(spark, plan=request))
    assert {image for image, _ in copies(control, plan)} == {second}
    ingested(spark, replace(keeping, restore_deleted=True), 3)
    with pytest.raises(TableError, match=r"1 image \(1 replaced, 0 removed since\)"):
        names_of(spark, plan, tmp_path / "split", as_of="1")


def packed(folder: Path, suffix: str = ".png") -> set[bytes]:
    """The images in shards."""
    found = set()
    for file in folder.glob("*.tar"):
        with tarfile.open(file) as tar:
            members = [one for one in tar if one.name.endswith(suffix)]
            found |= {stream.read() for one in members if (stream := tar.extractfile(one)) is not None}
    return found


def test_masks_of_then_belong_to_the_images_of_then(spark: SparkSession, cassandra: Cassandra, tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    plan = plan_maker()(tmp_path / "images", label_type="blob", masks=str(tmp_path / "masks"), splits=())
    made = []
    for number in (1, 2):
        masks = {f"{name}.png": mask(10 * number + n, size=(16, 12)) for n, name in enumerate("pq")}
        plant(tmp_path / "images", {name: picture(7) for name in masks})
        plant(tmp_path / "masks", masks)
        ingest.run(spark, plan=replace(plan, keep_replaced=True))
        made.append({*masks.values()})
    names_of(spark, plan, tmp_path / "split", as_of="1")
    opened = loader.open_split(tmp_path / "split", cache=tmp_path / "cache")
    with loader.CassandraSource(opened, hosts=cassandra.hosts, port=cassandra.port, batch_size=2) as source:
        assert {label for batch in source.epoch(0) for label in batch.label_blobs} == made[0]
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    of_then = ShardPlan(source=None, **tables, as_of="1", out=str(tmp_path / "shards"))
    report = shard.run(spark, plan=of_then)
    assert (report.images, report.rejected_by_reason) == (2, {})
    assert packed(tmp_path / "shards", ".seg.png") == made[0]
