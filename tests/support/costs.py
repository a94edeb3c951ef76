"""Where the CPU time of a test run goes: by test, by file and by fixture.

    python -m pytest -p tests.support.costs tests/unit

A test's cost is the CPU time of its process and of everything below it: subprocesses, and the servers and Spark
sessions that this process started, whoever uses them. Fixtures of modules and sessions are listed separately.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

SHOWN = 25


class Costs:
    """CPU seconds of one process, by name."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]  # what was spent within each open span

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Charge the costs of this block to a name, except for what inner blocks charge to theirs."""
        before = cpu_seconds()
        self._inner.append(0.0)
        try:
            yield
        finally:
            spent = cpu_seconds() - before
            self.seconds[name] += spent - self._inner.pop()
            self._inner[-1] += spent


_mine, _all = Costs(), Counter[str]()


def cpu_seconds() -> float:
    """User and system time of this process and its descendants, including those that have ended."""
    total = 0.0
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    with _mine.span("collection"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _mine.span(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    if fixturedef.scope == "function":
        return (yield)
    with _mine.span(f"fixture {fixturedef.argname} of {fixturedef.baseid or 'pytest'}"):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _all.update(getattr(node, "workeroutput", {}).get("costs", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = dict(_mine.seconds)
    else:
        _all.update(_mine.seconds)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests = Counter({name: spent for name, spent in _all.items() if "::" in name})
    files = Counter[str]()
    for name, spent in tests.items():
        files[name.partition("::")[0]] += spent
    others = _all - tests
    for title, costs in (("tests", tests), ("files", files), ("fixtures and collection", others)):
        terminalreporter.section(f"CPU seconds of {title}: {costs.total():.0f} in all")
        for name, spent in costs.most_common(SHOWN):
            terminalreporter.write_line(f"{spent:8.1f}  {name}")
