"""The figures of fetching: beside a bare client, at a distance, at a fixed rate, with delayed answers; the plot."""

import statistics
from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter

from benchmarks.harness.loader_fixture import BLOBS, LoaderFixture
from benchmarks.harness.pairs import best_of, in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import Far, Run, describe
from benchmarks.loader.figures import DEMAND, FIGURES

DIRECT = (1, 2, 17)
FAR = (3, 4, 7)
DEMANDED = (5, 6)
HELD = (10, 11)
NUMBERS = (*DIRECT, *FAR, *DEMANDED, *HELD)
Curves = dict[str, dict[float, float]]
"""Images per second by round trip, for each way to read."""
IN_FLIGHT = (64, 128, 256)


def fetch(fixture: LoaderFixture, rows: int, rtt: float | None, *, hold: float | None = None, **order: object) -> Run:
    """Run our loader. ``rtt`` None is without a proxy; one in a hundred answers is delayed by ``hold`` seconds."""
    far = None if rtt is None else Far(rtt, 0.0 if hold is None else 0.01, hold or 0.0)
    run = fixture.run("harness.consumers:fetch", BLOBS, rows, far=far, **order)
    way = "no proxy" if rtt is None else f"{1e3 * rtt:.0f} ms" + (f", held {hold:.0f} s" if hold else "")
    tell(f"fetch, {way}: {run.rate:,.0f} images/s")
    return run


def read_bare(fixture: LoaderFixture, rows: int, in_flight: int) -> Run:
    """Run the bare client."""
    run = fixture.run("harness.consumers:read_bare", BLOBS, rows, in_flight=in_flight)
    tell(f"bare, {in_flight} in flight: {run.rate:,.0f} images/s")
    return run


def warm_up(fixture: LoaderFixture, *, quick: bool) -> str:
    """Warm up the server with all readers, and find the bare client's best concurrency; return a remark on it."""
    rows = fixture.sizes.warm
    fetch(fixture, rows, 0.0)
    turns = 1 if quick else 2
    fixture.in_flight, found = best_of(IN_FLIGHT, lambda number: read_bare(fixture, rows, number).rate, turns=turns)
    return f"bare in warm-up: {found}"


def rows_of_direct(fixture: LoaderFixture, wanted: Collection[int], remark: str) -> dict[int, Row]:
    """Compare with the bare client, and measure the CPU of the whole way to DALI; no proxy."""
    sizes, rows = fixture.sizes, {}
    if 1 in wanted:
        bare_client = partial(read_bare, fixture, sizes.fetched, fixture.in_flight)
        contenders = {"ours": partial(fetch, fixture, sizes.fetched, None), "bare": bare_client}
        ours, bare = in_turn(sizes.many_pairs, contenders).values()
        note = f"ours {describe(ours)}; bare {describe(bare)}; {remark}"
        rows[1] = FIGURES.ratio_row(1, ours, bare, by=attrgetter("rate"), note=note)
    if 2 in wanted:
        fed = [fixture.run("harness.consumers:feed", BLOBS, sizes.fetched) for _ in range(sizes.pairs)]
        value = statistics.median(run.course.cpu_ms for run in fed)
        note = f"user and system, up to what a DALI pipeline is given; {describe(fed)}"
        rows[2] = FIGURES.value_row(2, value, note=note, runs=len(fed))
    if 17 in wanted:
        ways = {way: partial(fetch, fixture, sizes.fetched, None, is_checked=way) for way in (True, False)}
        checked, plain = in_turn(sizes.many_pairs, ways).values()
        pairs = zip(checked, plain, strict=True)
        value = statistics.median(one.course.cpu_ms - other.course.cpu_ms for one, other in pairs)
        note = f"median of the differences; with checksums {describe(checked)}; without {describe(plain)}"
        rows[17] = FIGURES.value_row(17, value, note=note, runs=len(checked))
    return rows


def rows_of_far(fixture: LoaderFixture, wanted: Collection[int], curves: Curves) -> dict[int, Row]:
    """150 ms and 300 ms alternate with 0 ms, all through the proxy. Their medians are also points of the curve."""
    sizes, rows = fixture.sizes, {}
    rtts = [rtt for rtt, needed in ((0.0, {3, 4}), (0.15, {3, 7}), (0.3, {4})) if needed.intersection(wanted)]
    runs = in_turn(sizes.many_pairs, {rtt: partial(fetch, fixture, sizes.fetched, rtt) for rtt in rtts})
    fixture.proxy.look()
    curves["in order"] = {rtt: statistics.median(run.rate for run in found) for rtt, found in runs.items()}
    for number, rtt in ((3, 0.15), (4, 0.3)):
        if number in wanted:
            note = f"{1e3 * rtt:.0f} ms {describe(runs[rtt])}; 0 ms {describe(runs[0.0])}; "
            note += f"the proxy alone carries {fixture.proxy.mb_per_s:,.0f} MB/s"
            pair = runs[rtt], runs[0.0]
            rows[number] = FIGURES.ratio_row(
                number, *pair, by=attrgetter("rate"), note=note, void=fixture.proxy.void(*pair)
            )
    if 7 in wanted:
        rows[7] = _ramp(runs[0.15])
    return rows


