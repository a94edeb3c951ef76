"""The log of py4j, which has all calls to Spark, with their arguments, if a program logs at DEBUG."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep calls to Spark that have secrets out of the log."""
    log = logging.getLogger("py4j")
    before = log.level
    log.setLevel(max(log.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        log.setLevel(before)
