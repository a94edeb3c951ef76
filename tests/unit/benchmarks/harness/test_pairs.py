"""Alternating contenders, and the ratios of their runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.pairs import in_turn, paired_ratio


def test_every_second_turn_runs_backwards(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    runs = in_turn(2, {name: lambda name=name: order.append(name) for name in "ab"}, told=lambda name, _: f"{name} ran")
    assert (order, runs) == ([*"abba"], {"a": [None, None], "b": [None, None]})
    assert "2: b ran" in capsys.readouterr().err


@given(ratios=st.lists(st.floats(0.1, 10), min_size=2, max_size=15), other=st.floats(0.1, 1e3))
def test_ratios_are_paired(ratios: list[float], other: float) -> None:
    others = [other * (1 + number) for number in range(len(ratios))]
    ours = [ratio * one for ratio, one in zip(ratios, others, strict=True)]
    ratio, (low, high) = paired_ratio(ours, others)
    assert min(ratios) * 0.999 <= ratio <= max(ratios) * 1.001
    assert low <= high


def test_equal_ratios_give_an_interval_of_zero_width() -> None:
    ratio, interval = paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio, *interval) == pytest.approx((2.0, 2.0, 2.0))
    with pytest.raises(ValueError, match="Found: 1"):
        paired_ratio([1.0], [1.0])
