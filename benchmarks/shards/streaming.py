"""The figures of streaming encoded pictures: beside other packages, and over a long way."""

import statistics
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.rivals import BY_ROW, OPENERS, WEBDATASET, Rival
from benchmarks.shards.stage import Run, ShardStage
from benchmarks.shards.writing import OURS

BESIDE = tuple(BY_ROW)
FAR = (6, 7)
_FLOOR_MB_PER_S = 100


def ours(stage: ShardStage, *, rtt: float | None = None) -> Run:
    """One epoch by `loader.shards`, of what our job has written."""
    return stage.read(sys.executable, "ours", folder=OURS, rtt=rtt)


def rows_of_rival(stage: ShardStage, wanted: Collection[int]) -> dict[int, Row]:
    """The one rival that is wanted in turn with ours, after its environment was made and it has written its data."""
    (number,) = wanted
    rival = BY_ROW[number]
    rival.install()
    read, remark = _reader(stage, rival)
    contenders: dict[str, Callable[[], Run]] = {"ours": partial(ours, stage), "other": read}
    mine, others = in_turn(stage.sizes.pairs, contenders).values()
    stage.remove(rival.prefix())
    note = f"ours {describe(mine)}; {rival.name} {others[0].answer['version']} {describe(others)}; {remark}"
    values = ([run.per_cpu_second for run in runs] for runs in (mine, others))
    return {number: FIGURES.ratio_row(number, *values, note=note)}


def _reader(stage: ShardStage, rival: Rival) -> tuple[Callable[[], Run], str]:
    """How the rival reads best, and a remark on that. webdataset reads our own shards, the others what they write."""
    if rival is not WEBDATASET:
        rival.write(stage)
        remark = "the whole epoch counts, imports do not"
        return lambda: rival.read(stage), remark
    keys = stage.shards(OURS)
    looks = {opener: rival.read(stage, keys=keys, opener=opener) for opener in OPENERS}
    best = max(looks, key=lambda opener: looks[opener].per_cpu_second)
    rival.write(stage)
    pax = rival.read(stage, keys=stage.shards(rival.prefix()), opener=best)
    found = ", ".join(f"{run.per_cpu_second:,.0f} with {opener}" for opener, run in looks.items())
    remark = f"the same shards, in warm-up {found}; ShardWriter's shards, with PAX headers, {pax.per_cpu_second:,.0f}"
    return lambda: rival.read(stage, keys=keys, opener=best), remark


def rows_of_far(stage: ShardStage, wanted: Collection[int]) -> dict[int, Row]:
    """50 and 150 ms in turn with 0 ms, all through the proxy."""
    rtts = [0.0, *(rtt for number, rtt in zip(FAR, (0.05, 0.15), strict=True) if number in wanted)]
    stage.look_at_proxy()
    ours(stage, rtt=0.0)  # warm-up
    runs = in_turn(stage.sizes.many_pairs, {rtt: partial(ours, stage, rtt=rtt) for rtt in rtts})
    stage.look_at_proxy()
    rows = {}
    for number, rtt in zip(FAR, (0.05, 0.15), strict=True):
        if number in wanted:
            speeds = [statistics.median(run.mb_per_s for run in runs[one]) for one in (rtt, 0.0)]
            note = f"whole epochs; behind the first third {speeds[0]:,.0f} over {speeds[1]:,.0f} MB/s; "
            note += f"{1e3 * rtt:.0f} ms {describe(runs[rtt])}; 0 ms {describe(runs[0.0])}; "
            note += f"3 MB of window a connection; the proxy alone carries {stage.capacity:,.0f} MB/s"
            rates = ([run.whole_rate for run in found] for found in (runs[rtt], runs[0.0]))
            void = void_of(runs[rtt], runs[0.0], capacity=stage.capacity)
            rows[number] = FIGURES.ratio_row(number, *rates, note=note, void=void)
    return rows


def void_of(far: Sequence[Run], near: Sequence[Run], *, capacity: float) -> str:
    """Why a comparison through the proxy means nothing, as both were slow or the proxy was; empty where it does."""
    slow, fast = (statistics.median(run.mb_per_s for run in runs) for runs in (far, near))
    if slow < _FLOOR_MB_PER_S:
        return f"{slow:,.0f} MB/s is less than {_FLOOR_MB_PER_S} MB/s"
    if capacity < 2 * max(slow, fast):
        return f"the proxy alone carries {capacity:,.0f} MB/s, less than twice {max(slow, fast):,.0f} MB/s"
    return ""


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs over the whole epoch, for a note."""

    def middle(value: Callable[[Run], float]) -> float:
        return statistics.median(map(value, runs))

    proxy = ""
    if all(run.carried for run in runs):
        proxy = f" + {middle(lambda run: 1e3 * run.carried.cpu_seconds / run.course.images):.2f} proxy"  # type: ignore[union-attr]
    return (
        f"{middle(lambda run: run.per_cpu_second):,.0f} images per client CPU second, "
        f"{middle(lambda run: run.whole_rate):,.0f} images/s, CPU ms an image "
        f"{middle(lambda run: 1e3 / run.per_cpu_second):.2f} client + "
        f"{middle(lambda run: 1e3 * run.server_cpu / run.course.images):.2f} server{proxy}"
    )
