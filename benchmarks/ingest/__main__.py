"""How an ingest compares with other ways to write the same rows: its speed, memory, listing and resuming.

    make bench-ingest

An embedded Cassandra and Spark share two cores; the source is a tree of distinct images of 110 kB. The contenders
run in turn, each into empty tables. After each run, rows, bytes and the hashes of some images are checked. Then the
memory of a worker and the listing of a million files are measured in separate processes. QUICK=1 measures less; a
figure that means nothing at that size has no value, and its note has what was measured.
"""

import shutil
import statistics
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.harness.command import Draw, Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.pictures import PICTURE_BYTES, Planted, plant_empty, plant_pictures, require_room
from benchmarks.harness.processes import SparkMemory, quarter_peaks, run_process, worker
from benchmarks.harness.results import PLACE, Row, tell
from benchmarks.ingest.baselines import connector, one_at_a_time, usual_way
from benchmarks.ingest.damage import seconds_of_checks
from benchmarks.ingest.fixture import IngestFixture, Run, describe, ingest_fixture
from benchmarks.ingest.plot import draw

PROCESS_SECONDS = 600


_LONGER = "more work than a job's start"
_FILES = "a million files"
_FILES_IN = "listing 1,000,000 files in"
_OURS = "our MB/s over"
FIGURES = Figures(
    {
        1: Figure(f"{_OURS} a bare asynchronous writer's", ">=", 0.85, needs=_LONGER),
        2: Figure(f"{_OURS} inserts one at a time", ">=", 5),
        3: Figure(f"{_OURS} the usual Spark way's", ">=", 1.6, needs=_LONGER),
        4: Figure(f"{_OURS} the connector's, same DataFrame", ">=", 1.5, needs=_LONGER),
        5: Figure("Python memory of one executor worker, 5 GB passing through", "<", 300, "MB"),
        6: Figure("its last quarter over the second", "<=", 1.05, needs="5 GB passing through"),
        7: Figure(f"{_FILES_IN} 1,000 folders", "<", 60, "s", _FILES),
        8: Figure("driver memory while listing 1,000 folders", "<", 1500, "MB", _FILES),
        9: Figure(f"{_FILES_IN} one folder", "<", 60, "s", _FILES),
        10: Figure("driver memory while listing one folder", "<", 1500, "MB", _FILES),
        11: Figure(
            "--resume over 60,000 pictures that are all there, times as fast as the first run", ">=", 10, needs=_LONGER
        ),
        12: Figure("--check full of JPEGs, time over Pillow's decoder, which tells no warnings", "<=", 1.2),
    }
)
WRITTEN = (1, 2, 3, 4, 11)
PASSED = (5, 6)
LISTED = ((7, 8), (9, 10))
"""In many folders, and in one."""
CHECKED = (12,)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    pictures: int = 20_000
    rounds: int = 3
    """Runs of every contender, alternating."""
    pairs: int = 5
    """Runs of our job and the bare writer, including those of all contenders."""
    few: int = 8_000
    """The number of images that the other baselines write, because they take long."""
    one_at_a_time: int = 300
    resumed: int = 60_000
    resumed_bytes: int = 5_000
    memory_bytes: int = 5_000_000_000
    listed: int = 1_000_000
    folders: int = 1_000
    checked: int = 320
    disk_bytes: int = 12_000_000_000


FULL = Scale()
QUICK = Scale(1_000, 3, 3, 1_000, 40, 3_000, 5_000, 500_000_000, 30_000, 30, 64, 3_000_000_000)

Speeds = dict[str, list[float]]


def rows_of_writing(folder: Path, scale: Scale, speeds: Speeds, wanted: Collection[int]) -> dict[int, Row]:
    """Measure writing and resuming, which need the server; MB/s of every run go to ``speeds``, by contender."""
    tell(f"{scale.pictures:,} pictures of {PICTURE_BYTES:,} bytes")
    tree = plant_pictures(folder / "tree", scale.pictures)
    small = plant_pictures(folder / "resumed", scale.resumed, size=scale.resumed_bytes)
    tell("server, Spark, bare writer")
    few = f"{scale.few:,} pictures of them"
    rows: dict[int, Row] = {}
    with ingest_fixture(folder, tree) as fixture:
        remark = fixture.warm_up()
        tell(remark)
        slow = f"{few}; the connector as it comes: 5 writes in flight a task"
        others: dict[int, tuple[str, Callable[[], Run], str]] = {
            1: ("bare", fixture.bare, f"{fixture.in_flight} in flight; {remark}"),
            2: (
                "one at a time",
                partial(fixture.baseline, one_at_a_time, scale.one_at_a_time),
                f"{scale.one_at_a_time} pictures of them",
            ),
            3: ("usual Spark way", partial(fixture.baseline, usual_way, scale.few), f"{few}; blocks every 32"),
            4: ("connector", partial(fixture.baseline, connector, scale.few), slow),
        }
        others = {number: other for number, other in others.items() if number in wanted}
        contenders = {"ours": fixture.ours, **{name: work for name, work, _ in others.values()}}
        runs = in_turn(scale.rounds if others else 0, contenders, told=_told)
        if 1 in wanted:
            both = {name: contenders[name] for name in ("ours", "bare")}
            for name, found in in_turn(scale.pairs - scale.rounds, both, told=_told).items():
                runs[name] += found
        if 11 in wanted:
            rows[11] = _resuming(fixture, small, scale)
    for number, (name, _, about) in others.items():
        pair = runs["ours"][: len(runs[name])], runs[name]
        note = f"ours {describe(runs['ours'])}; {name} {describe(runs[name])}; {about}"
        rows[number] = FIGURES.ratio_row(number, *pair, by=attrgetter("mb_per_s"), note=note)
    speeds.update({name: [run.mb_per_s for run in found] for name, found in runs.items()})
    return rows


