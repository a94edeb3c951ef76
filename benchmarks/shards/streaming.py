"""The figures of streaming encoded images: compared with other packages, and over a long distance."""

import statistics
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.harness.runs import Run, costs
from benchmarks.shards.baselines import BY_ROW, OPENERS, WEBDATASET, Baseline
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.fixture import ShardFixture, per_cpu_second
from benchmarks.shards.writing import OURS, prepare

BESIDE = tuple(BY_ROW)
FAR = (6, 7)
_FLOOR_MB_PER_S = 100


def ours(fixture: ShardFixture, *, rtt: float | None = None) -> Run:
    """Read one epoch with `loader.shards` of what our job has written."""
    return fixture.read(sys.executable, "ours", folder=OURS, rtt=rtt)


def rows_of_baseline(fixture: ShardFixture, wanted: Collection[int]) -> dict[int, Row]:
    """Create the baseline's environment, let it write its data, and run it alternately with ours."""
    prepare(fixture)
    (number,) = wanted
    baseline = BY_ROW[number]
    baseline.package.install()
    read, remark = _reader(fixture, baseline)
    contenders: dict[str, Callable[[], Run]] = {"ours": partial(ours, fixture), "other": read}
    mine, others = in_turn(fixture.sizes.pairs, contenders).values()
    fixture.remove(baseline.prefix())
    note = f"ours {describe(mine)}; {baseline.name} {others[0].answer['version']} {describe(others)}; {remark}"
    return {number: FIGURES.ratio_row(number, mine, others, by=per_cpu_second, note=note)}


def _reader(fixture: ShardFixture, baseline: Baseline) -> tuple[Callable[[], Run], str]:
    """Find the fastest way to read; return it with a remark. webdataset reads our shards, others their own data."""
    if baseline is not WEBDATASET:
        baseline.write(fixture)
        remark = "the whole epoch counts, imports do not"
        return lambda: baseline.read(fixture), remark
    keys = fixture.shards(OURS)
    looks = {opener: baseline.read(fixture, keys=keys, opener=opener) for opener in OPENERS}
    best = max(looks, key=lambda opener: per_cpu_second(looks[opener]))
    baseline.write(fixture)
    pax = baseline.read(fixture, keys=fixture.shards(baseline.prefix()), opener=best)
    found = ", ".join(f"{per_cpu_second(run):,.0f} with {opener}" for opener, run in looks.items())
    remark = f"the same shards, in warm-up {found}; ShardWriter's shards, with PAX headers, {per_cpu_second(pax):,.0f}"
    return lambda: baseline.read(fixture, keys=keys, opener=best), remark


def rows_of_far(fixture: ShardFixture, wanted: Collection[int]) -> dict[int, Row]:
    """50 and 150 ms alternate with 0 ms, all through the proxy."""
    prepare(fixture)
    rtts = [0.0, *(rtt for number, rtt in zip(FAR, (0.05, 0.15), strict=True) if number in wanted)]
    fixture.proxy.look()
    ours(fixture, rtt=0.0)  # warm-up
    runs = in_turn(fixture.sizes.many_pairs, {rtt: partial(ours, fixture, rtt=rtt) for rtt in rtts})
    fixture.proxy.look()
    rows = {}
    for number, rtt in zip(FAR, (0.05, 0.15), strict=True):
        if number in wanted:
            speeds = [statistics.median(run.mb_per_s for run in runs[one]) for one in (rtt, 0.0)]
            note = f"whole epochs; behind the first third {speeds[0]:,.0f} over {speeds[1]:,.0f} MB/s; "
            note += f"{1e3 * rtt:.0f} ms {describe(runs[rtt])}; 0 ms {describe(runs[0.0])}; "
            note += f"3 MB of window a connection; the proxy alone carries {fixture.proxy.mb_per_s:,.0f} MB/s"
            void = fixture.proxy.void(runs[rtt], runs[0.0])
            if speeds[0] < _FLOOR_MB_PER_S:
                void = f"{speeds[0]:,.0f} MB/s is less than {_FLOOR_MB_PER_S} MB/s"
            rows[number] = FIGURES.ratio_row(
                number, runs[rtt], runs[0.0], by=attrgetter("whole_rate"), note=note, void=void
            )
    return rows


def describe(runs: Sequence[Run]) -> str:
    """Medians of some runs over the whole epoch, for a note."""
    per_second, rate = (statistics.median(map(value, runs)) for value in (per_cpu_second, attrgetter("whole_rate")))
    spent = costs(runs, client_ms=lambda run: 1e3 / per_cpu_second(run))
    return f"{per_second:,.0f} images per client CPU second, {rate:,.0f} images/s, {spent}"
