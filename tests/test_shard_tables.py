"""jobs/shard.py over tables in Cassandra and their splits: the shards of their source, in the split's order."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from archives import mask
from pictures import texture
from pyspark.sql import SparkSession
from shard_checks import checked, contents, manifest_of
from trees import plant

import jobs.shards.run as job
from etl.errors import TableError
from etl.ingest_plan import IngestPlan
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from etl.splits.plan import SplitPlan
from jobs import ingest, split
from schemas import TableName
from schemas.tables import LabelType

MAXSIZE = 60_000
CLASSES = ("ant", "bee é", 'c" d,e')
PICTURES = {
    f"{name}/{number} ü.png": texture(100 * rank + number, width=20 + number, height=24 + rank)
    for rank, name in enumerate(CLASSES)
    for number in range(14)
}


def plan(source: Path | None, out: Path, **options: Any) -> ShardPlan:
    """A plan of small shards."""
    whole = None if source is None else SourcePlan(address=str(source))
    return ShardPlan(source=whole, out=str(out), maxsize=MAXSIZE, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders."""
    return plant(tmp_path_factory.mktemp("classes"), PICTURES)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, root: Path) -> dict[str, TableName]:
    """The class folders in Cassandra."""
    names = {"data_table": TableName("shards", "data"), "metadata_table": TableName("shards", "metadata")}
    assert ingest.run(spark, plan=IngestPlan(source=SourcePlan(address=str(root)), **names)).images == 42
    return names


def test_tables_give_the_shards_of_their_source(
    spark: SparkSession, root: Path, tables: dict[str, TableName], tmp_path: Path
) -> None:
    job.run(spark, plan=plan(None, tmp_path / "tables", **tables))
    job.run(spark, plan=plan(root, tmp_path / "files", dataset="shards"))
    samples = checked(tmp_path / "tables", maxsize=MAXSIZE)
    assert {one.facts["path"]: (one.data, one.facts["class"], one.label) for one in samples} == {
        path: (data, (name := path.partition("/")[0]), CLASSES.index(name)) for path, data in PICTURES.items()
    }
    assert contents(tmp_path / "tables") == contents(tmp_path / "files")
    assert dict(manifest_of(tmp_path / "tables").class_names) == dict(enumerate(CLASSES))


def test_a_split_gives_its_images_in_its_order(
    spark: SparkSession, root: Path, tables: dict[str, TableName], tmp_path: Path
) -> None:
    import loader

    for name in ("folder", "dictionary.pckl"):
        split.run(spark, plan=SplitPlan(out=str(tmp_path / name), seed=5, **tables))
    wanted = {index: loader.open_split(tmp_path / "folder", index=index) for index in (0, 1)}
    ids = {index: [one.tobytes() for one in found.ids] for index, found in wanted.items()}
    labels = {index: [int(label) for label in found.labels] for index, found in wanted.items()}
    for name, source, index in (
        ("folder", None, 1),
        ("dictionary.pckl", None, 1),
        ("folder", root, 1),
    ):
        out = tmp_path / f"{name} {index} {source is None}"
        job.run(spark, plan=plan(source, out, split=str(tmp_path / name), index=index))
        samples = checked(out, maxsize=MAXSIZE)
        assert [one.key for one in samples] == [f"{number:09}" for number in range(len(ids[index]))]
        assert [bytes.fromhex(one.facts["id"].replace("-", "")) for one in samples] == ids[index]
        assert [one.label for one in samples] == labels[index]
        assert all(PICTURES[one.facts["path"]] == one.data for one in samples)
        assert manifest_of(out).class_names
        if name == "folder":
            assert manifest_of(out).source_fingerprint == wanted[index].fingerprint
    assert contents(tmp_path / "folder 1 True") == contents(tmp_path / "folder 1 False")
    with pytest.raises(TableError, match=r"Wanted split 2 of .*folder\. Found: 2 splits, from 0 on"):
        job.run(spark, plan=plan(None, tmp_path / "x", split=str(tmp_path / "folder"), index=2))
    with pytest.raises(TableError, match=r"Wanted the 34 images of .* Found: 0 of them.* this --dataset\?"):
        job.run(spark, plan=plan(root, tmp_path / "x", split=str(tmp_path / "folder"), dataset="other"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_tables_of_other_labels_and_their_splits(spark: SparkSession, tmp_path: Path, kind: LabelType) -> None:
    images = plant(tmp_path / "images", {f"{i}.png": texture(i, width=16, height=12) for i in range(6)})
    masks = plant(tmp_path / "masks", {f"{i}.png": mask(i) for i in range(6)})
    beside = {"masks": str(masks)} if kind == "blob" else {}
    source = SourcePlan(address=str(images), label_type=kind, **beside)
    tables = {name: TableName(f"shards_{kind}", name.partition("_")[0]) for name in ("data_table", "metadata_table")}
    ingest.run(spark, plan=IngestPlan(source=source, **tables))
    split.run(spark, plan=SplitPlan(out=str(tmp_path / "split"), ratios=(Fraction(1),), **tables))
    job.run(spark, plan=plan(None, tmp_path / "all", **tables))
    job.run(spark, plan=plan(None, tmp_path / "part", split=str(tmp_path / "split")))
    for name in ("all", "part"):
        samples = checked(tmp_path / name, maxsize=MAXSIZE)
        assert manifest_of(tmp_path / name).label_type == kind
        assert len(samples) == 6
        for one in samples:
            number = int(one.facts["path"][0])
            made = {"seg.png": mask(number)} if kind == "blob" else {}
            assert {key: data for key, data in one.members.items() if key != "json"} == {
                "png": texture(number, width=16, height=12),
                **made,
            }
