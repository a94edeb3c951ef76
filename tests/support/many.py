"""Plays many numbered plays on all cores, until one breaks something."""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeAlias

# Plays those of some numbers. The number of the first that breaks something, what is needed of it, and what it breaks.
FirstBroken: TypeAlias = Callable[[Sequence[int]], tuple[int, list[Any], str] | None]


def play_many(first_broken: FirstBroken, what: str, *, together: int, usual: int) -> int:
    """Play those that the command line asks for, by default ``usual`` many. Prints the first that breaks something, and
    returns 1 then.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=usual, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one (default: %(default)s)")
    options = parser.parse_args()
    if options.count < 1 or options.first < 0:
        parser.error("Wanted --count of at least 1, and --first of at least 0.")
    started, end, done = time.monotonic(), options.first + options.count, 0
    pieces = [range(start, min(start + together, end)) for start in range(options.first, end, together)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for piece, broken in zip(pieces, pool.map(first_broken, pieces), strict=True):
            done += len(piece)
            if broken is not None:
                number, parts, found = broken
                print(f"number {number} of the {what} breaks something. What is needed of it:", *parts, found,
                      sep="\n    ")  # fmt: skip
                pool.shutdown(cancel_futures=True)
                return 1
            if done == options.count or not done % (20 * together):
                print(f"{done:,} of {options.count:,} {what} in {time.monotonic() - started:,.0f} s", flush=True)
    return 0
