"""Runs of consumers, computed from invented timings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.loader_fixture import FULL, QUICK
from benchmarks.harness.pictures import TABLE_CLASSES
from benchmarks.harness.proxy import ProxyLimit
from benchmarks.harness.runs import Course, Run, check, describe
from imagestrata.devstack.servers.delay import Carried


def course(got: list[float], *, asked: list[float] | None = None, count: int = 100, cpu: float = 0.01) -> Course:
    """Batches that came at these times, each requested when the one before came."""
    return Course(
        asked or [0.0, *got[:-1]], got, [count] * len(got), [cpu * (number + 1) for number in range(len(got))]
    )


def test_runs_read_far_more_than_the_memory_budget() -> None:
    for sizes in (FULL, QUICK):
        shortest = min(sizes.fetched, sizes.held, sizes.demanded, sizes.compared)
        assert 110_000 * shortest > 5 * sizes.budget
        assert sizes.decoded % sizes.batch == 0  # the file reader returns whole batches
        assert max(sizes.blobs, sizes.pictures) <= TABLE_CLASSES  # labels identify images


def test_the_steady_rate_excludes_the_first_third() -> None:
    slow_start = course([10.0, 20.0, 21.0, 22.0, 23.0, 24.0])
    assert slow_start.rate == pytest.approx(100)
    assert slow_start.cpu_ms == pytest.approx(0.1)
    assert slow_start.images == 600
    assert course([1.0, 2.0, 4.0]).rate == pytest.approx(200 / 3)


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_batches_have_no_steady_part(count: int) -> None:
    with pytest.raises(ValueError, match=f"Wanted three batches or more.*{count}"):
        course([1.0, 2.0][:count])
    with pytest.raises(ValueError, match="all that belongs to them"):
        Course([0.0] * 4, [1.0] * 4, [1] * 3, [0.0] * 4)


def test_a_stall_is_time_between_asking_and_getting() -> None:
    # A consumer that spends a second on each batch, and waits for the first and the last one.
    found = course([0.5, 1.5, 2.5, 3.5, 4.5, 6.5], asked=[0.0, 1.5, 2.5, 3.5, 4.5, 5.5])
    assert found.stall_share(begins=0) == pytest.approx(1.5 / 6.5)
    assert found.stall_share() == pytest.approx(1.0 / 5.0)
    never = course([0.0, 1.0, 2.0], asked=[0.0, 1.0, 2.0])
    assert never.stall_share() == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=3, max_size=30))
def test_stall_share_is_the_share_of_time_spent_waiting(steps: list[tuple[float, float]]) -> None:
    asked, got, now = [], [], 0.0
    for wait, work in steps:
        asked.append(now)
        got.append(now + wait)
        now = got[-1] + work
    found = course(got, asked=asked)
    waits = sum(wait for wait, _ in steps)
    assert found.stall_share(begins=0) == pytest.approx(waits / got[-1] if got[-1] else 0.0, abs=1e-9)


def test_a_rate_is_reached_once_a_window_of_images_sustains_it() -> None:
    ramp = [2.0, 3.0, 3.5, 3.8, *(4.0 + 0.1 * number for number in range(20))]
    found = course(ramp)
    assert found.seconds_to(0.9 * 1000, window=500) == pytest.approx(4.0)
    assert found.seconds_to(300, window=200) == pytest.approx(3.5)
    assert found.seconds_to(10, window=200) == 0.0
    assert found.seconds_to(2000, window=500) is None
    assert found.seconds_to(10, window=100_000) is None  # there are fewer images


def test_a_short_burst_does_not_count_as_a_rate() -> None:
    """Ten batches that were ready together, and a second without any, repeatedly."""
    got = [float(1 + number // 10) for number in range(40)]
    assert course(got).seconds_to(2_000, window=2_048) is None
    assert course(got).seconds_to(900, window=2_048) == pytest.approx(1.0)


def test_images_that_a_consumer_missed_are_found() -> None:
    wanted = {"images": 10, "bytes": 1_095_045, "labels": 45, "ids": 7}
    check({"sums": wanted}, wanted, "fetch")
    check({"sums": {"labels": 45}}, wanted, "decode")
    with pytest.raises(
        RuntimeError, match=r"Wanted the same images from fetch. Found: sums .* \{'labels': \(45, 46\)\}"
    ):
        check({"sums": {**wanted, "labels": 46}}, wanted, "fetch")


def test_a_comparison_is_void_where_the_proxy_may_be_the_limit() -> None:
    proxy = ProxyLimit()
    run = Run(course([1.0, 2.0, 3.0], count=1_000), {}, 0.0, None)  # 110 MB/s
    proxy.mb_per_s = 200.0
    assert proxy.void([run]) == "the proxy alone carries 200 MB/s, less than twice 110 MB/s"
    proxy.mb_per_s = 220.0
    assert proxy.void([run]) == ""


def test_a_note_tells_the_costs_of_client_server_and_proxy_apart() -> None:
    found = course([0.1 * number for number in range(1, 7)], cpu=0.08)
    near, far = Run(found, {}, 0.3, None), Run(found, {}, 0.3, Carried(16, 1, 1, 0, 0.12))
    assert describe([near]) == "1,000 images/s, CPU ms an image 0.80 client + 0.50 server"
    assert describe([far]) == f"{describe([near])} + 0.20 proxy"
    assert (far.whole_rate, far.mb_per_s) == pytest.approx((1_000, 110))
