"""Reads damaged inputs: what is neither a result nor an error of ours, or takes too long, is a finding."""

import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from types import FrameType

from tests.support.fuzzing.mutations import mutated
from tests.support.fuzzing.targets import TARGETS

SECONDS = 10.0  # for one input, on a machine under load


class _TooLongError(BaseException):
    pass


def _end(number: int, frame: FrameType | None) -> None:
    raise _TooLongError


@cache
def _seeds(name: str) -> list[bytes]:
    seeds = [*TARGETS[name].seeds()]
    for seed in seeds:
        read(name, seed)  # good inputs are read
    return seeds


def read(name: str, data: bytes) -> None:
    """Read an input. Raises what the target may not raise."""
    target = TARGETS[name]
    with suppress(*target.errors):
        target.read(data)


def found_in(name: str, numbers: Sequence[int]) -> list[tuple[int, bytes, str]]:
    """The findings among the inputs of these numbers: number, input, and what happened."""
    seeds, found = _seeds(name), []
    before = signal.signal(signal.SIGALRM, _end)
    try:
        for number in numbers:
            data = mutated(seeds, number)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                read(name, data)
            except _TooLongError:
                found.append((number, data, f"is read for more than {SECONDS:g} s"))
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
                found.append((number, data, f"{type(error).__name__} in {where}: {str(error)[:300]}"))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return found
