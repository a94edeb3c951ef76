"""What the planner predicts, where arithmetic says what it must be."""

from typing import Any

import pytest

from imagestrata.planner.simulation import Outcome, Plan, simulate
from schemas.errors import ImagestrataError

_USUAL: dict[str, Any] = {"round_trip": 0.15, "image_bytes": 100_000}


def _of(**changes: Any) -> Outcome:
    return simulate(Plan(**_USUAL | changes))


@pytest.mark.parametrize(("changes", "rate"), [
    ({"cluster": 900.0}, 900),
    ({"cluster": 900.0, "gpus": 3}, 900),
    ({"bandwidth": 5e7}, 500),
    ({"client": 1e-3, "gpus": 2}, 2000),
    ({"connections": 2}, 2 * 2e6 / 0.15 / 100_000),
    ({"connections": 2, "nodes": 2, "connection_bytes": 1e6}, 4e6 / 0.15 / 100_000),
    ({"max_in_flight": 30}, 30 / 0.15),
    ({"batch_size": 1, "memory_budget": 3_000_000}, 30 / 0.15),
    ({"step": 0.5, "batch_size": 50, "gpus": 4}, 400),
    ({"decode": 0.01, "threads": 2, "gpus": 2}, 400),
    ({"decode": 0.01, "threads": 2, "step": 0.5, "batch_size": 200}, 200),
    ({"round_trip": 0.0, "cluster": 700.0}, 700),
    ({"cluster": 900.0, "bandwidth": 5e7, "step": 1.0, "batch_size": 512}, 500),
])  # fmt: skip
def test_the_slowest_part_limits_the_rate(changes: dict[str, Any], rate: float) -> None:
    assert _of(**changes).rate == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize(("step", "waiting"), [(0.5, 0.0), (0.25, 0.0), (0.125, 0.5)])
def test_a_gpu_waits_for_what_the_network_does_not_carry(step: float, waiting: float) -> None:
    found = _of(bandwidth=4e7, batch_size=100, step=step)  # four batches a second
    assert found.waiting == pytest.approx(waiting, abs=0.02)
    assert found.rate == pytest.approx(min(400, 100 / step), rel=0.02)
    assert 0.15 < found.first_batch < 2


def test_memory_stays_within_the_budget_and_a_batch() -> None:
    found = _of(step=0.5, batch_size=20, memory_budget=10_000_000)
    assert found.waiting < 0.01
    assert 8_000_000 <= found.memory <= 10_000_000


def test_reads_in_flight_stay_few_on_a_slow_link_for_an_hour() -> None:
    # The loader's window took its own queue for the round trip, and doubled until images timed out.
    found = _of(bandwidth=125_000.0, batch_size=256)
    assert found.rate == pytest.approx(1.25, rel=0.05)
    assert found.in_flight <= 24


def test_a_plan_at_which_the_loader_gives_up_is_an_error() -> None:
    for slow in ({"bandwidth": 1000.0}, {"bandwidth": 1000.0, "batch_size": 1, "step": 1.0}, {"cluster": 1e-9}):
        with pytest.raises(ImagestrataError, match="each image within 60 s"):
            _of(**slow)