def _ramp(runs: Sequence[Run]) -> Row:
    reached = [run.course.seconds_to(0.9 * run.rate) for run in runs]
    found = [seconds for seconds in reached if seconds is not None]
    connected = statistics.median(run.answer["connected"] for run in runs)
    first = statistics.median(run.course.got[0] for run in runs)
    note = f"connecting, {connected:.2f} s, is not in it; the first batch came after {first:.2f} s; "
    note += f"of {len(runs)} runs {len(runs) - len(found)} never were as fast over 2,048 images"
    value = statistics.median(found) if len(found) > len(runs) / 2 else None
    return FIGURES.value_row(7, value, note=note, runs=len(runs))


def rows_of_demand(fixture: LoaderFixture, wanted: Collection[int]) -> dict[int, Row]:
    """How long a consumer with a fixed rate waits."""
    rows = {}
    for number, rtt in ((5, 0.15), (6, 0.3)):
        if number in wanted:
            run = fetch(fixture, fixture.sizes.demanded, rtt, demand=DEMAND)
            whole = 100 * run.course.stall_share(begins=0)
            note = f"steady part of {run.course.got[-1]:.0f} s; {whole:.2f} % with its beginning; {describe([run])}"
            value = 100 * run.course.stall_share()
            rows[number] = FIGURES.value_row(number, value, note=note, runs=1)
    return rows


def rows_of_holds(fixture: LoaderFixture) -> dict[int, Row]:
    """Single answers delayed by 2 s, alternating with the same proxy without a delay."""
    sizes = fixture.sizes
    contenders = {hold: partial(fetch, fixture, sizes.held, 0.0, hold=hold) for hold in (2.0, 0.0)}
    held, prompt = in_turn(sizes.pairs, contenders).values()
    fixture.proxy.look()
    note = f"0 ms, in order; held {describe(held)}; undisturbed {describe(prompt)}"
    void = fixture.proxy.void(prompt)
    rows = {10: FIGURES.ratio_row(10, held, prompt, by=attrgetter("rate"), note=note, void=void)}
    extra = 100 * statistics.median(extra_share(run) for run in held)
    carried = [100 * carried_share(run) for run in held]
    answers = sum(run.carried.held for run in held if run.carried)
    note = f"by its own count; {answers:,} answers held; by bytes through the proxy, without what was read ahead at "
    note += f"the end, {min(carried):.2f} to {max(carried):.2f} %"
    return rows | {11: FIGURES.value_row(11, extra, note=note, runs=len(held))}


def extra_share(run: Run) -> float:
    """Hedged and repeated reads per delivered image."""
    stats = run.answer["stats"]
    return float(stats["second_reads"] + stats["retries"]) / run.course.images


def carried_share(run: Run) -> float:
    """Bytes from the server beyond those delivered, read ahead or in flight at the end, per byte of these.

    They are second answers and headers. The value is approximate: how many reads in flight have arrived is unknown.
    """
    assert run.carried is not None
    sums, stats = run.answer["sums"], run.answer["stats"]
    delivered = sums["bytes"] + stats["held_bytes"] + stats["in_flight"] * sums["bytes"] / sums["images"]
    return float(run.carried.bytes_from_server / delivered - 1)


def complete(fixture: LoaderFixture, curves: Curves) -> None:
    """Add the points that no figure has measured: rates by round trip, for each way to read."""
    sizes = fixture.sizes
    for name, is_ordered in (("in order", True), ("out of order", False)):
        points = curves.setdefault(name, {})
        for rtt in sizes.rtts:
            if rtt not in points:
                points[rtt] = fetch(fixture, sizes.compared, rtt, in_order=is_ordered).rate
    points = curves.setdefault("torch DataLoader, 4 workers", {})
    for rtt in sizes.rtts:
        limit = max(4 * sizes.worker_batch, round(min(sizes.compared, 4 * sizes.worker_seconds / (rtt + 0.003))))
        order = {"batch_size": sizes.worker_batch, "limit": limit}
        run = fixture.run("loader.baselines:read_by_workers", BLOBS, sizes.compared, far=Far(rtt), **order)
        points[rtt] = run.rate
        tell(f"workers, {1e3 * rtt:.0f} ms: {run.rate:,.0f} images/s")
