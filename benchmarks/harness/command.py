"""The command line of a benchmark: its arguments, its temporary folder and its report."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from benchmarks.harness.figures import Figures
from benchmarks.harness.results import PLACE, Row, publish, tell
from formats.command_line import Parser
from imagestrata.devstack import DevstackError


class Parts:
    """The requested rows, measured part by part.

    If a part fails, its rows say so and ``is_whole`` becomes False. ``is_quick`` measures less of everything.
    """

    def __init__(self, figures: Figures, wanted: Collection[int], *, is_quick: bool = False) -> None:
        self.figures, self.wanted, self.is_quick = figures, frozenset(wanted), is_quick
        self.rows: dict[int, Row] = {}
        self.is_whole = True

    def wants(self, numbers: Collection[int]) -> bool:
        """Whether any of these rows is requested."""
        return not self.wanted.isdisjoint(numbers)

    def measure(self, numbers: Collection[int], work: Callable[[Collection[int]], Mapping[int, Row]]) -> None:
        """Measure those of a part's rows that are requested. ``work`` gets their numbers."""
        if here := sorted(self.wanted.intersection(numbers)):
            try:
                found = work(here)
                rows = {number: found[number] for number in here}
                quick = self.figures.quick_row
                self.rows |= {number: quick(number, row) for number, row in rows.items()} if self.is_quick else rows
            except Exception as error:  # keep what other parts have measured, whatever the error
                tell(f"failed: {error}")
                self.rows.update(self.figures.failed_rows(here, error))
                self.is_whole = False

    def measure_whole(self, numbers: Collection[int], work: Callable[[], Mapping[int, Row]]) -> None:
        """Like `measure`, for a part that measures all its rows if any of them is requested."""
        self.measure(numbers, lambda _: work())


Draw = Callable[[Sequence[Row]], Path]
"""Draws a report's rows."""
Work = Callable[[Parts, Path], Draw | None]
"""Measures the requested parts in a folder."""


def asked(doc: str | None, figures: Figures, *, quick: str) -> Parts:
    """Parse the command line, ``--quick`` and ``--only``. Exits with code 2 for bad arguments."""
    parser = Parser(manual=doc)
    parser.add_argument("--quick", action="store_true", help=f"{quick}; figures that need more have no value")
    parser.add_argument(
        "--only",
        metavar="ROW,...",
        help=f"these rows again, the others stay as they are: numbers from 1 to {len(figures)}, or regular expressions "
        "that are searched in their texts, such as 'memory' (an unknown one lists them)",
    )
    args = parser.parse_args()
    try:
        return Parts(figures, figures.parse_rows(args.only) if args.only else figures, is_quick=args.quick)
    except ValueError as error:
        parser.error(str(error))


def run(name: str, doc: str | None, figures: Figures, work: Work, *, quick: str = "less of everything") -> int:
    """Measure the requested rows in a temporary folder and report them.

    The exit code is 1 if something could not be measured, and 0 even if targets are missed.
    """
    parts = asked(doc, figures, quick=quick)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes are ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=PLACE)).resolve()
    try:
        draw = work(parts, folder)
        if missing := sorted(parts.wanted - parts.rows.keys()):
            parts.rows |= figures.failed_rows(missing, LookupError("no part of the benchmark measures it"))
            parts.is_whole = False
    except (OSError, RuntimeError, DevstackError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)
    rows = figures.with_earlier(parts.rows, PLACE / f"{name}.json", quick=parts.is_quick)
    plot = draw(rows) if draw else None
    publish(name, rows, quick=parts.is_quick)
    if plot:
        print(plot)
    return 0 if parts.is_whole else 1
