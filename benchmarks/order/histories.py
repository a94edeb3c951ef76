"""How long it takes to ask a state of a large split for the past, and whether states agree with what was delivered."""

import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks.harness.results import Row, tell
from benchmarks.order.figures import FIGURES
from formats.splits.opened import SplitRows, held_split
from loader import History, Split
from loader.order.history import Run
from loader.order.schedule import Schedule
from schemas.manifest import SplitPart

_EPOCHS, _BATCH, _RANKS, _QUERIES = 90, 256, 8, 50


def large_history(rows: int) -> History:
    """A training of 90 epochs on eight ranks, which went on with half the batch in the middle."""
    ids = np.broadcast_to(np.zeros(16, dtype=np.uint8), (rows, 16))
    part = SplitPart(0, rows, {}, "f" * 64, ())
    opened = held_split(
        "a split", [(part, SplitRows(ids, None))], num_classes=0, data_table="k.d", metadata_table="k.m"
    )
    split = Split(opened, 0, opened.rows(0), data_table="k.d")
    plan = Schedule(
        fingerprint=split.fingerprint, rows=rows, seed=0, shuffle=True, batch_size=_BATCH, rank=0, world_size=_RANKS,
        last_batch_policy="DROP",
    )  # fmt: skip
    middle = plan.after(_EPOCHS // 2, steps=rows // _BATCH // _RANKS // 2)
    states = [plan.after(0), middle, plan.after(_EPOCHS - 1, steps=10)]
    runs = [
        Run(
            begin=begin.to_dict(), end=end.to_dict(), batch_size=size, world_size=_RANKS, last_batch_policy="DROP"
        )
        for begin, end, size in zip(states, states[1:], (_BATCH, _BATCH // 2), strict=False)
    ]  # fmt: skip
    return History(split, states[-1].with_past(tuple(runs)).to_dict())


def rows_of_queries(rows: int) -> dict[int, Row]:
    """Random steps, and random images."""
    tell(f"a history of {rows:,} images")
    history, numbers = large_history(rows), np.random.default_rng(0)
    steps = numbers.integers(0, rows // _BATCH // _RANKS // 2, _QUERIES).tolist()
    positions = numbers.integers(0, rows, _QUERIES).tolist()
    history.replay(1, 0), history.seen(0)
    replayed, seen = [], []
    for step in steps:
        began = time.perf_counter()
        found = history.replay(step % (_EPOCHS // 2), step)
        replayed.append(1e3 * (time.perf_counter() - began) / _RANKS)
        assert len(found) == _RANKS
    for position in positions:
        began = time.perf_counter()
        batches = history.seen(position)
        seen.append(1e3 * (time.perf_counter() - began))
        assert len(batches) >= _EPOCHS - 3  # DROP leaves few out
    queries = f"median of {_QUERIES}"
    note = f"{queries} steps of {_RANKS} ranks with {_BATCH} images each; {rows:,} images"
    an_epoch = f"{1e3 * statistics.median(seen) / _EPOCHS:.1f} µs an epoch"
    return {
        11: FIGURES.value_row(11, statistics.median(seen), note=f"{queries} images; {an_epoch}; two runs"),
        12: FIGURES.value_row(12, statistics.median(replayed), note=note),
    }


def rows_of_agreement(count: int) -> dict[int, Row]:
    """Random trainings, which the tests make."""
    tell(f"{count:,} trainings")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.trainings", "--count", str(count)], capture_output=True, text=True
    )
    note = "ranks, batches, policies, samplings, missing images, early ends, up to 3 runs"
    return {13: FIGURES.value_row(13, int(done.stdout.split()[-1]) / count, note=f"{count:,} trainings: {note}")}
