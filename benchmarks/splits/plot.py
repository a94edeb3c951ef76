"""The plot of the splits benchmark: the times of two contenders, for the figures of time."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.harness.results import Row
from benchmarks.splits.figures import FIGURES

CONTENDERS = {
    1: ("exact split, with positions", "sort by a hash"),
    2: ("exact split, without positions", "copy"),
    3: ("exact split of Cassandra's rows", "pandas"),
    6: ("exact split, a class with 90 %", "exact split, Zipf classes"),
    9: ("groups kept whole", "without groups"),
}
"""The names of the figures whose ``ours`` and ``other`` are seconds."""


def draw(path: Path, rows: Iterable[Row]) -> Path:
    """Write a PNG with two bars for each such figure, each on a separate scale, with their ratio if there is one."""
    found = {row.figure: row for row in rows}
    figure = Figure(figsize=(9, 7), layout="constrained")
    figure.suptitle("seconds, medians of runs in turn; each pair has its own scale")
    for axes, (number, names) in zip(figure.subplots(len(CONTENDERS)), CONTENDERS.items(), strict=True):
        row = found.get(FIGURES[number].text)
        seconds = (row.ours or 0.0, row.other or 0.0) if row else (0.0, 0.0)
        ratio = f", ratio {row.value:.2f}" if row and row.value else ""
        words = [f"{one:.1f}" if one else "not measured" for one in seconds]
        axes.bar_label(axes.barh(names, seconds), [words[0] + ratio, words[1]], padding=4)
        axes.invert_yaxis()
        axes.margins(x=0.3)
    figure.savefig(path)
    return path
