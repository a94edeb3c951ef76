"""Runs the fault drills and writes the table of the results: ``python -m tests.support.drills --seed 7``.

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
from pathlib import Path

from tests.support.drills.drill import DRILLS, Outcome, run, table
from tests.support.drills.world import world


def main() -> int:
    """Run the drills in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the times and targets of faults (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often all drills run (default: %(default)s)")
    parser.add_argument("--only", action="append", help="drills whose name has this text; repeatable")
    parser.add_argument("--images", type=int, default=240, help="of the source (default: %(default)s)")
    parser.add_argument("--secure", action="store_true", help="with TLS, certificates and roles")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table between its marks in this file")
    options = parser.parse_args()
    texts = options.only or [""]
    chosen = [drill for drill in DRILLS if any(text in drill.name for text in texts)]
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="imagestrata-drills-") as folder,
        world(Path(folder), images=options.images, secure=options.secure) as made,
    ):
        for number in range(options.rounds):
            for drill in chosen:
                started = time.monotonic()
                outcome = run(made, drill, random.Random(f"{options.seed} {number} {drill.name}"))
                outcomes.append(outcome)
                print(f"{outcome}  ({time.monotonic() - started:.0f} s)", flush=True)
    text = table(outcomes)
    if options.table is not None:
        before, mark, rest = options.table.read_text(encoding="utf-8").partition("<!-- drills -->\n")
        after = rest.partition("<!-- /drills -->")[2]
        options.table.write_text(f"{before}{mark}{text}<!-- /drills -->{after}", encoding="utf-8")
    print(text)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
