"""The parts of the ingest benchmark that can be right or wrong; nothing here is timed."""

import hashlib
import io
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.harness.pairs import paired_ratio
from benchmarks.harness.picture_rows import (
    DATA,
    DATA_COLUMNS,
    METADATA_COLUMNS,
    Origin,
    insert,
    list_paths,
    our_id,
    rows_of,
)
from benchmarks.harness.pictures import picture, plant_empty, plant_pictures, require_room
from benchmarks.harness.processes import anonymous_mb, cpu_seconds, descendants, quarter_peaks
from benchmarks.ingest.plot import draw
from etl.pictures.images import read_header
from schemas import image_id


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
    assert insert(DATA, DATA_COLUMNS) == 'INSERT INTO "bench"."data" ("id", "label", "data") VALUES (?, ?, ?)'


def test_peaks_are_reported_for_each_quarter_of_the_run() -> None:
    samples = [(0.0, 5.0), (9.9, 1.0), (10.0, 2.0), (12.6, 3.0), (15.1, 9.0), (15.2, 4.0), (20.0, 6.0), (20.1, 50.0)]
    assert quarter_peaks(samples, start=10.0, end=20.0) == [2.0, 3.0, 9.0, 6.0]
    assert quarter_peaks([], start=0.0, end=1.0) == [0.0] * 4


@given(ratios=st.lists(st.floats(0.1, 10), min_size=2, max_size=10), other=st.floats(0.1, 1e3))
def test_ratios_are_paired(ratios: list[float], other: float) -> None:
    others = [other * (1 + number) for number in range(len(ratios))]
    ours = [ratio * one for ratio, one in zip(ratios, others, strict=True)]
    ratio, (low, high) = paired_ratio(ours, others)
    assert min(ratios) * 0.999 <= ratio <= max(ratios) * 1.001
    assert low <= high


def test_equal_ratios_give_an_interval_of_zero_width() -> None:
    ratio, interval = paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio, *interval) == pytest.approx((2.0, 2.0, 2.0))
    with pytest.raises(ValueError, match="Found: 1"):
        paired_ratio([1.0], [1.0])


def test_processes_are_found_and_measured() -> None:
    assert os.getpid() in descendants(os.getppid())
    assert descendants(os.getpid(), without=(os.getpid(),)) == []
    assert anonymous_mb(os.getpid()) > 1
    assert cpu_seconds(os.getpid()) > 0
    gone = 1 << 30
    assert (anonymous_mb(gone), cpu_seconds(gone)) == (0.0, 0.0)


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    speeds = {"ours": [80.0, 82.0], "bare": [93.0], "none": []}
    with Image.open(draw(tmp_path / "build" / "a.png", speeds=speeds, memory=[(0.0, 100.0), (1.0, 310.0)])) as image:
        assert image.size == (900, 640)
