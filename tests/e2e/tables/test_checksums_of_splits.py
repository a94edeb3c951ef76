"""A split names bytes: what it was made of is what a training or a shard gets, or an error that names the image."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra.control import Control
from etl.deleting import deletion
from etl.deleting.plan import DeletePlan
from etl.errors import EtlError, OutputExistsError, TableError
from etl.ingest.plan import IngestPlan, Tolerance
from etl.shards.output import ShardOutput
from etl.shards.plan import ShardPlan
from etl.splits.plan import SplitPlan
from etl.verify.split_changes import changes_of
from formats import open_split
from formats.checksums import checksum
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest, shard, split
from schemas import TableName
from tests.support.archives import mask
from tests.support.pictures import texture
from tests.support.shard_checks import checked
from tests.support.shard_jobs import said, twenty_pictures
from tests.support.trees import PlanOf, picture, plan_maker, plant, tree

Opened = Callable[..., loader.CassandraSource]
Delivered = Callable[..., dict[UUID, tuple[bytes, ...]]]
CLIENTS = ("acsylla", "cassandra-driver")


def split_plan(plan: IngestPlan, out: Path, **options: Any) -> SplitPlan:
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    return SplitPlan(out=str(out), **{"ratios": (Fraction(1),), **tables, **options})


def read(source: loader.CassandraSource, epoch: int = 0) -> dict[UUID, tuple[bytes, ...]]:
    """The images, and masks if there are any, by id."""
    batches = list(source.epoch(epoch))
    ids = [UUID(bytes=one.tobytes()) for batch in batches for one in batch.ids]
    images = [data for batch in batches for data in batch.images]
    masks = [data for batch in batches for data in batch.label_blobs or ()]
    return dict(zip(ids, zip(images, *([masks] if masks else []), strict=True), strict=True))


@pytest.fixture
def opened(cassandra: Cassandra) -> Iterator[Opened]:
    """A function that opens a source of a split with a client; it is closed after the test."""
    with ExitStack() as stack:

        def source(folder: Path, client: str, **options: Any) -> loader.CassandraSource:
            found = loader.open_split(folder, cache=folder.parent / "cache")
            where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 3}
            return stack.enter_context(loader.CassandraSource(found, client=client, **{**where, **options}))

        yield source


@pytest.fixture
def delivered(opened: Opened) -> Delivered:
    """A function that reads a split with each client. Both deliver the same, or raise the same error."""

    def tried(*where: Any, **options: Any) -> dict[UUID, tuple[bytes, ...]] | loader.LoaderError:
        try:
            return read(opened(*where, **options))
        except loader.LoaderError as error:
            return error

    def of_each(folder: Path, **options: Any) -> dict[UUID, tuple[bytes, ...]]:
        one, other = (tried(folder, client, **options) for client in CLIENTS)
        if isinstance(one, loader.LoaderError):
            assert (type(other), str(other)) == (type(one), str(one))
            raise one
        assert other == one
        return one

    return of_each


def images_of(rows: Mapping[UUID, tuple[Any, ...]]) -> dict[UUID, tuple[bytes]]:
    return {one: (data,) for one, (data, *_) in rows.items()}


def stored(control: Control, plan: IngestPlan) -> dict[UUID, tuple[Any, ...]]:
    """The image, its label, and the checksum in the metadata, by id."""
    data = {row.id: (row.data, row.label) for row in control.execute(f"SELECT id, data, label FROM {plan.data_table}")}
    known = control.execute(f"SELECT id, xxhash64 FROM {plan.metadata_table}")
    return {row.id: (*data[row.id], row.xxhash64) for row in known}


def without_checksums(control: Control, plan: IngestPlan) -> None:
    """Forget the checksums of all rows, as in tables of an earlier version."""
    for image in stored(control, plan):
        control.execute(f"UPDATE {plan.metadata_table} SET xxhash64 = null WHERE id = ?", (image,))


def segmented(place: Path, *, count: int, **options: Any) -> IngestPlan:
    """The ingest of images with a mask each."""
    names = [f"{number}.png" for number in range(count)]
    plant(place / "images", {name: picture(number) for number, name in enumerate(names)})
    plant(place / "masks", {name: mask(number, size=(16, 12)) for number, name in enumerate(names)})
    masks = str(place / "masks")
    return plan_maker()(place / "images", label_type="blob", masks=masks, splits=(), **options)


def test_replaced_and_damaged_images_are_named_and_taken_only_if_asked_for(
    spark: SparkSession, control: Control, plan_of: PlanOf, delivered: Delivered, tmp_path: Path
) -> None:
    folder = tree(tmp_path / "tree", classes="ab", each=3)
    plan = plan_of(folder)
    ingest.run(spark, plan=plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "split"))
    before = stored(control, plan)
    found = loader.open_split(tmp_path / "split", cache=tmp_path / "cache")
    assert found.checksums.tolist() == [checksum(before[UUID(bytes=one.tobytes())][0]) for one in found.ids]
    assert delivered(tmp_path / "split") == images_of(before)

    (folder / "train" / "a" / "0.png").write_bytes(picture(9999))
    ingest.run(spark, plan=replace(plan, overwrite=True))
    now = stored(control, plan)
    (changed,) = [one for one in now if now[one] != before[one]]
    message = (
        rf"Wanted image {changed} from {plan.data_table} .* with the checksum {before[changed][2]} of split 0 of "
        rf".*split\. Found: other bytes, with the checksum {now[changed][2]}\. Run 2 \(ingest .*\) has replaced the "
        r"image since\. Make the split again, or read the newest bytes with on_changed='accept'\."
    )
    with pytest.raises(loader.ChangedImageError, match=message):
        delivered(tmp_path / "split", on_missing="skip", max_missing=1.0)
    newest = images_of(now)
    assert delivered(tmp_path / "split", on_changed="accept") == newest
    split.run(spark, plan=split_plan(plan, tmp_path / "again"))
    assert delivered(tmp_path / "again") == newest

    damaged = now[changed][0][:-1] + bytes([now[changed][0][-1] ^ 1])
    control.execute(f"UPDATE {plan.data_table} SET data = ? WHERE id = ?", (damaged, changed))
    with pytest.raises(loader.ChangedImageError, match=r"metadata still has the checksum .*stored bytes are damaged"):
        delivered(tmp_path / "again")

    for file in (tmp_path / "again").rglob("*.parquet"):
        rows = pq.read_table(file)
        pq.write_table(rows.set_column(rows.column_names.index("xxhash64"), "xxhash64", [[1] * len(rows)]), file)
    found = changes_of(spark, open_split(str(tmp_path / "again")))
    assert found.counts == {"other files": 1, "other bytes": 12}
    assert found.changes[0].detail.startswith("split 0: fingerprint of checksums ")


def test_shards_of_a_split_are_made_of_the_bytes_that_it_names(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    folder = tree(tmp_path / "tree", classes="ab", each=3)
    plan = plan_of(folder)
    ingest.run(spark, plan=plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "split"))
    of_split = ShardPlan(source=None, split=str(tmp_path / "split"), out=str(tmp_path / "shards"))
    assert shard.run(spark, plan=of_split).images == 12
    (folder / "train" / "a" / "0.png").write_bytes(picture(9999))
    ingest.run(spark, plan=replace(plan, overwrite=True))
    later = replace(of_split, out=str(tmp_path / "later"))
    line = said(spark, later, TableError)
    assert "Found: 1 image with others, replaced since; the first is " in line
    assert line.endswith("Make the split again.")

    split.run(spark, plan=split_plan(plan, tmp_path / "again"))
    damaged, row = next(iter(stored(control, plan).items()))
    data = row[0][:-1] + bytes([row[0][-1] ^ 1])
    control.execute(f"UPDATE {plan.data_table} SET data = ? WHERE id = ?", (data, damaged))
    again = replace(later, split=str(tmp_path / "again"))
    line = said(spark, again, EtlError)
    assert "Wanted at most 0 of 12 files rejected. Found: 1. Reasons: 1 damaged; first " in line
    assert "--max-errors allows" in line
    report = shard.run(spark, plan=replace(again, tolerance=Tolerance(count=1)))
    assert (report.images, report.rejected_by_reason) == (11, {"damaged": 1})
    without_checksums(control, plan)  # the split still names the bytes
    assert "1 damaged" in said(spark, replace(again, out=str(tmp_path / "lost")), EtlError)


def test_resumed_shards_are_made_of_the_bytes_that_the_split_names_now(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    folder = twenty_pictures(tmp_path / "tree")
    plan = plan_of(folder, splits=())
    ingest.run(spark, plan=plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "split"))
    of_split = ShardPlan(source=None, split=str(tmp_path / "split"), out=str(tmp_path / "shards"), maxsize=1_000_000)
    killed = replace(of_split, out=str(tmp_path / "killed"))
    with patch.object(ShardOutput, "publish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        shard.run(spark, plan=killed)  # all shards are complete
    shard.run(spark, plan=of_split)

    (folder / "a" / "0.png").write_bytes(texture(99, width=400, height=250))  # which moves images to other shards
    ingest.run(spark, plan=replace(plan, overwrite=True))
    split.run(spark, plan=split_plan(plan, tmp_path / "split", overwrite=True))  # it has the same fingerprint
    assert shard.run(spark, plan=replace(killed, resume=True)).images == 20
    found = loader.ShardSource(loader.open_shards(tmp_path / "killed"), batch_size=8)
    wanted = sorted(data for data, *_ in stored(control, plan).values())
    assert sorted(data for batch in found.epoch(0) for data in batch.images) == wanted
    found.close()
    assert "Found: complete shards of others." in said(spark, replace(of_split, resume=True), OutputExistsError)


def test_kept_bytes_are_read_for_splits_of_then_and_for_older_splits(
    spark: SparkSession, control: Control, plan_of: PlanOf, opened: Opened, delivered: Delivered, tmp_path: Path
) -> None:
    folder = tree(tmp_path / "tree", classes="ab", each=2)
    plan = replace(plan_of(folder), keep_replaced=True)
    ingest.run(spark, plan=plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "split"))
    runs = [stored(control, plan)]
    connected = [opened(tmp_path / "split", client) for client in CLIENTS]
    assert [read(source) for source in connected] == [images_of(runs[0])] * 2
    for number in (1, 2):
        (folder / "train" / "a" / f"{number % 2}.png").write_bytes(picture(9999 + number, size=(7, 8)))
        (folder / "val" / "b" / "0.png").write_bytes(picture(8888 + number))
        ingest.run(spark, plan=replace(plan, overwrite=True))
        runs.append(stored(control, plan))
    for number, rows in enumerate(runs[:2], 1):
        split.run(spark, plan=split_plan(plan, tmp_path / str(number), as_of=str(number)))
        assert delivered(tmp_path / str(number)) == images_of(rows)
    assert delivered(tmp_path / "split") == images_of(runs[0])
    assert [read(source, epoch=1) for source in connected] == [images_of(runs[0])] * 2
    assert delivered(tmp_path / "split", on_changed="accept") == images_of(runs[2])
    shards = ShardPlan(source=None, data_table=plan.data_table, metadata_table=plan.metadata_table, out="")
    for number, options in ((1, {"split": str(tmp_path / "1")}), (2, {"as_of": "2"})):
        out = tmp_path / f"shards-{number}"
        assert shard.run(spark, plan=replace(shards, out=str(out), **options)).images == 8
        found = {UUID(one.metadata["id"]): (one.data,) for one in checked(out, maxsize=10**9)}
        assert found == images_of(runs[number - 1])

    (gone,) = [one for one in runs[0] if len({rows[one] for rows in runs}) == 3]
    asked = DeletePlan(
        data_table=plan.data_table, metadata_table=plan.metadata_table, ids=(gone,), reason="asked", count=1
    )
    deletion.run(spark, plan=asked)
    with pytest.raises(loader.DeletedImageError, match=str(gone)):
        delivered(tmp_path / "1")
    rest = {one: images for one, images in images_of(runs[0]).items() if one != gone}
    assert delivered(tmp_path / "1", on_missing="skip") == rest


def test_a_mask_belongs_to_the_bytes_that_a_split_names(
    spark: SparkSession, control: Control, delivered: Delivered, tmp_path: Path
) -> None:
    """One that was replaced is read where it is kept, and a damaged one is named."""
    plan = segmented(tmp_path, count=4, keep_replaced=True)
    ingest.run(spark, plan=plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "split"))
    before = stored(control, plan)
    assert all(row[2] == checksum(row[0], row[1]) for row in before.values())
    plant(tmp_path / "masks", {"0.png": mask(9, size=(16, 12))})
    ingest.run(spark, plan=replace(plan, overwrite=True))
    now = stored(control, plan)
    (changed,) = [one for one in now if now[one] != before[one]]
    assert delivered(tmp_path / "split") == {one: row[:2] for one, row in before.items()}
    assert changes_of(spark, open_split(str(tmp_path / "split"))).counts == {"other mask": 1}
    first, other = [one for one in now if one != changed][:2]
    control.execute(f"UPDATE {plan.data_table} SET label = ? WHERE id = ?", (now[other][1], first))
    with pytest.raises(loader.ChangedImageError, match=f"Wanted image {first} .*damaged"):
        delivered(tmp_path / "split")


def test_a_table_of_an_earlier_version_and_another_data_table_give_splits_without_checksums(
    spark: SparkSession, control: Control, plan_of: PlanOf, delivered: Delivered, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path / "tree", classes="ab", each=2))
    ingest.run(spark, plan=plan)
    without_checksums(control, plan)
    split.run(spark, plan=split_plan(plan, tmp_path / "old"))
    assert loader.open_split(tmp_path / "old", cache=tmp_path / "cache").checksums is None
    assert len(delivered(tmp_path / "old")) == 8

    tree(tmp_path / "tree", splits=("train",), classes="ab", each=3)  # two more images
    ingest.run(spark, plan=replace(plan, resume=True))
    split.run(spark, plan=split_plan(plan, tmp_path / "mixed"))
    mixed = loader.open_split(tmp_path / "mixed", cache=tmp_path / "cache")
    rows = stored(control, plan)
    assert sorted(mixed.checksums.tolist()) == sorted(row[2] or 0 for row in rows.values())
    assert mixed.opened.part(0).without_checksum == 8
    assert delivered(tmp_path / "mixed") == images_of(rows)

    smaller = TableName(plan.data_table.keyspace, "smaller")
    control.define(f"CREATE TABLE {smaller} (id uuid PRIMARY KEY, label int, data blob)")
    for one in rows:
        control.execute(f"INSERT INTO {smaller} (id, label, data) VALUES (?, 0, ?)", (one, one.bytes))
    split.run(spark, plan=split_plan(plan, tmp_path / "smaller", data_table=smaller))
    assert delivered(tmp_path / "smaller") == {one: (one.bytes,) for one in rows}
