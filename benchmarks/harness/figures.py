"""The figures of a benchmark, and the report rows made from the measurements."""

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.pairs import paired_ratio
from benchmarks.harness.results import Row


@dataclass(frozen=True)
class Figure:
    """One figure and its target, if any; ``needs`` names what a quick run lacks, if its value would mean nothing."""

    text: str
    op: str
    target: float | None
    unit: str = "ratio"
    needs: str = ""


class Figures(dict[int, Figure]):
    """A benchmark's figures by number, from 1."""

    def ratio_row(
        self,
        number: int,
        our_runs: Sequence[Any],
        other_runs: Sequence[Any],
        *,
        by: Callable[[Any], float] = float,
        note: str,
        void: str = "",
    ) -> Row:
        """A row for the ratio of paired runs. ``by`` gets a run's value; a single pair has no interval.

        ``void`` is the reason if the value means nothing.
        """
        figure, (ours, others) = self[number], (list(map(by, runs)) for runs in (our_runs, other_runs))
        ratio, interval = paired_ratio(ours, others) if len(ours) > 1 else (ours[0] / others[0], None)
        row = Row(figure.text, figure.op, figure.target, ratio, figure.unit, interval, len(ours), note=note)
        row = replace(row, ours=statistics.median(ours), other=statistics.median(others))
        return row.without_value(f"void: {void}") if void else row

    def value_row(self, number: int, value: float | None, *, note: str, runs: int | None = None) -> Row:
        """A row for one value."""
        figure = self[number]
        return Row(figure.text, figure.op, figure.target, value, figure.unit, pairs=runs, note=note)

    def quick_row(self, number: int, row: Row) -> Row:
        """The row of a quick run, without its value if that means nothing at its size."""
        if row.value is None or not (needs := self[number].needs):
            return row
        return row.without_value(f"not at this size, it needs {needs}")

    def failed_rows(self, numbers: Sequence[int], error: BaseException) -> dict[int, Row]:
        """Rows without values, for what could not be measured."""
        told = " ".join(str(error).split())[:300]
        note = f"not measured: {type(error).__name__}: {told}"
        return {number: self.value_row(number, None, note=note) for number in numbers}

    def parse_rows(self, text: str) -> frozenset[int]:
        """Parse ``1,memory``: numbers, and regular expressions that are searched in the texts of the figures.

        Raises ValueError, with a list of all rows, if one matches none.
        """
        found: set[int] = set()
        for item in map(str.strip, text.split(",")):
            try:
                expression = re.compile(item or "$^", re.IGNORECASE)
            except re.error as error:
                raise ValueError(f"Wanted a regular expression. Found: {item!r}, {error}") from None
            some = {int(item)} & set(self) if item.isdecimal() else set()
            if not item.isdecimal():
                some = {number for number, figure in self.items() if expression.search(figure.text)}
            if not some:
                rows = "\n".join(f"  {number:2}  {figure.text}" for number, figure in self.items())
                raise ValueError(f"Wanted numbers of rows from 1 to {max(self)}, or words. Found: {item!r}\n{rows}")
            found |= some
        return frozenset(found)

    def with_earlier(self, rows: Mapping[int, Row], path: Path, *, quick: bool) -> list[Row]:
        """The rows in order. Those not measured now come from an earlier report of the same size."""
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
