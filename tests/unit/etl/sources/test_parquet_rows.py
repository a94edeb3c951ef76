"""Row groups of Parquet files are read in small batches, and only the requested columns."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.sources.parquet_rows import Columns, read_groups


def _write(path: Path, columns: dict[str, Any], *, rows: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows)


def _read(path: Path, *, with_data: bool, columns: Columns) -> Iterator[pa.RecordBatch]:
    metadata = pq.read_metadata(path)
    group = pa.record_batch(
        [[path.name.encode()], [0], [0], [metadata.num_rows], [metadata.row_group(0).total_byte_size]],
        names=["file", "number", "first", "rows", "size"],
    )
    read = partial(read_groups, folder=str(path.parent), columns=columns, dataset="d", or_split=b"")
    return read([group], with_data=with_data)


def test_batches_stay_small_however_large_the_row_group(tmp_path: Path) -> None:
    sizes = [10, 9 << 20, 9 << 20, 20 << 20, 1, 2]
    _write(tmp_path / "large.parquet", {"image": [bytes(size) for size in sizes]}, rows=100)
    batches = list(_read(tmp_path / "large.parquet", with_data=True, columns=Columns(data="image", path=None)))
    assert [size for batch in batches for size in batch.column("bytes").to_pylist()] == sizes
    assert all(sum(batch.column("bytes").to_pylist()) <= 16 << 20 or batch.num_rows == 1 for batch in batches)


def test_a_listing_without_images_does_not_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "some.parquet", {"image": [{"bytes": b"1", "path": "a"}], "label": [1]})
    asked: list[list[str]] = []
    read = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, **options: Any) -> Any:
        asked.append(options["columns"])
        return read(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    columns = Columns(data="image\0bytes", path="image\0path", label="label")
    for with_data in (False, True):
        (batch,) = _read(tmp_path / "some.parquet", with_data=with_data, columns=columns)
        assert batch.column("path").to_pylist() == [b"a"]
    assert asked == [["image.path", "label"], ["image.path", "label", "image.bytes"]]
