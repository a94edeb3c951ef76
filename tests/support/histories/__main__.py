"""Plays histories and prints the first that breaks something: ``python -m tests.support.histories --count 100000``."""

import sys

from tests.support.histories.generate import first_broken
from tests.support.many import play_many

if __name__ == "__main__":
    sys.exit(play_many(first_broken, "histories", together=500, usual=100_000))
