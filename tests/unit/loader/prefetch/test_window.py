"""The number of reads in flight, over a simulated link: it fills the link quickly, without a burst."""

import heapq
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.prefetch.retry_policy import RetryPolicy
from loader.prefetch.window import Window


def simulate(
    rate: float | Callable[[float], float], round_trip: float, *, seconds: float, most: int = 4096
) -> list[tuple[float, int]]:
    """Times of answers, and the window at each: a server that answers in order, over a link with this round trip."""
    window = Window(most=most, now=0.0)
    now = free = 0.0
    waiting: list[tuple[float, float]] = []
    found = []
    while now < seconds:
        while len(waiting) < window.size:
            begins = max(now + round_trip / 2, free)
            free = begins + 1 / (rate(begins) if callable(rate) else rate)
            heapq.heappush(waiting, (free + round_trip / 2, now))
        now, sent = heapq.heappop(waiting)
        window.answered(100, sent=sent, now=now, in_flight=len(waiting) + 1)
        found.append((now, window.size))
    return found


def answers(found: list[tuple[float, int]], begin: float, end: float) -> float:
    return sum(begin <= now < end for now, _ in found) / (end - begin)


@pytest.mark.parametrize(("rate", "round_trip"), [
    (3500, 0.0005), (3500, 0.01), (3000, 0.05), (2500, 0.15), (2000, 0.3), (100, 0.15), (10, 0.5),
])  # fmt: skip
def test_the_link_is_full_within_nine_round_trips(rate: float, round_trip: float) -> None:
    begin = max(9 * round_trip, 10 / rate, 0.1)
    found = simulate(rate, round_trip, seconds=begin + 10)
    assert answers(found, begin, begin + 10) >= 0.97 * rate


@pytest.mark.parametrize(("rate", "round_trip"), [
    (2500, 0.15), (2000, 0.3), (100, 0.15), (500, 0.05), (800, 0.0005), (1.1, 0.3),
])  # fmt: skip
def test_no_more_than_three_times_what_the_link_needs_is_in_flight_later(rate: float, round_trip: float) -> None:
    found = simulate(rate, round_trip, seconds=300)
    later = [window for now, window in found if now > 15]
    assert max(later) <= max(3.3 * rate * round_trip, 0.25 * rate + 1, 16)
    assert answers(found, 60, 300) >= 0.97 * rate


def test_the_window_grows_by_no_more_than_one_an_answer_at_first() -> None:
    found = simulate(2500, 0.15, seconds=0.9)
    assert found[0][1] <= 17
    assert all(after - before <= 1 for (_, before), (_, after) in itertools.pairwise(found) if after < 256)


@pytest.mark.parametrize(("before", "after"), [(2000, 500), (500, 2500)])
def test_the_window_adapts_when_the_link_changes(before: float, after: float) -> None:
    found = simulate(lambda now: before if now < 8 else after, 0.15, seconds=40)
    assert answers(found, 12, 40) >= 0.97 * after
    assert found[-1][1] <= 3.1 * after * 0.15


@given(st.integers(1, 100), st.floats(10, 5000), st.floats(0, 0.5))
def test_the_window_never_exceeds_its_maximum(most: int, rate: float, round_trip: float) -> None:
    assert max(window for _, window in simulate(rate, round_trip, seconds=1.0, most=most)) <= most


def test_a_refusal_halves_the_window_once_a_round() -> None:
    window = Window(most=4096, now=0.0)
    for _ in range(300):
        window.answered(100, sent=0.0, now=0.1, in_flight=window.size)
    before = window.size
    for _ in range(10):
        window.refused()
    assert window.size == before // 2
    window.answered(100, sent=0.2, now=0.3, in_flight=window.size)
    window.refused()
    assert window.size < before // 2


def test_response_times_are_reported() -> None:
    window = Window(most=4096, now=0.0)
    assert window.quantiles(0.5, 0.99) == [0.0, 0.0]
    assert window.round_trip is None
    for number in range(2000):
        window.answered(100, sent=float(number), now=number + (2.0 if number % 100 == 0 else 0.1), in_flight=1)
    assert window.quantiles(0.5, 0.95) == pytest.approx([0.1, 0.1])
    assert window.round_trip == pytest.approx(0.1)


def test_pauses_double_up_to_two_seconds() -> None:
    policy = RetryPolicy(timeout=10)
    for tries, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (100, 2.0)):
        assert longest / 2 <= policy.pause(tries) <= longest


def test_second_reads_are_few_and_at_most_three_per_sample() -> None:
    window, policy = Window(most=10, now=0.0), RetryPolicy(timeout=10)
    assert not policy.may_hedge(window, readers=3)
    assert sum(policy.may_hedge(window, readers=1) for _ in range(100)) == 16
    assert policy.late(window) == 1.0  # nothing is known yet
    for number in range(1000):
        window.answered(100, sent=float(number), now=number + 0.1, in_flight=1)
    assert sum(policy.may_hedge(window, readers=1) for _ in range(100)) == 20
    assert policy.late(window) == pytest.approx(0.2)
