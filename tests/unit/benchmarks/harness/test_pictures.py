"""Trees and tables of images for benchmarks."""

import hashlib
import io
import os
import uuid
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.harness.picture_rows import (
    DATA,
    DATA_COLUMNS,
    INSERTS,
    METADATA,
    METADATA_COLUMNS,
    TABLES,
    Origin,
    arrow_rows,
    arrow_schema_of,
    list_paths,
    our_id,
    rows_of,
)
from benchmarks.harness.pictures import Images, id_sum, picture, plant_empty, plant_pictures, require_room, sums_of
from etl.pictures.images import read_header
from schemas import image_id

BLOBS = Images("bench.blobs", kind=1)
PICTURES = Images("bench.pictures", kind=2, is_decodable=True)


@given(seed=st.integers(0, 1 << 40), size=st.integers(1_000, 300_000))
def test_pictures_have_the_requested_size_and_decode(seed: int, size: int) -> None:
    data = picture(seed, size)
    assert len(data) == size
    assert data.endswith(b"\xff\xd9")
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert (image.format, image.size) == ("JPEG", (64, 48))
    header = read_header(data)
    assert (header.format, header.width, header.height) == ("JPEG", 64, 48)


def test_a_size_below_the_minimum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Found: 100 bytes, and the smallest has \d+"):
        picture(1, 100)


def test_planted_pictures_are_all_different_and_add_up(tmp_path: Path) -> None:
    planted = plant_pictures(tmp_path / "tree", 25, size=2_000, first_seed=7)
    files = [tmp_path / "tree" / path for path in list_paths(str(planted.root))]
    assert len(files) == planted.files == 25
    assert sum(file.stat().st_size for file in files) == planted.bytes == 50_000
    assert len({hashlib.sha256(file.read_bytes()).digest() for file in files}) == 25
    assert len({file.parent.name for file in files}) == 10


def test_empty_files_are_spread_over_folders(tmp_path: Path) -> None:
    plant_empty(tmp_path, 60, folders=3)
    assert [len(os.listdir(folder)) for folder in sorted(tmp_path.iterdir())] == [20, 20, 20]
    assert len(list_paths(str(tmp_path))) == 60


def test_too_little_room_is_refused(tmp_path: Path) -> None:
    require_room(tmp_path, bytes=1, files=1)
    with pytest.raises(OSError, match="Wanted 1000000000 GB and 1 files free"):
        require_room(tmp_path, bytes=10**18, files=1)


def test_rows_have_all_columns_and_our_ids() -> None:
    data = picture(3, 5_000)
    path = "class_4/000003.jpg"
    origin = Origin.of("/data")
    blob, metadata = rows_of(path, data, id=our_id(path), origin=origin)
    stored, known = dict(zip(DATA_COLUMNS, blob, strict=True)), dict(zip(METADATA_COLUMNS, metadata, strict=True))
    assert stored == {"id": image_id("bench", b"", path.encode()), "label": 4, "data": data}
    assert (known["bytes"], known["sha256"]) == (5_000, hashlib.sha256(data).digest())
    assert (known["or_label"], known["path"], known["source"]) == ("class_4", path, "file:///data")
    assert isinstance(known["ingest_id"], uuid.UUID)
    for table, row in ((DATA, blob), (METADATA, metadata)):
        written = {name: str(value) if isinstance(value, uuid.UUID) else value
                   for name, value in zip(TABLES[table], row, strict=True)}  # fmt: skip
        assert arrow_rows([row], arrow_schema_of(table)).to_pylist() == [written]
    assert INSERTS[0] == 'INSERT INTO "bench"."data" (id, label, data) VALUES (?, ?, ?)'


def test_ids_and_lengths_are_computed_without_generating_the_images() -> None:
    numbers = np.array([0, 1, 996, 5_000_000_000], dtype=np.int64)
    for images in (BLOBS, PICTURES):
        rows = list(images.rows(numbers))
        assert len({id for id, _, _ in rows}) == 4
        assert [len(data) for _, _, data in rows] == [images.length(number) for number in numbers.tolist()]
        assert all(data.startswith(b"\xff\xd8") and data.endswith(id) for id, _, data in rows)
        assert all(95_000 < len(data) < 125_000 for _, _, data in rows)
        assert np.array_equal(images.ids(numbers[::-1]), images.ids(numbers)[::-1])
    many = np.arange(100_000, dtype=np.int64)
    both = np.concatenate([BLOBS.ids(many), PICTURES.ids(many)])
    assert len(np.unique(both, axis=0)) == 200_000


def test_sums_count_every_time_an_image_comes() -> None:
    numbers = np.arange(25, dtype=np.int64) % 10
    rows = [row for number in numbers for row in BLOBS.rows(np.array([number]))]
    ids = np.frombuffer(b"".join(id for id, _, _ in rows), dtype=np.uint8).reshape(-1, 16)
    halves = [int.from_bytes(id[at : at + 8]) for id, _, _ in rows for at in (0, 8)]
    found = sums_of(BLOBS, numbers)
    assert id_sum(ids) == sum(halves) % (1 << 64)
    assert asdict(found) == {
        "images": 25,
        "bytes": sum(len(data) for _, _, data in rows),
        "labels": sum(label for _, label, _ in rows),
        "ids": id_sum(ids),
    }
