"""Whether `imagestrata plan` predicts what the loader reads at a distance."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import loader
from benchmarks.harness.loader_fixture import BLOBS, LoaderFixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row
from benchmarks.harness.runs import Far
from benchmarks.order.figures import FIGURES
from imagestrata.devstack.servers.delay import WINDOW, DelayProxy
from imagestrata.planner.measuring import Measured, measure
from imagestrata.planner.simulation import Plan, simulate
from loader.cassandra.cluster import Cluster

RTTS = (0.0, 0.05, 0.15, 0.3)
"""Round trips of the proxy, in seconds."""
SMALL_BUDGET = 64_000_000


def row_of_plans(fixture: LoaderFixture, number: int) -> dict[int, Row]:
    """Measure the cluster at each round trip, in turn with what is read there, and compare plans with that: row 20
    with the usual budget, row 21 with a small one.
    """
    sizes = fixture.sizes
    budget, turns = (sizes.budget, sizes.many_pairs) if number == 20 else (SMALL_BUDGET, sizes.pairs)
    runs: dict[tuple[str, float], Callable[[], Any]] = {}
    for rtt in RTTS:
        runs["measured", rtt] = partial(_measured, fixture, rtt)
        runs["read", rtt] = partial(_rate, fixture, rtt, budget)
    found = in_turn(turns, runs, told=lambda name, one: f"{1e3 * name[1]:.0f} ms: {one}")
    words, errors = [], []
    for rtt in RTTS:
        predicted = [_predicted(fixture, one, budget) for one in found["measured", rtt]]
        rates = found["read", rtt]
        error = statistics.median(one / other for one, other in zip(predicted, rates, strict=True)) - 1
        errors.append(abs(error))
        medians = f"{statistics.median(predicted):,.0f} for {statistics.median(rates):,.0f} images/s"
        words.append(f"{1e3 * rtt:.0f} ms: {medians}, {100 * error:+.0f} %")
    note = f"predicted for measured, {turns} turns; memory_budget {budget / 1e6:.0f} MB; {'; '.join(words)}"
    return {number: FIGURES.value_row(number, 100 * max(errors), note=note, runs=turns)}


def _measured(fixture: LoaderFixture, rtt: float) -> Measured:
    split = loader.open_split(fixture.split(BLOBS, fixture.sizes.planned), cache=fixture.folder / "cache")
    with DelayProxy(fixture.server.port, rtt=rtt) as proxy:
        where = Cluster(hosts=fixture.server.hosts, port=proxy.port)
        return measure(split, where, ranks=1, seconds=fixture.sizes.plan_seconds)


def _rate(fixture: LoaderFixture, rtt: float, budget: int) -> float:
    run = fixture.run("harness.consumers:fetch", BLOBS, fixture.sizes.planned, far=Far(rtt), budget=budget)
    return run.rate


def _predicted(fixture: LoaderFixture, measured: Measured, budget: int) -> float:
    """As `imagestrata plan --measure`, with the window of the proxy."""
    plan = Plan(
        round_trip=measured.round_trip, image_bytes=measured.image_bytes, cluster=measured.rate,
        client=measured.client, batch_size=fixture.sizes.batch, memory_budget=budget,
        connection_bytes=float(WINDOW),
    )  # fmt: skip
    return simulate(plan).rate
