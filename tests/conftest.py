"""What holds for every tier: how hypothesis, Java and Ctrl-C behave in tests, and which tests share a process."""

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# Every Java that tests start, Spark's and Cassandra's, compiles quickly rather than well: none of them lasts.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# As in the activated environment, also where it is not: programs are found, and Spark's workers run this Python.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# A shell has what it runs in the background ignore Ctrl-C; what tests start, and interrupt, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = ("tests/integration/etl/", "tests/integration/jobs/")
"""Where tests use the Spark session. One process runs all of them, so that a run has one session."""

LONGEST = (*SPARK, "tests/e2e/test_readme.py", "tests/e2e/test_train.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: one process is busy with it while the others do the rest."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadScopeScheduling":
    """Processes take whole files of tests, which make their fixtures once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)
