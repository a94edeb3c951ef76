"""Runs the fault drills and counts the results: ``python -m tests.support.drills --seed 7``.

Three nodes of Cassandra, a Spark master with two workers and an S3 server run on this machine. In each drill, a job or
an epoch is disturbed at a random time. It must end well, or fail; then the same command runs again and must end well.
A judge compares the result with the source by plain queries and SHA-256.

exit codes: 0 all drills ended well; 1 one did not
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from imagestrata.devstack.steps import locked
from tests.support import spark_start
from tests.support.drills.drill import DRILLS, Counted, Drill, Outcome, run, table
from tests.support.drills.world import world

_BEGIN, _END = "<!-- drills -->\n", "<!-- /drills -->"


def main() -> int:
    """Run the drills in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the times and targets of faults (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often all drills run (default: %(default)s)")
    parser.add_argument("--only", action="append", help="drills whose name has this text; repeatable")
    parser.add_argument("--images", type=int, default=240, help="of the source (default: %(default)s)")
    parser.add_argument("--secure", action="store_true", help="with TLS, certificates and roles")
    parser.add_argument("--table", type=Path, metavar="FILE", help="add each drill to the table in this file")
    parser.add_argument("--until", type=int, metavar="N", help="leave out drills that the table has N times")
    options = parser.parse_args()
    if options.until is not None and options.table is None:
        parser.error("--until counts the drills of a table: name it with --table.")
    if options.table is not None and not (
        options.table.is_file() and _BEGIN in options.table.read_text(encoding="utf-8")
    ):
        parser.error(f"Wanted a table of drills in {options.table}. Found: none. Use a copy of docs/reliability.md.")
    texts = options.only or [""]
    chosen = [drill for drill in DRILLS if any(text in drill.name for text in texts)]
    if not chosen or options.rounds < 1:
        parser.error(f"Wanted --rounds of at least 1, and --only with a part of a name such as {DRILLS[0].name!r}.")
    outcomes: list[Outcome] = []
    spark_start.write()
    spark_start.use()
    with (
        tempfile.TemporaryDirectory(prefix="imagestrata-drills-") as folder,
        world(Path(folder), images=options.images, secure=options.secure) as made,
    ):
        for number in range(options.rounds):
            for drill in chosen:
                if options.until is not None and times_in(options.table, drill) >= options.until:
                    continue
                started = time.monotonic()
                outcome = run(made, drill, random.Random(f"{options.seed} {number} {drill.name}"))
                outcomes.append(outcome)
                print(f"{outcome}  ({time.monotonic() - started:.0f} s)", flush=True)
                if options.table is not None:  # at once: a run of hours may be interrupted, or have a second one beside
                    with locked(spark_start.ROOT / "build" / "drills.lock", timeout_s=60, what=str(options.table)):
                        add_to_table(options.table, [outcome])
    print(table(outcomes))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def _parts(page: Path) -> tuple[str, str, str]:
    """A page before, in and after its table of drills."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    return (before, *rest.partition(_END)[::2])


def add_to_table(page: Path, outcomes: Sequence[Outcome]) -> None:
    """Add results to the table of a page."""
    before, earlier, after = _parts(page)
    page.write_text(f"{before}{_BEGIN}{table(outcomes, earlier)}{_END}{after}", encoding="utf-8")


def times_in(page: Path, drill: Drill) -> int:
    """How often the table of a page has a drill."""
    return Counted.of(_parts(page)[1]).times[drill.name]


if __name__ == "__main__":
    sys.exit(main())
