"""All jobs in sequence: from files on disk to decoded batches, over tables with other tools' columns."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import loader
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.splits.plan import SplitPlan
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest, split
from schemas import Columns, TableName, image_id
from tests.support.pictures import SHADES, picture

CLASSES = ("n01440764", "n02102040", "n03000684")
EACH = 5


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two split folders of three classes. The shade of an image is its class."""
    root = tmp_path_factory.mktemp("imagenette2 320")
    for folder in ("train", "val"):
        for number, name in enumerate(CLASSES):
            (root / folder / name).mkdir(parents=True)
            for each in range(EACH):
                kind = ("PNG", "JPEG")[each % 2]
                (root / folder / name / f"{name}_{each}.{kind}").write_bytes(picture(number, format=kind))
    return root


def test_pictures_and_labels_pass_through_tables_with_custom_columns(
    spark: SparkSession, cassandra: Cassandra, keyspace: str, tree: Path, tmp_path: Path
) -> None:
    columns = Columns(id="patch_id", label="label", data="data")
    tables = {
        "data_table": TableName.parse(f"{keyspace}.data"),
        "metadata_table": TableName.parse(f"{keyspace}.metadata"),
        "columns": columns,
    }
    for folder in ("train", "val"):  # one pair of tables, filled in two runs, as in the examples
        source = SourcePlan(address=str(tree), splits=(folder,))
        plan = IngestPlan(source=source, dataset="pets", **tables)  # type: ignore[arg-type]
        assert ingest.run(spark, plan=plan).images == 15
    report = split.run(spark, plan=SplitPlan(out=str(tmp_path / "splits"), seed=7, **tables))  # type: ignore[arg-type]
    assert report.rows == [24, 6]
    assert report.counts[0].keys() == set(CLASSES)  # of the dataset in the tables

    seen: Counter[bytes] = Counter()
    shades_by_label: dict[int, set[int]] = {}
    for rank in range(2):
        part = loader.open_split(tmp_path / "splits", index=0)
        assert part.columns == columns
        with loader.CassandraSource(
            part, hosts=cassandra.hosts, port=cassandra.port, batch_size=5, rank=rank, world_size=2
        ) as source:
            for batch in source.epoch(0):
                seen.update(map(bytes, batch.ids))
            batches = loader.ClassificationIterator(source, size=16, train=True, mean=(0, 0, 0), std=(1, 1, 1))
            for images, labels in batches:
                for shade, label in zip((images.mean(axis=(1, 2, 3)) * 255).tolist(), labels.tolist(), strict=True):
                    shades_by_label.setdefault(label, set()).add(round(shade / SHADES))
    assert len(seen) == 24
    assert set(seen.values()) == {1}
    assert seen.keys() < {
        image_id("pets", folder.encode(), str(file.relative_to(tree / folder)).encode()).bytes
        for folder in ("train", "val")
        for file in (tree / folder).rglob("*.*")
    }
    assert shades_by_label == {0: {0}, 1: {1}, 2: {2}}
