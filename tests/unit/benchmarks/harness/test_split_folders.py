"""The loader opens split folders of any size."""

import uuid
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import loader
from benchmarks.harness.pictures import TABLE_CLASSES, Images
from benchmarks.harness.split_folders import write_split
from schemas import TableName

BLOBS = Images("bench.blobs", kind=1)


@pytest.mark.parametrize(("rows", "distinct"), [(25, 10), (7, 7), (30, 10)])
def test_splits_larger_than_the_table_repeat_its_images(tmp_path: Path, rows: int, distinct: int) -> None:
    part = write_split(tmp_path / "split", BLOBS, rows=rows, distinct=distinct)
    split = loader.open_split(tmp_path / "split", cache=tmp_path / "cache")  # its fingerprint is checked
    numbers = np.arange(rows) % distinct
    assert np.array_equal(split.ids, BLOBS.ids(numbers))
    assert split.labels is not None
    assert split.labels.tolist() == numbers.tolist()
    assert part.counts == split.counts == dict(Counter(numbers.tolist()))
    assert TableName.parse(split.data_table) == TableName("bench", "blobs")
    assert str(uuid.UUID(bytes=split.ids[0].tobytes())) != str(uuid.UUID(int=0))


def test_large_splits_have_files_of_a_million_rows(tmp_path: Path) -> None:
    part = write_split(tmp_path / "split", BLOBS, rows=1_000_100)
    assert [file.rows for file in part.files] == [1_000_000, 100]
    assert (sum(part.counts.values()), len(part.counts)) == (1_000_100, TABLE_CLASSES)
    assert len(loader.open_split(tmp_path / "split", cache=tmp_path / "cache")) == 1_000_100
