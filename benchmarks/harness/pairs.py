"""Runs contenders alternately, and computes the ratios of their runs."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from benchmarks.harness.results import tell

K = TypeVar("K")
T = TypeVar("T")

_FEW_TURNS = 3
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262,
            11: 2.228, 12: 2.201, 13: 2.179, 14: 2.160, 15: 2.145}  # fmt: skip
"""The 97.5 % point of Student's t by the number of pairs."""


def in_turn(
    turns: int,
    contenders: Mapping[K, Callable[[], T]],
    *,
    told: Callable[[K, T], str] | None = None,
    enough: float = math.inf,
) -> dict[K, list[T]]:
    """Run the contenders alternately and return the results of each; ``told`` formats them for the console.

    Every second turn runs in the opposite order. After ``enough`` seconds, three turns are sufficient.
    """
    runs: dict[K, list[T]] = {name: [] for name in contenders}
    began = time.monotonic()
    for turn in range(turns):
        if turn >= _FEW_TURNS and time.monotonic() - began > enough:
            break
        for name in contenders if turn % 2 == 0 else reversed(list(contenders)):
            runs[name].append(contenders[name]())
            if told:
                tell(f"{turn + 1}: {told(name, runs[name][-1])}")
    return runs


def best_of(numbers: Sequence[int], rate: Callable[[int], float], *, turns: int = 2) -> tuple[int, str]:
    """The number with the highest mean rate, and all means as text."""
    runs = in_turn(turns, {number: partial(rate, number) for number in numbers})
    means = {number: statistics.fmean(found) for number, found in runs.items()}
    words = ", ".join(f"{mean:,.0f} with {number}" for number, mean in means.items())
    return max(numbers, key=means.__getitem__), f"{words} in flight"


def paired_ratio(ours: Sequence[float], others: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median of the ratios ours / other, and its 95 % interval.

    The interval is Student's t on the logarithms of the ratios. Raises ValueError for fewer than 2 or more than 15
    pairs.
    """
    ratios = [one / other for one, other in zip(ours, others, strict=True)]
    if len(ratios) not in _STUDENT:
        raise ValueError(f"Wanted 2 to 15 pairs. Found: {len(ratios)}")
    logs = [math.log(ratio) for ratio in ratios]
    centre = statistics.fmean(logs)
    reach = _STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.median(ratios), (math.exp(centre - reach), math.exp(centre + reach))
