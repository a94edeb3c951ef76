"""Checks that a split does not depend on the order of its input or on retried tasks, in a separate process.

The same rows are split as 1, 7 and 200 files, each a partition; in another order, with their files named backwards; and
while every third task attempt is killed through Spark's API, so that it is retried. The answer: {"fingerprints": of the
splits in each case, "killed": attempts}.
"""

import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from benchmarks.harness.processes import Background
from benchmarks.harness.results import Row
from benchmarks.splits.caches import Cache, plant
from benchmarks.splits.figures import FIGURES
from benchmarks.splits.fixture import settled_tasks, split_fixture
from benchmarks.splits.processes import call
from schemas.cache import NAME, CacheManifest

NUMBERS = (13,)
PARTITIONS = (1, 7, 200)
EVERY = 3
_LOOK_SECONDS = 0.002


def kill_attempts(context: Any, stop: threading.Event) -> None:
    """Kill every third task attempt as soon as it runs."""
    scheduler = context.taskScheduler()
    seen = int(scheduler.nextTaskId())
    while not stop.wait(_LOOK_SECONDS):
        following = int(scheduler.nextTaskId())
        for attempt in range(seen, following):
            if attempt % EVERY == 0:
                with suppress(Py4JError):  # its stage has ended
                    context.killTaskAttempt(attempt, True, "to be tried again")
        seen = following


def rows_of_identity(folder: Path, rows: int) -> dict[int, Row]:
    """Run this module as a process, and count the fingerprints."""
    # Nothing here is timed, so the quick compiler is enough.
    options = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    found = call("splits.identity:fingerprints", str(folder), rows, options=options).answer
    cases: dict[str, list[str]] = found["fingerprints"]
    note = f"{rows:,} rows; {', '.join(cases)} ({found['killed']} attempts killed); fingerprints of each case's splits"
    return {13: FIGURES.value_row(13, len(set(map(tuple, cases.values()))), note=note, runs=len(cases))}


def turned_round(cache: Cache) -> Cache:
    """The cache with a manifest that lists its files in the opposite order."""
    place = cache.folder / NAME
    manifest = CacheManifest.from_json(place.read_text(encoding="utf-8"), place=str(place))
    place.write_text(replace(manifest, files=manifest.files[::-1]).to_json(), encoding="utf-8")
    return cache


def fingerprints(place: str, rows: int) -> dict[str, Any]:
    """Split the same rows in each case."""
    folder = Path(place)
    # A large open cost makes each file a separate partition.
    alone = {"spark.sql.files.openCostInBytes": 1 << 30, "spark.sql.files.maxPartitionBytes": 1 << 30}
    found: dict[str, tuple[str, ...]] = {}
    with split_fixture(folder, master="local[2,4]", options=alone) as fixture:
        caches = {
            files: plant(fixture.spark, folder / f"identity-{files}", rows=rows, files=files) for files in PARTITIONS
        }
        for files, cache in caches.items():
            found[f"{files} partition{'s' * (files > 1)}"] = fixture.ours(cache).fingerprints
        before = settled_tasks(fixture.spark).killed
        with Background(partial(kill_attempts, fixture.spark.sparkContext._jsc.sc())):
            found["retried tasks"] = fixture.ours(caches[PARTITIONS[1]]).fingerprints
        after = settled_tasks(fixture.spark).killed
        other = plant(fixture.spark, folder / "identity-shuffled", rows=rows, files=PARTITIONS[1], is_shuffled=True)
        found["shuffled rows"] = fixture.ours(turned_round(other)).fingerprints
    for left in folder.glob("identity-*"):
        shutil.rmtree(left)
    if after == before:
        raise RuntimeError("Wanted some tasks to be tried again. Found: none was killed in time.")
    return {"fingerprints": found, "killed": after - before}
