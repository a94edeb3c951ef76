"""What the commands of benchmarks share: their arguments, a folder of their own, and rows also where a part fails."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.figures import Figures
from benchmarks.harness.results import ROOT, Row
from devstack import DevstackError

PLACE = ROOT / "build" / "bench"
_begun = time.monotonic()


def tell(text: str) -> None:
    """A line of progress."""
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Asked:
    """What a command is to measure: less of everything, if it ``is_quick``, and these rows by number."""

    is_quick: bool
    wanted: frozenset[int]


def asked(doc: str | None, figures: Figures, *, quick: str = "less of everything") -> Asked:
    """The arguments of this process, ``--quick`` and ``--only``; it ends with 2 where they cannot be."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--only",
        metavar="ROW,...",
        help=f"these rows again, by number, of {len(figures)}; the others stay as they are",
    )
    args = parser.parse_args()
    try:
        return Asked(args.quick, figures.parse_numbers(args.only) if args.only else frozenset(figures))
    except ValueError as error:
        parser.error(str(error))


def run(name: str, work: Callable[[Path], bool]) -> int:
    """Do ``work`` in a new folder, which is removed; the exit code: 0 if it says that all was measured."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=PLACE)).resolve()
    try:
        return 0 if work(folder) else 1
    except (OSError, RuntimeError, DevstackError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        tell("remove what was made")
        shutil.rmtree(folder, ignore_errors=True)


class Parts:
    """The rows that are wanted, part by part; a part that fails has rows that say so, and ``is_whole`` is over."""

    def __init__(self, figures: Figures, wanted: Collection[int]) -> None:
        self._figures, self._wanted = figures, set(wanted)
        self.rows: dict[int, Row] = {}
        self.is_whole = True

    def measure(self, numbers: Collection[int], work: Callable[[Collection[int]], Mapping[int, Row]]) -> None:
        """Have a part's rows, which have these numbers, as far as they are wanted: ``work`` is told which."""
        if here := sorted(self._wanted.intersection(numbers)):
            try:
                self.rows.update(work(here))
            except Exception as error:  # whatever it is, what else was measured in an hour is worth keeping
                tell(f"failed: {error}")
                self.rows.update(self._figures.failed_rows(here, error))
                self.is_whole = False
