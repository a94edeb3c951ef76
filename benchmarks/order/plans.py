"""Whether `imagestrata plan` predicts what the loader reads at a distance."""

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

import loader
from benchmarks.harness.loader_fixture import BLOBS, LoaderFixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
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
    """Measure the cluster near, and compare plans for all round trips with what is read there, in turn."""
    budgets = {20: fixture.sizes.budget, 21: SMALL_BUDGET}
    runs: dict[Any, Any] = {"measure": partial(_measured, fixture)}
    runs |= {(number, rtt): partial(_rate, fixture, rtt, budget) for number, budget in budgets.items() for rtt in RTTS}
    found = in_turn(_TURNS, runs, told=lambda name, one: f"{name}: {one}")
    rows = {}
    for number, budget in budgets.items():
        words, errors = [], []
        for rtt in RTTS:
            predicted = [_predicted(fixture, one, rtt, budget) for one in found["measure"]]
            rates = found[number, rtt]
            ratio = statistics.median(one / other for one, other in zip(predicted, rates, strict=True))
            errors.append(abs(ratio - 1))
            medians = f"{statistics.median(predicted):,.0f} for {statistics.median(rates):,.0f} images/s"
            words.append(f"{1e3 * rtt:.0f} ms: {medians}, {100 * (ratio - 1):+.0f} %")
        note = f"predicted for measured, medians of {_TURNS} turns; memory_budget {budget / 1e6:.0f} MB; "
        rows[number] = FIGURES.value_row(number, 100 * max(errors), note=note + "; ".join(words), runs=_TURNS)
    return rows


def _measured(fixture: LoaderFixture) -> Measured:
    split = loader.open_split(fixture.split(BLOBS, fixture.sizes.fetched), cache=fixture.folder / "cache")
    with DelayProxy(fixture.server.port, rtt=0.0) as proxy:
        where = Cluster(hosts=fixture.server.hosts, port=proxy.port)
        return measure(split, where, ranks=1, seconds=_SECONDS)


def _rate(fixture: LoaderFixture, rtt: float, budget: int) -> float:
    run = fixture.run("harness.consumers:fetch", BLOBS, fixture.sizes.fetched, far=Far(rtt), budget=budget)
    return run.rate


def _predicted(fixture: LoaderFixture, measured: Measured, rtt: float, budget: int) -> float:
    """As `imagestrata plan --measure --rtt`, with the window of the proxy."""
    usual: Mapping[str, Any] = {"image_bytes": measured.image_bytes, "cluster": measured.rate}
    plan = Plan(
        round_trip=measured.round_trip + rtt, batch_size=fixture.sizes.batch, memory_budget=budget,
        connection_bytes=float(WINDOW), **usual,
    )  # fmt: skip
    tell(f"simulating {1e3 * rtt:.0f} ms, {budget / 1e6:.0f} MB")
    return simulate(plan).rate
