"""jobs/shard.py over tables in Cassandra and their splits: the shards are those of the source, in the split's order."""

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import etl.shards.sharding as job
from etl.cassandra.control import Control
from etl.errors import TableError
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.splits.plan import SplitPlan
from jobs import ingest, split
from schemas import Columns, TableName
from schemas.tables import LabelType, create_data
from tests.support.archives import mask
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.shard_checks import checked, contents, manifest_of
from tests.support.shard_jobs import CLASSES, PICTURES
from tests.support.shard_jobs import plan as plan_of_shards
from tests.support.trees import plant

MAXSIZE = 60_000
plan = partial(plan_of_shards, maxsize=MAXSIZE)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders."""
    return plant(tmp_path_factory.mktemp("classes"), PICTURES)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, root: Path) -> dict[str, TableName]:
    """The class folders in Cassandra."""
    keyspace = fresh_name("shards")
    names = {"data_table": TableName(keyspace, "data"), "metadata_table": TableName(keyspace, "metadata")}
    assert ingest.run(spark, plan=IngestPlan(source=SourcePlan(address=str(root)), **names)).images == 42
    return names


def test_tables_give_the_shards_of_their_source(
    spark: SparkSession, root: Path, tables: dict[str, TableName], tmp_path: Path
) -> None:
    job.run(spark, plan=plan(None, tmp_path / "tables", **tables))
    job.run(spark, plan=plan(root, tmp_path / "files", dataset=tables["data_table"].keyspace))
    samples = checked(tmp_path / "tables", maxsize=MAXSIZE)
    assert {one.metadata["path"]: (one.data, one.metadata["class"], one.label) for one in samples} == {
        path: (data, (name := path.partition("/")[0]), CLASSES.index(name)) for path, data in PICTURES.items()
    }
    # their names differ, because only tables have checksums
    of_tables, of_files = (sorted(contents(tmp_path / name).items()) for name in ("tables", "files"))
    assert [data for _, data in of_tables] == [data for _, data in of_files]
    assert dict(manifest_of(tmp_path / "tables").class_names) == dict(enumerate(CLASSES))


def test_a_split_gives_its_images_in_its_order(
    spark: SparkSession, root: Path, tables: dict[str, TableName], tmp_path: Path
) -> None:
    import loader

    for name in ("folder", "dictionary.pckl"):
        split.run(spark, plan=SplitPlan(out=str(tmp_path / name), seed=5, **tables))
    wanted = loader.open_split(tmp_path / "folder", index=1)
    for name, source in (("folder", None), ("dictionary.pckl", root)):
        out = tmp_path / f"shards of {name}"
        job.run(spark, plan=plan(source, out, split=str(tmp_path / name), index=1))
        samples = checked(out, maxsize=MAXSIZE)
        assert [one.key for one in samples] == [f"{number:09}" for number in range(len(wanted.ids))]
        assert [bytes.fromhex(one.metadata["id"].replace("-", "")) for one in samples] == [
            one.tobytes() for one in wanted.ids
        ]
        assert [one.label for one in samples] == [int(label) for label in wanted.labels]
        assert all(PICTURES[one.metadata["path"]] == one.data for one in samples)
        assert manifest_of(out).class_names
    assert manifest_of(tmp_path / "shards of folder").source_fingerprint == wanted.fingerprint
    of_tables, of_files = (sorted(contents(out).items()) for out in sorted(tmp_path.glob("shards of *")))
    assert [data for _, data in of_tables] == [data for _, data in of_files]
    with pytest.raises(TableError, match=r"Wanted split 2 of .*folder\. Found: splits 0 to 1"):
        job.run(spark, plan=plan(None, tmp_path / "x", split=str(tmp_path / "folder"), index=2))
    with pytest.raises(TableError, match=r"Wanted the 34 images of .* Found: 0 of them.* this --dataset\?"):
        job.run(spark, plan=plan(root, tmp_path / "x", split=str(tmp_path / "folder"), dataset="other"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_tables_with_masks_or_without_labels_are_sharded_like_their_splits(
    spark: SparkSession, control: Control, tmp_path: Path, keyspace: str, kind: LabelType
) -> None:
    images = plant(tmp_path / "images", {f"{i}.png": texture(i, width=16, height=12) for i in range(6)})
    masks = plant(tmp_path / "masks", {f"{i}.png": mask(i) for i in range(6)})
    beside = {"masks": str(masks)} if kind == "blob" else {}
    source = SourcePlan(address=str(images), label_type=kind, **beside)
    tables = {name: TableName(keyspace, name.partition("_")[0]) for name in ("data_table", "metadata_table")}
    ingest.run(spark, plan=IngestPlan(source=source, **tables))
    split.run(spark, plan=SplitPlan(out=str(tmp_path / "split"), ratios=(Fraction(1),), **tables))
    job.run(spark, plan=plan(None, tmp_path / "part", split=str(tmp_path / "split")))
    if kind == "blob":
        job.run(spark, plan=plan(None, tmp_path / "all", **tables))
        empty = TableName(keyspace, "others")
        control.define(create_data(empty, Columns(), label_type=kind))
        with pytest.raises(TableError, match=rf"Do {empty} and .*was filled together with {keyspace}\.data\."):
            job.run(spark, plan=plan(None, tmp_path / "x", **{**tables, "data_table": empty}))
        assert not (tmp_path / "x").exists()
    for name in ("part", "all") if kind == "blob" else ("part",):
        samples = checked(tmp_path / name, maxsize=MAXSIZE)
        assert manifest_of(tmp_path / name).label_type == kind
        assert len(samples) == 6
        for one in samples:
            number = int(one.metadata["path"][0])
            made = {"seg.png": mask(number)} if kind == "blob" else {}
            assert {key: data for key, data in one.members.items() if key != "json"} == {
                "png": texture(number, width=16, height=12),
                **made,
            }
