"""Tables with image bytes: Parquet files and Spark tables become entries that contain their images."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from etl.errors import SourceError
from etl.secrets import secrets_on_executors
from etl.sources.byte_tables import list_parquet, list_table
from etl.sources.entries import ARROW_ENTRIES, Listing
from etl.sources.plan import SourcePlan
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from schemas import image_id
from tests.support.s3_access import use
from tests.support.spark_rows import rows_of

ROWS: dict[str, list[Any]] = {
    "name": ["a/1", "a/2", "b/3", None, "../4", "a/2"],
    "picture": [b"one", b"two", b"three", b"four", b"five", b"six"],
    "class": [3, 3, 4, 4, None, 3],
    "patient": ["p", "p", "q", "q", "r", "r"],
}


NAMES: dict[str, Any] = {
    "path_column": "name",
    "image_column": "picture",
    "label_column": "class",
    "group_column": "patient",
}


def _parquet(spark: SparkSession, address: str | Path, **options: Any) -> Listing:
    return list_parquet(spark, SourcePlan(address=str(address), layout="parquet", **options), dataset="d")


def _table(spark: SparkSession, name: str, **options: Any) -> Listing:
    return list_table(spark, SourcePlan(address=name, layout="table", **options), dataset="d")


def _write(path: Path, columns: dict[str, Any], *, rows: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows)


def _found(frame: DataFrame | list[Row]) -> dict[bytes, tuple[Any, ...]]:
    rows = frame if isinstance(frame, list) else frame.collect()
    found = {bytes(row.path): row for row in rows}
    assert len(found) == len(rows) == len({bytes(row.id) for row in rows})
    for row in rows:
        assert bytes(row.id) == image_id("d", bytes(row.or_split), bytes(row.path)).bytes
    return {
        path: (
            row.or_label,
            row.group_id,
            row.reason,
            *((row.bytes, row.data and bytes(row.data)) if "data" in row else ()),
        )
        for path, row in found.items()
    }


UNSAFE = "unsafe name: it leads out of its folder"


def test_parquet_files_carry_their_images(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "x" / "part-0.parquet", {name: column[:4] for name, column in ROWS.items()})
    _write(tmp_path / "x" / "part-1.parquet", {name: column[4:] for name, column in ROWS.items()})
    _write(tmp_path / "_temporary" / "part-2.parquet", ROWS)
    (tmp_path / "x" / "_SUCCESS").write_bytes(b"")
    listing = _parquet(spark, tmp_path, or_split="s", **NAMES)
    assert _found(listing.entries) == {
        b"a/1": ("3", "p", None, 3, b"one"),
        b"a/2": ("3", "p", "several rows of this path: 2", 0, None),
        b"b/3": ("4", "q", None, 5, b"three"),
        b"x/part-0/3": ("4", "q", None, 4, b"four"),
        b"../4": (None, "r", UNSAFE, 4, b"five"),
    }
    assert listing.entries.columns == [*ARROW_ENTRIES.names, "data"]
    assert listing.bare is not None
    assert listing.bare.columns == ARROW_ENTRIES.names
    assert {path: row[:3] for path, row in _found(listing.bare).items()} == {
        path: row[:3] for path, row in _found(listing.entries).items()
    }


def test_structs_of_bytes_and_path_are_understood(spark: SparkSession, tmp_path: Path) -> None:
    images = [{"bytes": b"1", "path": "one.png"}, {"bytes": b"22", "path": None}, {"bytes": None, "path": "three.png"}]
    _write(tmp_path / "train.parquet", {"image": images, "label": [0, 1, 0]})
    listing = _parquet(spark, tmp_path / "train.parquet", or_split="rest")
    rows = listing.entries.collect()
    assert _found(rows) == {
        b"one.png": ("0", None, None, 1, b"1"),
        b"train/1": ("1", None, None, 2, b"22"),
        b"three.png": ("0", None, "no bytes in its row", 0, None),
    }
    assert {bytes(row.or_split) for row in rows} == {b"rest"}


def test_without_paths_rows_are_numbered_through_their_file(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "many.parquet", {"image": [b"%d" % number for number in range(2500)]}, rows=900)
    listing = _parquet(spark, tmp_path, label_type="none")
    found = _found(listing.entries)
    assert {path: row[4] for path, row in found.items()} == {b"many/%d" % row: b"%d" % row for row in range(2500)}
    assert listing.bare is not None
    assert set(_found(listing.bare)) == set(found)


def test_parquet_on_s3_is_read_like_local_parquet(
    spark: SparkSession, s3: S3, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "1.parquet", {name: column[:3] for name, column in ROWS.items()})
    s3.make_bucket(keyspace)
    storage = Storage(f"s3://{keyspace}", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    storage.write_bytes("x/1.parquet", (tmp_path / "1.parquet").read_bytes())
    use(s3, monkeypatch)
    with secrets_on_executors(spark):
        listing = _parquet(spark, f"s3://{keyspace}/x/1.parquet", **NAMES)
        rows = listing.entries.collect()
        assert _found(rows) == {
            b"a/1": ("3", "p", None, 3, b"one"),
            b"a/2": ("3", "p", None, 3, b"two"),
            b"b/3": ("4", "q", None, 5, b"three"),
        }
        assert {bytes(row.place) for row in rows} == {f"s3://{keyspace}/x/1.parquet".encode()}
        with pytest.raises(SourceError, match="nothing there"):
            _parquet(spark, f"s3://{keyspace}/none.parquet", **NAMES)


def test_spark_tables_are_listed_like_parquet(spark: SparkSession) -> None:
    rows = list(zip(*ROWS.values(), strict=True))
    rows_of(spark, rows, "name STRING, picture BINARY, class INT, patient STRING").createOrReplaceTempView("pics")
    listing = _table(spark, "pics", or_split="s", **NAMES)
    assert _found(listing.entries) == {
        b"a/1": ("3", "p", None, 3, b"one"),
        b"a/2": ("3", "p", "several rows of this path: 2", 0, None),
        b"b/3": ("4", "q", None, 5, b"three"),
        b"": ("4", "q", "no path", 4, b"four"),
        b"../4": (None, "r", UNSAFE, 4, b"five"),
    }
    assert listing.entries.columns == [*ARROW_ENTRIES.names, "data"]
    assert listing.bare is not None
    assert {path: row[:3] for path, row in _found(listing.bare).items()} == {
        path: row[:3] for path, row in _found(listing.entries).items()
    }


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("BOOLEAN", [True, False, None], ["True", "False", None]),
        ("DOUBLE", [2.0, float("nan"), 0.5], ["2", None, "0.5"]),
        ("FLOAT", [-1.0, 1e8, None], ["-1", "100000000", None]),
    ],
)
def test_labels_of_spark_tables_mean_the_same_as_those_of_parquet(
    spark: SparkSession, kind: str, values: list[Any], wanted: list[str | None]
) -> None:
    names = [str(place) for place in range(len(values))]
    rows = [(name, bytearray(b"x"), value) for name, value in zip(names, values, strict=True)]
    rows_of(spark, rows, f"name STRING, picture BINARY, class {kind}").createOrReplaceTempView("kinds")
    listing = _table(spark, "kinds", path_column="name", image_column="picture", label_column="class")
    assert listing.bare is not None
    found = {bytes(row.path).decode(): row.or_label for row in listing.bare.collect()}
    assert found == dict(zip(names, wanted, strict=True))


def test_tables_that_cannot_be_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    parquet, table = (partial(one, spark, label_type="none") for one in (_parquet, _table))
    with pytest.raises(SourceError, match=r"Wanted Parquet files at .*Found: none"):
        parquet(tmp_path)
    _write(tmp_path / "a.parquet", {"image": ["text"], "other": [{"x": 1}], "good": [b"1"]})
    with pytest.raises(SourceError, match=r"the columns name, picture in .*Found: image, other, good\."):
        parquet(tmp_path, path_column="name", image_column="picture")
    with pytest.raises(SourceError, match="Found: another type"):
        parquet(tmp_path)
    with pytest.raises(SourceError, match="Found: a struct of x"):
        parquet(tmp_path, image_column="other")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 is not all of it")
    broken = parquet(tmp_path, image_column="good")
    with pytest.raises(PySparkException, match=r"Wanted to read Parquet at .*b\.parquet"):
        broken.entries.collect()
    with pytest.raises(SourceError, match=r"Wanted to read Parquet at .*b\.parquet"):
        parquet(tmp_path / "b.parquet", image_column="good")
    with pytest.raises(SourceError, match="Wanted the table nowhere"):
        table("nowhere", path_column="name", image_column="picture")
    rows_of(spark, [("a", b"1")], "name STRING, picture BINARY").createOrReplaceTempView("plain")
    with pytest.raises(SourceError, match="Found: name, picture"):
        table("plain", path_column="name")
    with pytest.raises(SourceError, match="Wanted --path-column"):
        table("plain", image_column="picture")
