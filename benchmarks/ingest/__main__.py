"""How fast an ingest is beside other ways to write the same rows, how much memory it takes, how fast it lists, resumes.

    make bench-ingest

One embedded Cassandra, one Spark on two cores that the server shares, a tree of pictures of 110 kB, all different. The
contenders run in turn, each into empty tables, each looked at afterwards: rows, bytes, some pictures' hashes. Then a
worker's memory and the listing of a million files, each in processes of their own. QUICK=1 takes less of everything;
figures that mean nothing then have no value and tell theirs in the note.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.command import tell
from benchmarks.harness.pairs import QUICK_NOTE, ratio_row
from benchmarks.harness.pictures import PICTURE_BYTES, plant_empty, plant_pictures, require_room
from benchmarks.harness.processes import MemoryWatch, quarter_peaks
from benchmarks.harness.results import ROOT, Row, publish
from benchmarks.ingest.plot import draw
from benchmarks.ingest.stage import Run, Stage, describe

PROCESS_SECONDS = 600


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    pictures: int
    rounds: int
    """Runs of every contender, in turn."""
    pairs: int
    """Runs of ours and the bare writer, those of the rounds included."""
    rivals: int
    """So many of the pictures the usual ways write, which take long."""
    one_at_a_time: int
    resumed: int
    resumed_bytes: int
    memory_bytes: int
    listed: int
    folders: int
    disk_bytes: int


FULL = Scale(20_000, 3, 5, 8_000, 300, 60_000, 5_000, 5_000_000_000, 1_000_000, 1_000, 12_000_000_000)
QUICK = Scale(1_000, 3, 3, 1_000, 40, 3_000, 5_000, 500_000_000, 30_000, 30, 3_000_000_000)


def write_rates(folder: Path, scale: Scale, *, quick: bool) -> tuple[list[Row], dict[str, list[float]]]:
    """All that needs the server: the rows of writing and of resuming, and MB/s of every run by contender."""
    tell(f"{scale.pictures:,} pictures of {PICTURE_BYTES:,} bytes")
    tree = plant_pictures(folder / "tree", scale.pictures)
    small = plant_pictures(folder / "resumed", scale.resumed, size=scale.resumed_bytes)
    tell("server, Spark, bare writer")
    with Stage(folder, tree) as stage:
        remark = stage.warm_up()
        tell(remark)
        contenders: dict[str, Callable[[], Run]] = {
            "ours": stage.ours,
            "bare": stage.bare,
            "one at a time": lambda: stage.one_at_a_time(scale.one_at_a_time),
            "usual Spark way": lambda: stage.usual_way(scale.rivals),
            "connector": lambda: stage.connector(scale.rivals),
        }
        runs: dict[str, list[Run]] = {name: [] for name in contenders}
        for turn in range(scale.pairs):
            names = list(contenders) if turn < scale.rounds else ["ours", "bare"]
            for name in names if turn % 2 == 0 else reversed(names):
                runs[name].append(contenders[name]())
                tell(f"{turn + 1}: {name}: {runs[name][-1].mb_per_s:.1f} MB/s, {describe(runs[name][-1:])}")
        resumed = []
        for turn in range(scale.rounds):
            resumed.append(stage.first_and_resumed(small))
            tell(f"{turn + 1}: first {resumed[-1][0]:.1f} s, resumed {resumed[-1][1]:.1f} s")
        in_flight = stage.in_flight
    ours = runs["ours"]

    def against(name: str, figure: str, target: float, note: str) -> Row:
        others = runs[name]
        note = f"ours {describe(ours)}; {name} {describe(others)}; {note}"
        speeds = ([run.mb_per_s for run in found[: len(others)]] for found in (ours, others))
        return ratio_row(figure, target, *speeds, note=note, quick=quick)

    rate = scale.resumed / statistics.median(first for first, _ in resumed)
    note = (
        f"pictures of {scale.resumed_bytes:,} bytes, the first run {rate:,.0f} images/s; in seconds, ours is the first "
    )
    note += "run, other the resumed one"
    rows = [
        against("bare", "our MB/s over a bare asynchronous writer's", 0.85, f"{in_flight} in flight; {remark}"),
        against("one at a time", "our MB/s over inserts one at a time", 5, f"{scale.one_at_a_time} pictures of them"),
        against(
            "usual Spark way",
            "our MB/s over the usual Spark way's",
            1.6,
            f"{scale.rivals:,} pictures of them; blocks every 32",
        ),
        against(
            "connector",
            "our MB/s over the connector's, same DataFrame",
            1.5,
            f"{scale.rivals:,} pictures of them; the connector as it comes: 5 writes in flight a task",
        ),
        ratio_row(
            f"--resume over {scale.resumed:,} pictures that are all there, times as fast as the first run",
            10,
            *zip(*resumed, strict=True),
            note=note,
            quick=quick,
        ),
    ]
    return rows, {name: [run.mb_per_s for run in found] for name, found in runs.items()}


def run_watched(module: str, *arguments: object) -> tuple[dict[str, Any], MemoryWatch]:
    """Run one of our modules as a process; returns its last line, and what its memory was.

    Raises CalledProcessError, TimeoutExpired.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            with MemoryWatch(process.pid) as watch:
                out, _ = process.communicate(timeout=PROCESS_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(out.splitlines()[-1]), watch


def memory(folder: Path, scale: Scale, *, quick: bool) -> tuple[list[Row], list[tuple[float, float]]]:
    """A worker's memory while bytes pass through: two rows, and the samples (seconds, MB)."""
    tell(f"{scale.memory_bytes / 1e9:g} GB through one worker")
    plant_pictures(folder / "few", 500)
    done, watch = run_watched("ingest.memory", folder / "few", scale.memory_bytes)
    if abs(done["bytes"] - scale.memory_bytes) > PICTURE_BYTES:
        raise RuntimeError(f"Wanted {scale.memory_bytes:,} bytes to pass. Found: {done['bytes']:,}")
    start, end = done["started"], done["ended"]
    samples = [(sample.at, sample.worker) for sample in watch.samples if start <= sample.at <= end]
    quarters = quarter_peaks(samples, start=start, end=end)
    growth = quarters[3] / quarters[1] if quarters[1] else None
    note = f"{done['bytes'] / 1e9:.1f} GB in {end - start:.0f} s, {len(samples)} samples of RssAnon; "
    note += "peaks of the quarters " + ", ".join(f"{peak:.0f}" for peak in quarters) + " MB"
    rows = [
        Row("Python memory of one executor worker, 5 GB passing through", "<", 300, max(quarters), "MB", note=note),
        Row(
            "its last quarter over the second",
            "<=",
            1.05,
            None if quick else growth,
            "ratio",
            ours=quarters[3],
            other=quarters[1],
            note=f"{QUICK_NOTE}{growth or 0:.3f}" if quick else "peaks",
        ),
    ]
    return rows, [(at - start, value) for at, value in samples]


def listing(folder: Path, scale: Scale, *, quick: bool) -> list[Row]:
    """Seconds and the driver's memory for a tree of many folders and for one of a single folder."""
    rows = []
    warm = folder / "warm"
    plant_empty(warm, 100, folders=2)
    for folders, name in ((scale.folders, f"{scale.folders:,} folders"), (1, "one folder")):
        tell(f"{scale.listed:,} empty files in {name}")
        root = folder / "listed"
        plant_empty(root, scale.listed, folders=folders)
        tell("listing them")
        done, watch = run_watched("ingest.listing", root, warm)
        if done["files"] != scale.listed:
            raise RuntimeError(f"Wanted {scale.listed:,} files listed. Found: {done['files']:,}")
        seconds, driver = done["seconds"], watch.peak(["driver", "jvm"])
        tell(f"{seconds:.1f} s, driver {driver:.0f} MB; remove them")
        shutil.rmtree(root)
        note = f"{done['files'] / seconds:,.0f} files/s on 2 cores, the tree's names in the page cache"
        parts = (
            f"RssAnon: Python {watch.peak(['driver']):.0f}, JVM {watch.peak(['jvm']):.0f} MB, which is the executor "
        )
        parts += f"too in local mode; the largest Python worker, not counted, {watch.peak(['worker']):.0f} MB"
        for figure, target, value, unit, text in (
            (f"listing {scale.listed:,} files in {name}", 60, seconds, "s", note),
            (f"driver memory while listing {name}", 1500, driver, "MB", parts),
        ):
            text = f"{QUICK_NOTE}{value:.1f} {unit}; {text}" if quick else text
            rows.append(Row(figure, "<", target, None if quick else value, unit, note=text))
    return rows


def main() -> int:
    """Measure and report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, in under three minutes")
    quick = parser.parse_args().quick
    scale = QUICK if quick else FULL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    folder = Path(tempfile.mkdtemp(prefix="imagestrata-bench-")).resolve()
    try:
        require_room(folder, bytes=scale.disk_bytes, files=scale.listed + scale.resumed + scale.pictures)
        rates, speeds = write_rates(folder, scale, quick=quick)
        passing, samples = memory(folder, scale, quick=quick)
        listed = listing(folder, scale, quick=quick)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    plot = draw(ROOT / "build" / "bench" / "ingest.png", speeds=speeds, memory=samples)
    publish("ingest", [*rates[:-1], *passing, *listed, rates[-1]], quick=quick)
    print(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
