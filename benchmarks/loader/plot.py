"""The plot of the loader benchmark: images per second against the round trip, with a line for each way to read."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure


def draw(path: Path, curves: Mapping[str, Mapping[float, float]]) -> Path:
    """Write a PNG of curves by name: images per second, from 0, by round trip in seconds, evenly spaced."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title("images of 110 kB from Cassandra, images/s by round trip")
    rtts = sorted({rtt for points in curves.values() for rtt in points})
    axes.set_xticks(range(len(rtts)), [f"{1e3 * rtt:.0f} ms" for rtt in rtts])
    for name, points in curves.items():
        places = [(rtts.index(rtt), rate) for rtt, rate in sorted(points.items())]
        axes.plot(*zip(*places, strict=True), "o-", label=name)
        for place in places:
            axes.annotate(f"{place[1]:,.0f}", place, xytext=(0, 6), textcoords="offset points", ha="center")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path)
    return path
