"""Ratios of paired runs: two contenders measured one after another, several times."""

import math
import statistics
from collections.abc import Sequence

from benchmarks.harness.results import Row

QUICK_NOTE = "less data than this figure is about, no verdict; "
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""The 97.5 % point of Student's t by the number of pairs."""


def paired_ratio(ours: Sequence[float], others: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median of the ratios ours / other, and its 95 % interval.

    The interval is Student's on the logarithms of the ratios, for 2 to 10 pairs. Raises ValueError for others.
    """
    ratios = [one / other for one, other in zip(ours, others, strict=True)]
    if len(ratios) not in _STUDENT:
        raise ValueError(f"Wanted 2 to 10 pairs. Found: {len(ratios)}")
    logs = [math.log(ratio) for ratio in ratios]
    centre = statistics.fmean(logs)
    reach = _STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.median(ratios), (math.exp(centre - reach), math.exp(centre + reach))


def ratio_row(
    figure: str, target: float, ours: Sequence[float], others: Sequence[float], *, note: str, quick: bool
) -> Row:
    """A row for the ratio of paired runs."""
    ratio, interval = paired_ratio(ours, others)
    return Row(
        figure,
        ">=",
        target,
        None if quick else ratio,
        "ratio",
        interval=None if quick else interval,
        pairs=len(ours),
        ours=statistics.median(ours),
        other=statistics.median(others),
        note=f"{QUICK_NOTE}{ratio:.2f}; {note}" if quick else note,
    )
