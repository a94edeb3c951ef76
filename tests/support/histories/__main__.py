"""Plays histories and prints the first that breaks something: ``python -m tests.support.histories --count 100000``."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.support.histories.generate import first_broken

_TOGETHER = 500


def main() -> int:
    """Play them on all cores. Returns 1 if one breaks something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many histories (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one (default: %(default)s)")
    options = parser.parse_args()
    started, end, done = time.monotonic(), options.first + options.count, 0
    pieces = [range(start, min(start + _TOGETHER, end)) for start in range(options.first, end, _TOGETHER)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for piece, broken in zip(pieces, pool.map(first_broken, pieces), strict=True):
            done += len(piece)
            if broken is not None:
                number, operations, what = broken
                print(f"history {number} breaks something. What is needed of it:", *operations, what, sep="\n    ")
                pool.shutdown(cancel_futures=True)
                return 1
            if done == options.count or not done % (20 * _TOGETHER):
                print(f"{done:,} of {options.count:,} histories in {time.monotonic() - started:,.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
