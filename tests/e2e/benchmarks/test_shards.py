"""The parts of the benchmark of shards that can be right or wrong; nothing here is timed."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.command import Parts
from benchmarks.harness.courses import Course
from benchmarks.harness.processes import answer_of
from benchmarks.shards import decoded, order, streaming, writing
from benchmarks.shards.__main__ import LISTED, measure_on
from benchmarks.shards.decoded import BATCH
from benchmarks.shards.figures import FIGURES, FULL, LIMIT, QUICK, Sizes
from benchmarks.shards.order import buffer_shuffled, left_of, order_in, ranks, spearman
from benchmarks.shards.readers import READERS, Meter, cpu_of_all
from benchmarks.shards.rivals import BY_ROW, Rival
from benchmarks.shards.stage import PICTURES, Run, ShardStage
from benchmarks.shards.writers import WRITERS, files_of
from formats.shards.layout import keys

TINY = Sizes(
    pictures=12, classes=3, maxsize=1, decoded=64, keys=1, many_pairs=1, pairs=1, written=1, seeds=1, buffer=2
)  # fmt: skip


def run(*, rate: float = 1_000.0, begun: float = 2.0) -> Run:
    """A reader that got 3,000 pictures of 100 kB at a rate, for a CPU millisecond each behind ``begun`` seconds."""
    times = [1_000 * part / rate for part in (1, 2, 3)]
    course = Course([0.0, *times[:-1]], times, [1_000] * 3, [begun + part for part in (1.0, 2.0, 3.0)])
    return Run(course, {"begun": begun, "sums": {"bytes": 300_000_000}, "version": "1"}, 0.3, None)


def test_every_figure_has_one_part_that_measures_it() -> None:
    parts = (
        *(writing.NUMBERS, streaming.BESIDE, streaming.FAR),
        *(decoded.NUMBERS, LISTED, order.NUMBERS),
    )
    assert [number for part in parts for number in part] == list(FIGURES) == list(range(1, 11))
    assert len({figure.text for figure in FIGURES.values()}) == len(FIGURES)
    targets = [(figure.op, figure.target) for figure in FIGURES.values()]
    assert targets[:5] == [(">=", 1.5), ("<", 250), (">=", 2), (">", 1), (">", 1)]
    assert targets[5:] == [(">=", 0.9), (">=", 0.9), (">=", 0.93), ("<", 60), ("<=", 2.58)]
    for number, figure in FIGURES.items():
        assert FIGURES.value_row(number, figure.target, note="").met == ("=" in figure.op)  # every operator is known


def test_rivals_have_readers_writers_and_pinned_versions() -> None:
    assert {rival.name for rival in BY_ROW.values()} == set(WRITERS) == set(READERS) - {"ours"}
    assert all("==" in requirement for rival in BY_ROW.values() for requirement in rival.requirements)
    for sizes in (FULL, QUICK):
        assert sizes.decoded % BATCH == 0
        assert sizes.decoded <= sizes.pictures
        assert sizes.decoded // BATCH >= 3
        assert sizes.pictures > 3 * sizes.buffer
        assert sizes.pictures % sizes.classes == 0


def test_a_rival_that_cannot_be_installed_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.shards.rivals.PLACE", tmp_path)
    monkeypatch.setattr("benchmarks.shards.rivals.shutil.which", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match=r"Wanted uv.*Found: none"):
        Rival("nothing", ("nothing==0",)).install()
    assert not list(tmp_path.glob("rivals-*"))


def test_ranks_of_equal_values_are_their_mean() -> None:
    assert ranks([10, 30, 20]).tolist() == [1, 3, 2]
    assert ranks([5, 1, 5, 5, 9]).tolist() == [3, 1, 3, 3, 5]


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], 1.0),
        ([1, 2, 3, 4, 5], [10, 8, 6, 4, 2], -1.0),
        ([1, 2, 3, 4, 5], [5, 6, 7, 8, 7], 0.8207826816681233),
        ([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17], -0.17575757575757575),
    ],
)
def test_spearman_has_its_known_values(one: list[float], other: list[float], wanted: float) -> None:
    assert spearman(one, other) == pytest.approx(wanted)


@given(st.permutations(range(20)))
def test_without_ties_spearman_is_its_short_formula(order: list[int]) -> None:
    apart = sum((place - found) ** 2 for place, found in enumerate(order))
    assert spearman(range(20), order) == pytest.approx(1 - 6 * apart / (20 * (20**2 - 1)))


def test_spearman_rejects_inputs_with_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="different values"):
        spearman([1, 1, 1], [1, 2, 3])


def test_a_full_shuffle_passes_and_a_buffer_fails() -> None:
    labels = np.arange(20_000) * 100 // 20_000
    for seed in range(5):
        random = np.random.default_rng(seed)
        assert left_of(random.permutation(20_000).tolist(), labels).most <= LIMIT
        ahead = np.arange(20_000) + random.uniform(0, 5_000, 20_000)  # as far as a buffer reaches
        assert left_of(np.argsort(ahead).tolist(), labels).places > 10 * LIMIT
    assert left_of(range(20_000), labels).places == pytest.approx(19_999**0.5)


@pytest.mark.slow
def test_the_buffer_of_webdataset_fails() -> None:
    labels = np.arange(20_000) * 100 // 20_000
    for seed in range(5):
        found = left_of(buffer_shuffled(20_000, 5_000, seed=seed), labels)
        assert min(found.places, found.labels) > 10 * LIMIT


def test_an_order_with_missing_or_repeated_pictures_is_refused() -> None:
    for wrong in ([0, 1], [0, 1, 1], [0, 1, 3]):
        with pytest.raises(ValueError, match="Wanted each of 3 pictures once"):
            left_of(wrong, np.zeros(3, dtype=np.int64))


def test_the_order_of_shards_is_that_of_names_and_samples(tmp_path: Path) -> None:
    paths = [f"class_{number // 2}/{number}.jpg" for number in range(6)]
    new = [4, 0, 5, 2, 1, 3]
    for shard, members in ((1, new[3:]), (0, new[:3])):
        with tarfile.open(tmp_path / f"shard-{shard:06}.tar", "w") as tar:
            for key, place in zip(keys(3 * shard, 3, 6), members, strict=True):
                for extension, data in (("jpg", b"x"), ("json", json.dumps({"path": paths[place]}).encode())):
                    about = tarfile.TarInfo(f"{key}.{extension}")
                    about.size = len(data)
                    tar.addfile(about, io.BytesIO(data))
    assert order_in(tmp_path, {path: place for place, path in enumerate(paths)}) == new


def test_a_meter_reports_thirds_and_sums() -> None:
    samples = [(bytes(18) + number.to_bytes(16) + b"\xff\xd9", number) for number in range(10)]
    answer = Meter(10).run(samples)
    assert answer["counts"] == [3, 3, 4]
    assert answer["sums"] == {"images": 10, "bytes": 360, "labels": 45, "ids": 45}
    assert len(answer["got"]) == len(answer["cpu"]) == len(answer["asked"]) == 3
    assert answer["begun"] <= answer["cpu"][0] <= answer["cpu"][2] <= cpu_of_all()
    for found in (samples[:9], [*samples, samples[0]]):
        with pytest.raises(RuntimeError, match=f"Wanted 10 pictures. Found: {len(found)}"):
            Meter(10).run(found)


def test_readers_total_what_was_planted(tmp_path: Path) -> None:
    stage = ShardStage(tmp_path, TINY)
    stage._plant()
    files = files_of(str(stage.tree))
    assert files == files_of(str(stage.tree)) != sorted(files)
    assert sorted(label for _, label in files) == sorted(stage.labels().tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    samples = (((stage.tree / path).read_bytes(), label) for path, label in files)
    assert Meter(12).run(samples)["sums"] == stage.sums()
    assert PICTURES.is_decodable


def test_runs_are_counted_by_whole_epochs() -> None:
    assert run().per_cpu_second == pytest.approx(1_000)
    assert run(rate=500).whole_rate == pytest.approx(500)
    assert run(rate=2_000).mb_per_s == pytest.approx(200)
    assert "1,000 images per client CPU second, 500 images/s" in streaming.describe([run(rate=500)])


def test_slow_readers_and_slow_proxies_void_a_comparison() -> None:
    fast, slow = [run(rate=2_000)], [run(rate=900)]
    assert not streaming.void_of(fast, fast, capacity=500)
    assert "90 MB/s is less than 100 MB/s" in streaming.void_of(slow, fast, capacity=500)
    assert "less than twice 200 MB/s" in streaming.void_of(fast, fast, capacity=300)


def test_the_answer_is_the_last_line_of_json() -> None:
    assert answer_of(b'noise\n{"a": 1}\n{"a": 2}\nleaked: 1\n') == {"a": 2}
    with pytest.raises(RuntimeError, match="Wanted a line of JSON"):
        answer_of(b"noise\n")


def test_a_part_that_fails_leaves_rows_that_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr("benchmarks.shards.writing.prepare", fails)
    monkeypatch.setattr("benchmarks.shards.writing.rows_of_writing", fails)
    monkeypatch.setattr("benchmarks.shards.order.rows_of_order", fails)
    monkeypatch.setattr("benchmarks.shards.listing.rows_of_listing", fails)
    parts = Parts(FIGURES, FIGURES, is_quick=True)
    measure_on(ShardStage(tmp_path, TINY), parts)
    assert sorted(parts.rows) == list(FIGURES)
    assert not parts.is_whole
    assert all(row.value is None and "no such thing" in row.note for row in parts.rows.values())
