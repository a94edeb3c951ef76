"""Nearest neighbors of images on real tables: by the vector index, and exactly, compared with NumPy."""

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import FunctionError, TableError
from etl.features.vectors import index
from etl.features.vectors.neighbors import Neighbors, find_neighbors
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.tables.removal import value_tables
from imagestrata.cli import main
from schemas import TableName, image_id
from schemas.features import ViewName
from tests.support.encoding import encoded
from tests.support.features import FUNCTIONS, featurize, ingest, tables_of
from tests.support.trees import plant

COUNT = 300
SIDE = 4


def test_neighbors_by_the_index_are_those_of_numpy(
    spark: SparkSession,
    control: Control,
    keyspace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    pixels = {f"a/{n}.png": rng.integers(1, 256, (SIDE, SIDE, 3)) for n in range(COUNT)}
    special = {"a/zeros.png": np.full((SIDE, SIDE, 3), 100), "a/none.png": np.zeros((SIDE, SIDE, 3))}
    tree = plant(
        tmp_path / "tree", {path: encoded(value.astype(np.uint8)) for path, value in {**pixels, **special}.items()}
    )
    ingest(spark, tree, keyspace)
    vector = f"vector={FUNCTIONS}:vector"
    metadata, view, first = TableName(keyspace, "metadata"), ViewName("vector"), image_id(keyspace, b"", b"a/0.png")

    def search(*, exact: bool = False, count: int = 10, path: str = "a/0.png") -> Neighbors:
        image = image_id(keyspace, b"", path.encode())
        return find_neighbors(control, image, metadata=metadata, view=view, count=count, exact=exact)

    def oracle(count: int = 10) -> dict[str, float]:
        vectors = {path: value.ravel() - 100.0 for path, value in pixels.items()}
        own = vectors.pop("a/0.png")
        cosines = {path: own @ one / np.linalg.norm(own) / np.linalg.norm(one) for path, one in vectors.items()}
        return dict(sorted(cosines.items(), key=lambda one: -one[1])[:count])

    with pytest.raises(FunctionError, match=r"Wanted one field float\[N\] .* size@v1\. Found: size_width"):
        featurize(spark, keyspace, "size", vector_index=True)
    monkeypatch.setattr(index, "FEW", 100)  # so that the first run builds the index over rows that are there
    featurize(spark, keyspace, vector)
    with pytest.raises(TableError, match=r"Wanted a vector index of vector@v1.*--vector-index\. Or .* --exact"):
        search()
    report = featurize(spark, keyspace, "vector", vector_index=True)
    assert (report.images, report.indexed) == (0, {"vector@v1": COUNT})
    assert f"{keyspace}.metadata_vector_v1_index" in map(str, value_tables(control, metadata))  # cleared by deletions
    exact = search(exact=True)
    assert {one.path: one.similarity for one in exact.neighbors} == pytest.approx(oracle())
    assert [one.path for one in exact.neighbors] == list(oracle())
    near = search()
    found = {one.path: one.similarity for one in near.neighbors}
    assert len(found.keys() & oracle().keys()) >= 9  # of 10
    every = oracle(COUNT)
    assert found == pytest.approx({path: every[path or ""] for path in found})
    # New bytes and removed images: what is not current is not found, and a later run brings the index up to date.
    best, second = list(oracle())[:2]
    plant(tree, {second: encoded(pixels.pop(second)[::-1].astype(np.uint8))})
    ingest(spark, tree, keyspace)
    control.execute(f"DELETE FROM {keyspace}.metadata WHERE id = ?", (image_id(keyspace, b"", best.encode()),))
    del pixels[best]
    for result in (search(), search(exact=True)):
        assert not {one.path for one in result.neighbors} & {best, second}
        assert len(result.neighbors) == 10
    assert featurize(spark, keyspace, "vector").indexed == {"vector@v1": 1}
    assert featurize(spark, keyspace, "vector").indexed == {"vector@v1": 0}
    assert len(search(count=500).neighbors) == COUNT - 2  # all but the image itself and the removed one
    control.execute(
        f"DELETE FROM {keyspace}.metadata_vector_v1 WHERE id = ?", (image_id(keyspace, b"", best.encode()),)
    )
    assert featurize(spark, keyspace, "vector").indexed == {"vector@v1": 0}
    for path, message in (
        ("a/zeros.png", "a vector of zeros"),
        ("a/none.png", "none of its bytes"),
        ("no", "no such id"),
    ):
        with pytest.raises(TableError, match=message):
            search(path=path)
    place = ["--host", control.cluster.hosts[0], "--port", str(control.cluster.port)]
    assert main(["similar", str(first), "-m", str(metadata), "--view", "vector@v1", "--json", *place]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["is_exact"] is False
    assert [one["id"] for one in printed["neighbors"]] == [one.id for one in search().neighbors]
    assert main(["similar", str(first), "-m", str(metadata), "--view", "vector", "--exact", *place]) == 0
    assert "10 neighbors by vector@v1: all vectors were compared" in capsys.readouterr().out
    assert main(["similar", str(first), "-m", str(metadata), "--view", "size", *place]) == 1
    assert "Wanted values of size" in capsys.readouterr().err


def test_vectors_expire_with_their_images(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = plant(tmp_path / "tree", {f"a/{n}.png": encoded(np.full((2, 2, 3), n, np.uint8)) for n in (1, 2, 3)})
    tables, source = tables_of(keyspace), SourcePlan(address=str(tree))
    for few, images in ((1, 3), (10, 4)):  # written at once, and one by one
        monkeypatch.setattr(index, "FEW", few)
        plant(tree, {f"a/{images}.png": encoded(np.full((2, 2, 3), images, np.uint8))})
        ingestion.run(spark, plan=IngestPlan(source=source, **tables, ttl=3600, resume=True))
        featurize(spark, keyspace, f"vector={FUNCTIONS}:vector", vector_index=True)
        found = control.execute(f"SELECT TTL(vector) AS ttl FROM {keyspace}.metadata_vector_v1_index")
        assert len(found) == images
        assert all(3000 < row.ttl <= 3600 for row in found)
    ingestion.run(spark, plan=IngestPlan(source=source, **tables, ttl=0))
    assert not control.execute(f"SELECT id FROM {keyspace}.metadata_vector_v1_index")
