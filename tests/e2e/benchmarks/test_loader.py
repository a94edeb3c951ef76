"""The parts of the benchmark of the loader that can be right or wrong; nothing here is timed."""

import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import loader
from benchmarks.harness.courses import Course
from benchmarks.harness.images import CLASSES, Images, id_sum, sums_of
from benchmarks.harness.loader_stage import FULL, QUICK, LoaderStage, Run, check
from benchmarks.harness.split_folders import write_split
from benchmarks.loader import copies, decoded, opening, rates
from benchmarks.loader.figures import FIGURES
from benchmarks.loader.plot import draw
from schemas import TableName

BLOBS = Images("bench.blobs", kind=1)
PICTURES = Images("bench.pictures", kind=2, is_decodable=True)


def course(got: list[float], *, asked: list[float] | None = None, count: int = 100, cpu: float = 0.01) -> Course:
    """Batches that came at these times, asked for when the one before came."""
    return Course(
        asked or [0.0, *got[:-1]], got, [count] * len(got), [cpu * (number + 1) for number in range(len(got))]
    )


def test_every_figure_has_one_part_that_measures_it() -> None:
    parts = (
        *(rates.DIRECT, rates.FAR, rates.DEMANDED, rates.HELD),
        *(decoded.NUMBERS, opening.NUMBERS, copies.NUMBERS),
    )
    assert sorted(number for part in parts for number in part) == list(FIGURES) == list(range(1, 17))
    assert len({figure.text for figure in FIGURES.values()}) == len(FIGURES)
    for number, figure in FIGURES.items():
        assert FIGURES.value_row(number, figure.target, note="").met == ("=" in figure.op)  # every operator is known


def test_runs_read_far_more_than_the_memory_budget() -> None:
    for sizes in (FULL, QUICK):
        shortest = min(sizes.fetched, sizes.held, sizes.demanded, sizes.compared)
        assert 110_000 * shortest > 5 * sizes.budget
        assert sizes.decoded % sizes.batch == 0  # the reader of files gives whole batches
        assert max(sizes.blobs, sizes.pictures) <= CLASSES  # labels tell images apart


def test_the_steady_rate_excludes_the_first_third() -> None:
    slow_start = course([10.0, 20.0, 21.0, 22.0, 23.0, 24.0])
    assert slow_start.rate == pytest.approx(100)
    assert slow_start.cpu_ms == pytest.approx(0.1)
    assert slow_start.images == 600
    assert course([1.0, 2.0, 4.0]).rate == pytest.approx(200 / 3)


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_batches_have_no_steady_part(count: int) -> None:
    with pytest.raises(ValueError, match=f"Wanted three batches or more.*{count}"):
        course([1.0, 2.0][:count])
    with pytest.raises(ValueError, match="all that belongs to them"):
        Course([0.0] * 4, [1.0] * 4, [1] * 3, [0.0] * 4)


def test_a_stall_is_time_between_asking_and_getting() -> None:
    # A consumer that takes a second for each batch, and waits for the first and for the last.
    found = course([0.5, 1.5, 2.5, 3.5, 4.5, 6.5], asked=[0.0, 1.5, 2.5, 3.5, 4.5, 5.5])
    assert found.stall_share(begins=0) == pytest.approx(1.5 / 6.5)
    assert found.stall_share() == pytest.approx(1.0 / 5.0)
    never = course([0.0, 1.0, 2.0], asked=[0.0, 1.0, 2.0])
    assert never.stall_share() == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=3, max_size=30))
def test_stall_share_is_the_share_of_time_spent_waiting(steps: list[tuple[float, float]]) -> None:
    asked, got, now = [], [], 0.0
    for wait, work in steps:
        asked.append(now)
        got.append(now + wait)
        now = got[-1] + work
    found = course(got, asked=asked)
    waits = sum(wait for wait, _ in steps)
    assert found.stall_share(begins=0) == pytest.approx(waits / got[-1] if got[-1] else 0.0, abs=1e-9)


def test_a_rate_is_reached_once_a_window_of_images_sustains_it() -> None:
    ramp = [2.0, 3.0, 3.5, 3.8, *(4.0 + 0.1 * number for number in range(20))]
    found = course(ramp)
    assert found.seconds_to(0.9 * 1000, window=500) == pytest.approx(4.0)
    assert found.seconds_to(300, window=200) == pytest.approx(3.5)
    assert found.seconds_to(10, window=200) == 0.0
    assert found.seconds_to(2000, window=500) is None
    assert found.seconds_to(10, window=100_000) is None  # there are not so many


def test_a_short_burst_does_not_count_as_a_rate() -> None:
    """Ten batches that were ready together, and a second without any, again and again."""
    got = [float(1 + number // 10) for number in range(40)]
    assert course(got).seconds_to(2_000, window=2_048) is None
    assert course(got).seconds_to(900, window=2_048) == pytest.approx(1.0)


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


def test_images_that_a_consumer_missed_are_found() -> None:
    wanted = asdict(sums_of(BLOBS, np.arange(10, dtype=np.int64)))
    check({"sums": wanted}, wanted, "fetch")
    check({"sums": {"labels": 45}}, wanted, "decode")
    with pytest.raises(
        RuntimeError, match=r"Wanted the same images from fetch. Found: sums .* \{'labels': \(45, 46\)\}"
    ):
        check({"sums": {**wanted, "labels": 46}}, wanted, "fetch")


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
    assert (sum(part.counts.values()), len(part.counts)) == (1_000_100, CLASSES)
    assert len(loader.open_split(tmp_path / "split", cache=tmp_path / "cache")) == 1_000_100


def test_a_ratio_is_void_where_the_proxy_may_be_the_limit(tmp_path: Path) -> None:
    stage = LoaderStage(tmp_path, QUICK)
    run = Run(course([1.0, 2.0, 3.0], count=1_000), {}, 0.0, None)  # 110 MB/s
    stage.capacity = 200.0
    reason = stage.void([run])
    assert reason == "the proxy alone carries 200 MB/s, less than twice 110 MB/s"
    row = FIGURES.ratio_row(3, [2.0, 2.0], [1.0, 1.0], note="", void=reason)
    assert (row.value, row.interval, row.met, row.note) == (
        None,
        None,
        None,
        f"void: {reason}; 2.00 (2.00 to 2.00) ratio; ",
    )
    stage.capacity = 220.0
    assert stage.void([run]) == ""


def test_the_plot_has_a_line_for_each_way_to_read(tmp_path: Path) -> None:
    curves = {"in order": {0.0: 2_500.0, 0.3: 2_300.0}, "torch": {0.0: 900.0, 0.3: 13.0}}
    with Image.open(draw(tmp_path / "new" / "loader.png", curves)) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {(0x1F, 0x6F, 0xEB), (0xD9, 0x82, 0x2B)} < colours
    assert draw(tmp_path / "empty.png", {}).exists()