def _told(name: str, run: Run) -> str:
    return f"{name}: {run.mb_per_s:.1f} MB/s, {describe([run])}"


def _resuming(fixture: IngestFixture, tree: Planted, scale: Scale) -> Row:
    resumed = []
    for turn in range(scale.rounds):
        resumed.append(fixture.first_and_resumed(tree))
        tell(f"{turn + 1}: first {resumed[-1][0]:.1f} s, resumed {resumed[-1][1]:.1f} s")
    first, again = zip(*resumed, strict=True)
    note = f"{scale.resumed:,} pictures of {scale.resumed_bytes:,} bytes, the first run "
    note += f"{scale.resumed / statistics.median(first):,.0f} images/s; in seconds, ours is the first run, other the "
    return FIGURES.ratio_row(11, first, again, note=f"{note}resumed one")


def rows_of_memory(folder: Path, scale: Scale, samples: list[tuple[float, float]]) -> dict[int, Row]:
    """Measure a worker's memory while bytes pass through; its samples (seconds, MB) go to ``samples``."""
    tell(f"{scale.memory_bytes / 1e9:g} GB through one worker")
    plant_pictures(folder / "few", 500)
    command = worker("ingest.memory:pass_through", str(folder / "few"), scale.memory_bytes)
    finished = run_process(command, limit=PROCESS_SECONDS, look=SparkMemory.of)
    done = finished.answer
    if abs(done["bytes"] - scale.memory_bytes) > PICTURE_BYTES:
        raise RuntimeError(f"Wanted {scale.memory_bytes:,} bytes to pass. Found: {done['bytes']:,}")
    start, end = done["started"], done["ended"]
    found = [(at, memory.worker) for at, memory in finished.samples if start <= at <= end]
    quarters = quarter_peaks(found, start=start, end=end)
    growth = quarters[3] / quarters[1] if quarters[1] else None
    note = f"{done['bytes'] / 1e9:.1f} GB in {end - start:.0f} s, {len(found)} samples of RssAnon; "
    note += "peaks of the quarters " + ", ".join(f"{one:.0f}" for one in quarters) + " MB"
    samples += [(at - start, value) for at, value in found]
    row = replace(FIGURES.value_row(6, growth, note="peaks"), ours=quarters[3], other=quarters[1])
    return {5: FIGURES.value_row(5, max(quarters), note=note), 6: row}


def rows_of_listing(folder: Path, scale: Scale, numbers: Collection[int], *, folders: int) -> dict[int, Row]:
    """List a tree with this many folders; return seconds and the driver's memory."""
    warm, root = folder / "warm", folder / "listed"
    if not warm.exists():
        plant_empty(warm, 100, folders=2)
    tell(f"{scale.listed:,} empty files in {folders:,} folders")
    plant_empty(root, scale.listed, folders=folders)
    tell("listing them")
    command = worker("ingest.listing:list_both", str(root), str(warm))
    finished = run_process(command, limit=PROCESS_SECONDS, look=SparkMemory.of)
    done = finished.answer
    if done["files"] != scale.listed:
        raise RuntimeError(f"Wanted {scale.listed:,} files listed. Found: {done['files']:,}")
    seconds, memory = done["seconds"], [found for _, found in finished.samples]
    driver = max(one.driver + one.jvm for one in memory)
    python, jvm, tasks = (max(getattr(one, name) for one in memory) for name in ("driver", "jvm", "worker"))
    tell(f"{seconds:.1f} s, driver {driver:.0f} MB; remove them")
    shutil.rmtree(root)
    size = f"{scale.listed:,} files in {folders:,} folders"
    note = f"{size}: {scale.listed / seconds:,.0f} files/s on 2 cores, the tree's names in the page cache"
    parts = f"{size}; RssAnon: Python {python:.0f}, JVM {jvm:.0f} MB, which is the executor too in local mode; "
    parts += f"the largest Python worker, not counted, {tasks:.0f} MB"
    found = zip(numbers, (seconds, driver), (note, parts), strict=True)
    return {number: FIGURES.value_row(number, value, note=text) for number, value, text in found}


def rows_of_checks(scale: Scale) -> dict[int, Row]:
    """Check generated JPEGs, which needs no server."""
    tell(f"checks of {scale.checked} JPEGs of 500 x 375")
    seconds = seconds_of_checks(scale.checked, rounds=5)
    header = statistics.median(seconds["header"])
    note = (
        f"{scale.checked} JPEGs of 500 x 375, 8 kinds, 4 qualities, in seconds a picture; --check header {header:.5f}"
    )
    return {12: FIGURES.ratio_row(12, seconds["full"], seconds["pillow"], note=note)}


def measure(parts: Parts, folder: Path) -> Draw:
    """Measure the requested rows."""
    scale = QUICK if parts.is_quick else FULL
    require_room(folder, bytes=scale.disk_bytes, files=scale.listed + scale.resumed + scale.pictures)
    speeds: Speeds = {}
    samples: list[tuple[float, float]] = []
    parts.measure_whole(CHECKED, partial(rows_of_checks, scale))
    parts.measure(WRITTEN, partial(rows_of_writing, folder, scale, speeds))
    parts.measure_whole(PASSED, partial(rows_of_memory, folder, scale, samples))
    for numbers, folders in zip(LISTED, (scale.folders, 1), strict=True):
        parts.measure_whole(numbers, partial(rows_of_listing, folder, scale, numbers, folders=folders))
    return lambda _: draw(PLACE / "ingest.png", speeds=speeds, memory=samples)


if __name__ == "__main__":
    sys.exit(run("ingest", __doc__, FIGURES, measure, quick="less of everything, in some four minutes"))
