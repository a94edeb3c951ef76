"""Settings for every tier: hypothesis, Java and Ctrl-C in tests, and which tests share a process."""

import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# What failed before is kept with the project, from whichever folder tests are run.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).resolve().parents[1] / ".hypothesis"))

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

LONGEST = (*SPARK, "tests/e2e/test_docs.py", "tests/e2e/test_train.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: one process is busy with it while the others do the rest."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def misplaced(nodeid: str, fixtures: Collection[str]) -> str:
    """Where a test belongs that uses these fixtures; empty where it is there."""
    services = sorted({"cassandra", "control", "s3", "spark"} & set(fixtures))
    if services and nodeid.startswith("tests/unit/"):
        return f"{nodeid} uses {', '.join(services)}: move it to tests/integration. Unit tests have no services."
    if "spark" in services and not nodeid.startswith((*SPARK, "tests/e2e/")):
        return f"{nodeid} uses spark: move it to {' or '.join(SPARK)}. One process runs those, with the one session."
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test in the wrong place fails, and says where it belongs."""
    if advice := misplaced(item.nodeid, getattr(item, "fixturenames", ())):
        pytest.fail(advice, pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadScopeScheduling":
    """Processes take whole files of tests, which make their fixtures once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)
