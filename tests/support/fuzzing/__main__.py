"""Reads damaged inputs for some minutes, on all cores: ``python -m tests.support.fuzzing --minutes 30``."""

import argparse
import os
import resource
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.support.fuzzing.reading import SECONDS, found_in
from tests.support.fuzzing.targets import TARGETS

_TOGETHER = 100
_BYTES = 4 << 30  # of address space, for each process
_KEPT = Path("build/fuzz")


def _limited() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))


def main() -> int:
    """Returns 1 after a finding, whose input is kept in build/fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input (default: %(default)s)")
    parser.add_argument("--target", choices=TARGETS, help="one kind of input alone")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("Wanted --minutes above 0.")
    names = [options.target] if options.target else [*TARGETS]
    started, first, findings = time.monotonic(), options.first, 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=_limited) as pool:
        while time.monotonic() - started < 60 * options.minutes and not findings:
            pieces = [(name, range(first, first + _TOGETHER)) for name in names]
            for (name, _), found in zip(pieces, pool.map(found_in, *zip(*pieces, strict=True)), strict=True):
                for number, data, what in found[:1]:
                    _KEPT.mkdir(parents=True, exist_ok=True)
                    kept = _KEPT / f"{name.replace(' ', '-')}-{number}.bin"
                    kept.write_bytes(data)
                    findings += 1
                    print(f"{name} {number}: {what}. The input is in {kept}.", flush=True)
            first += _TOGETHER
            if first % (10 * _TOGETHER) == 0:
                seconds = time.monotonic() - started
                print(f"{first - options.first:,} inputs of {len(names)} kinds in {seconds:,.0f} s", flush=True)
    print(f"{first - options.first:,} inputs of each kind, each at most {SECONDS:g} s: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
