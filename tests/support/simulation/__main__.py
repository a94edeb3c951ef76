"""Plays scenarios and prints the first that breaks something: ``python -m tests.support.simulation --count 30000``."""

import logging
import sys

from tests.support.many import play_many
from tests.support.simulation.plays import first_broken

logging.disable(logging.WARNING)  # of stores that do not answer, which is what is played

if __name__ == "__main__":
    sys.exit(play_many(first_broken, "scenarios of each kind", together=100, usual=18_000))
