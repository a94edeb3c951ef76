"""What the benchmark of splits reports: its figures in their order, and the rows that are made of measurements."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ingest_pairs import paired_ratio
from benchmarks.results import Row


@dataclass(frozen=True)
class Figure:
    """One figure and its target."""

    text: str
    op: str
    target: float
    unit: str = "ratio"


_SORTED = "repartitionByRange(N, hash).sortWithinPartitions(hash)"
FIGURES: Mapping[int, Figure] = {
    1: Figure(f"exact stratified split with positions, its time over {_SORTED} of the same rows", "<=", 2.0),
    2: Figure("exact stratified split without positions, its time over reading and writing the same rows", "<=", 3.5),
    3: Figure("split of rows that lie in Cassandra, its time over pandas'", "<=", 1.0),
    4: Figure("peak anonymous memory of a whole split job, 2 GB heap, over pandas'", "<=", 0.5),
    5: Figure("the whole command from a metadata cache, Spark's start included", "<", 30, "s"),
    6: Figure("one class with 90 % of the rows, time over that of Zipf classes", "<=", 1.3),
    7: Figure("bytes that tasks return to the driver, ten times the rows over the rows", "<=", 1.1),
    8: Figure("bytes that tasks return to the driver in a heap of 4 GB", "<", 64, "MB"),
    9: Figure("split that keeps groups whole, its time over the one that does not", "<=", 3),
    10: Figure("groups that lie in more than one split", "<=", 0, "groups"),
    11: Figure(
        "cells that are not their ideal rounded down or up, and classes that lost or won rows", "<=", 0, "cells"
    ),
    12: Figure("largest distance of a split's rows from its ideal", "<", 1, "rows"),
    13: Figure("different assignments for 1, 7, 200 partitions, shuffled rows, retried tasks", "<=", 1, "assignments"),
}
"""By number. Counts of what must not be have 0 as their upper limit, those of what must be one have 1."""

QUICK_NOTE = "less data than this figure is about and no run before it, so no verdict; "


def ratio_row(number: int, ours: Sequence[float], others: Sequence[float], *, note: str, quick: bool) -> Row:
    """A row for the ratio of paired runs; a single pair has no interval."""
    figure = FIGURES[number]
    ratio, interval = paired_ratio(ours, others) if len(ours) > 1 else (ours[0] / others[0], None)
    return Row(
        figure.text,
        figure.op,
        figure.target,
        None if quick else ratio,
        figure.unit,
        interval=None if quick else interval,
        pairs=len(ours),
        ours=statistics.median(ours),
        other=statistics.median(others),
        note=f"{QUICK_NOTE}{ratio:.2f}; {note}" if quick else note,
    )


def value_row(number: int, value: float | None, *, note: str, quick: bool = False, runs: int | None = None) -> Row:
    """A row for one value; ``quick`` says that it has no meaning, as so little was measured."""
    figure = FIGURES[number]
    if quick and value is not None:
        value, note = None, f"{QUICK_NOTE}{value:.2f} {figure.unit}; {note}"
    return Row(figure.text, figure.op, figure.target, value, figure.unit, pairs=runs, note=note)


def failed_rows(numbers: Sequence[int], error: BaseException) -> dict[int, Row]:
    """Rows without a value for what could not be measured."""
    told = " ".join(str(error).split())[:300]
    return {number: value_row(number, None, note=f"not measured: {type(error).__name__}: {told}") for number in numbers}


def parse_numbers(text: str) -> frozenset[int]:
    """Read ``1,3``; raises ValueError for numbers that no figure has."""
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and int(item) in FIGURES for item in items):
        raise ValueError(f"Wanted numbers of rows from 1 to {max(FIGURES)}, with commas between them. Found: {text!r}")
    return frozenset(map(int, items))


def with_earlier(rows: Mapping[int, Row], path: Path, *, quick: bool) -> list[Row]:
    """The rows in their order; those that were not measured now are taken from an earlier report of the same size."""
    numbers = {figure.text: number for number, figure in FIGURES.items()}
    found: dict[int, Row] = {}
    if path.exists():
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["quick"] == quick:
            for row in report["rows"]:
                interval = row["interval"] and tuple(row["interval"])
                if row["figure"] in numbers:
                    found[numbers[row["figure"]]] = Row(**{**row, "interval": interval})
    found.update(rows)
    return [found[number] for number in sorted(found)]
