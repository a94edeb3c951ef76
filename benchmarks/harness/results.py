"""The report of every benchmark: a table on the console, and ``build/bench/NAME.json``."""

import json
import operator
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "bench"
PACKAGES = ("pyspark", "acsylla", "nvidia-dali-cuda120", "pyarrow", "numpy", "s3fs", "webdataset")
_begun = time.monotonic()


def tell(text: str) -> None:
    """Print a line of progress."""
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Row:
    """One figure: its target (``op``, ``target``) and what was measured (None: no valid value, see ``note``)."""

    figure: str
    op: str
    target: float | None
    value: float | None
    unit: str
    interval: tuple[float, float] | None = None
    pairs: int | None = None
    ours: float | None = None
    other: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a value or a target."""
        return None if self.value is None else self._meets(self.value)

    @property
    def measured(self) -> str:
        """The value with its unit: two decimals, or as many as show on which side of the target it is."""
        if self.value is None:
            return "-"
        enough = (digits for digits in range(2, 9) if self._meets(round(self.value, digits)) == self.met)
        return f"{self.value:,.{next(enough, 9)}f} {self.unit}"

    def _meets(self, value: float) -> bool | None:
        if self.target is None:
            return None
        compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[self.op]
        return bool(compare(value, self.target))

    def without_value(self, reason: str) -> "Row":
        """The same row without its value; the note has the reason and the value."""
        spread = f" ({self.interval[0]:.2f} to {self.interval[1]:.2f})" if self.interval else ""
        note = f"{reason}; {self.value:.2f}{spread} {self.unit}; {self.note}"
        return replace(self, value=None, interval=None, note=note)


def publish(name: str, rows: Sequence[Row], *, quick: bool = False) -> Path:
    """Print the table and write the JSON; return its path."""
    table = Table(title=f"{name}, quick" if quick else name)
    for heading in ("figure", "target", "measured", "", "note"):
        table.add_column(heading)
    for row in rows:
        value = row.measured
        value += f" ({row.interval[0]:,.2f} to {row.interval[1]:,.2f})" if row.interval else ""
        verdict = {True: "met", False: "missed", None: "-"}[row.met]
        target = "" if row.target is None else f"{row.op} {row.target:g} {row.unit}"
        table.add_row(row.figure, target, value, verdict, row.note)
    Console().print(table)
    path = PLACE / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "name": name,
        "quick": quick,
        "machine": {"cpu_count": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "versions": {package: _version(package) for package in PACKAGES},
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(path)
    return path


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
