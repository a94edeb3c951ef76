"""The figures of a benchmark in their order, and the rows that are made of what was measured."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.pairs import paired_ratio
from benchmarks.harness.results import Row

QUICK_NOTE = "less data than this figure is about and no run before it, so no verdict; "


@dataclass(frozen=True)
class Figure:
    """One figure and its target."""

    text: str
    op: str
    target: float
    unit: str = "ratio"


class Figures(dict[int, Figure]):
    """A benchmark's figures by number, from 1."""

    def ratio_row(
        self, number: int, ours: Sequence[float], others: Sequence[float], *, note: str, quick: bool, void: str = ""
    ) -> Row:
        """A row for the ratio of paired runs; a single pair has no interval. ``void`` says why it means nothing."""
        figure = self[number]
        ratio, interval = paired_ratio(ours, others) if len(ours) > 1 else (ours[0] / others[0], None)
        if void:
            note = f"void: {void}; {ratio:.2f}; {note}"
        elif quick:
            note = f"{QUICK_NOTE}{ratio:.2f}; {note}"
        return Row(
            figure.text,
            figure.op,
            figure.target,
            None if quick or void else ratio,
            figure.unit,
            interval=None if quick or void else interval,
            pairs=len(ours),
            ours=statistics.median(ours),
            other=statistics.median(others),
            note=note,
        )

    def value_row(
        self, number: int, value: float | None, *, note: str, quick: bool = False, runs: int | None = None
    ) -> Row:
        """A row for one value; ``quick`` says that it has no meaning, as so little was measured."""
        figure = self[number]
        if quick and value is not None:
            value, note = None, f"{QUICK_NOTE}{value:.2f} {figure.unit}; {note}"
        return Row(figure.text, figure.op, figure.target, value, figure.unit, pairs=runs, note=note)

    def failed_rows(self, numbers: Sequence[int], error: BaseException) -> dict[int, Row]:
        """Rows without a value for what could not be measured."""
        told = " ".join(str(error).split())[:300]
        note = f"not measured: {type(error).__name__}: {told}"
        return {number: self.value_row(number, None, note=note) for number in numbers}

    def parse_numbers(self, text: str) -> frozenset[int]:
        """Read ``1,3``; raises ValueError for numbers that no figure has."""
        items = [item.strip() for item in text.split(",")]
        if not all(item.isdecimal() and int(item) in self for item in items):
            raise ValueError(f"Wanted numbers of rows from 1 to {max(self)}, with commas between them. Found: {text!r}")
        return frozenset(map(int, items))

    def with_earlier(self, rows: Mapping[int, Row], path: Path, *, quick: bool) -> list[Row]:
        """The rows in their order; those that were not measured now come from an earlier report of the same size."""
        numbers = {figure.text: number for number, figure in self.items()}
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
