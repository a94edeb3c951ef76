"""Settings for all tests: hypothesis, Java, Ctrl-C, and which tests share a process."""

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

# The duration of an example depends on the load of the machine.
settings.register_profile("untimed", settings.default, deadline=None)
settings.register_profile("few", settings.get_profile("untimed"), max_examples=10)
settings.load_profile("untimed")

# Failed examples are stored in the project, whichever folder the tests run from.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).resolve().parents[1] / ".hypothesis"))

# Every Java that tests start, Spark's and Cassandra's, uses the quick compiler, because none runs for long. The quick
# compiler's own 48 MB for code are too few for Spark: it would drop methods and compile them again, without an end.
# With Spark it loads some 20,000 classes of released jars: a job of seconds takes a tenth less CPU time unverified.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

# As in the activated environment, even if it is not activated: programs are found, and Spark's workers run this Python.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# jsonschema would import this for URIs in schemas, which we do not check: its grammar takes seconds to build.
sys.modules.setdefault("rfc3987_syntax", None)

# In the background of a shell, Ctrl-C is ignored. Processes that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = ("tests/integration/etl/", "tests/integration/jobs/")
"""Tests of a Spark session. They often wait for Cassandra, so a run has three sessions for two cores."""
SESSIONS = ("tests/integration/jobs/test_featurize", "tests/integration/jobs/test_ingest_ttl")
"""Tests from here on, by name, use the next session. Those of each session take about as long."""
JOURNEYS = "tests/e2e/tables/"
"""Journeys of several jobs over tables: they share one session."""

DOCS = "tests/e2e/test_docs.py"
"""Pages of the documentation, each after the README. Together they would take longer than all other tests."""
SECOND_CHECKOUT = "docs/how-to/from-imagefolder"
"""Pages from here on, by name, run in a second checkout: they take as long as those before."""

LONGEST = (*SPARK, JOURNEYS, DOCS, "tests/e2e/test_train.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that the short ones fill the time in which a process would have nothing to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def misplaced(nodeid: str, fixtures: Collection[str]) -> str:
    """Where a test with these fixtures must be; empty if it is there."""
    services = sorted({"cassandra", "control", "s3", "spark"} & set(fixtures))
    if services and nodeid.startswith("tests/unit/"):
        return f"{nodeid} uses {', '.join(services)}: move it to tests/integration. Unit tests have no services."
    if "spark" in services and not nodeid.startswith((*SPARK, "tests/e2e/")):
        return f"{nodeid} uses spark: move it to {' or '.join(SPARK)}. Few processes run them, each with one session."
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that is in the wrong folder, with the right one."""
    if advice := misplaced(item.nodeid, getattr(item, "fixturenames", ())):
        pytest.fail(advice, pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """For ``-n auto``, two processes more than cores, because tests often wait for a server or until a time is over."""
    return (os.cpu_count() or 1) + 2 if config.option.numprocesses == "auto" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadScopeScheduling":
    """Distribute whole files to processes, and the tests of a Spark session to one: their fixtures are shared."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith(JOURNEYS):
                return JOURNEYS
            if file.startswith(DOCS):
                return f"checkout {1 + (nodeid.partition('[')[2] >= SECOND_CHECKOUT)}"
            return f"session {sum(file >= one for one in SESSIONS)}" if file.startswith(SPARK) else file

    config.option.loadscopereorder = False
    return ByFile(config, log)
