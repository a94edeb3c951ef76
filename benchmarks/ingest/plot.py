"""The plot of the ingest benchmark: the speed of each contender, and a worker's memory over time."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure


def draw(path: Path, *, speeds: Mapping[str, Sequence[float]], memory: Sequence[tuple[float, float]]) -> Path:
    """Write a PNG with bars (MB/s of each run, and their mean) and a line (seconds, MB)."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    bars, line = figure.subplots(2)
    found = {name: runs for name, runs in speeds.items() if runs}
    bars.set_title("110 kB pictures into Cassandra, MB/s (a dot for each run)")
    bars.bar_label(bars.barh(list(found), [statistics.mean(runs) for runs in found.values()]), fmt="%.1f")
    for name, runs in found.items():
        bars.plot(runs, [name] * len(runs), "k.")
    bars.invert_yaxis()
    line.set_title("memory of one worker while pictures pass through, anonymous MB by seconds")
    line.axhline(300, color="grey")
    line.plot([at for at, _ in memory], [value for _, value in memory])
    line.set_ylim(bottom=0)
    figure.savefig(path)
    return path
