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
_TURNS = 5
_SECONDS = 6.0


def rows_of_plans(fixture: LoaderFixture) -> dict[int, Row]:
    """Measure the cluster at each round trip, in turn with what is read there, and compare plans with that."""
    budgets = {20: fixture.sizes.budget, 21: SMALL_BUDGET}
    runs: dict[tuple[int, float], Callable[[], Any]] = {}
    for rtt in RTTS:
        runs[0, rtt] = partial(_measured, fixture, rtt)
        runs |= {(number, rtt): partial(_rate, fixture, rtt, budget) for number, budget in budgets.items()}
    found = in_turn(_TURNS, runs, told=lambda name, one: f"{1e3 * name[1]:.0f} ms: {one}")
    rows = {}
    for number, budget in budgets.items():
        words, errors = [], []
        for rtt in RTTS:
            predicted = [_predicted(fixture, one, budget) for one in found[0, rtt]]
            rates = found[number, rtt]
            error = statistics.median(one / other for one, other in zip(predicted, rates, strict=True)) - 1
            errors.append(abs(error))
            medians = f"{statistics.median(predicted):,.0f} for {statistics.median(rates):,.0f} images/s"
            words.append(f"{1e3 * rtt:.0f} ms: {medians}, {100 * error:+.0f} %")
        note = f"predicted for measured, {_TURNS} turns; memory_budget {budget / 1e6:.0f} MB; {'; '.join(words)}"
        rows[number] = FIGURES.value_row(number, 100 * max(errors), note=note, runs=_TURNS)
    return rows


def _measured(fixture: LoaderFixture, rtt: float) -> Measured:
    split = loader.open_split(fixture.split(BLOBS, fixture.sizes.fetched), cache=fixture.folder / "cache")
    with DelayProxy(fixture.server.port, rtt=rtt) as proxy:
        where = Cluster(hosts=fixture.server.hosts, port=proxy.port)
        return measure(split, where, ranks=1, seconds=_SECONDS)


def _rate(fixture: LoaderFixture, rtt: float, budget: int) -> float:
    run = fixture.run("harness.consumers:fetch", BLOBS, fixture.sizes.fetched, far=Far(rtt), budget=budget)
    return run.rate


def _predicted(fixture: LoaderFixture, measured: Measured, budget: int) -> float:
    """As `imagestrata plan --measure`, with the window of the proxy."""
    plan = Plan(
        round_trip=measured.round_trip, image_bytes=measured.image_bytes, cluster=measured.rate,
        client=measured.client, batch_size=fixture.sizes.batch, memory_budget=budget,
        connection_bytes=float(WINDOW),
    )  # fmt: skip
    return simulate(plan).rate
