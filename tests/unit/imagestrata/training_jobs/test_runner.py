"""The agents of a job, with commands instead of torchrun: when the job continues, and when it ends."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imagestrata.training_jobs.agents import Agent
from imagestrata.training_jobs.runner import INTERRUPTED, _Agents, _signals

STORE: Any = SimpleNamespace(is_there=True)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Agent]:
    def start(number: int, *command: str) -> Agent:
        return Agent(number, command, cwd=tmp_path, env=dict(os.environ), logs=tmp_path)

    return start


def ended(agents: _Agents, *, told: threading.Event | None = None, timeout: float | None = 60.0) -> int:
    """Run a job to its end and check that nothing is left of it."""
    try:
        return agents.watch(STORE, told or threading.Event(), timeout)
    finally:
        agents.end(threading.Event())


def test_a_job_fails_when_too_few_agents_are_left(start: Callable[..., Agent]) -> None:
    said: list[str] = []
    agents = _Agents(2, said.append)
    both = [start(number, "sleep", "600") for number in range(2)]
    for agent in both:
        agents.start(agent)
    both[1].signal(signal.SIGKILL)
    assert ended(agents) == 1
    assert said == ["Wanted at least 2 agents. Found: 1, because agent 1 ended: signal 9, SIGKILL"]
    assert [agent.outcome for agent in both] == ["lost", "lost"]


def test_a_job_that_lost_an_agent_is_done_when_the_others_are(start: Callable[..., Agent]) -> None:
    said: list[str] = []
    agents = _Agents(1, said.append)
    agents.start(start(0, "true"))
    agents.start(start(1, "sh", "-c", "kill -9 $$"))
    assert ended(agents) == 0
    assert said == ["agent 1 is lost (signal 9, SIGKILL); the job restarts the command with 1 left"]


def test_a_job_ends_at_its_timeout_or_with_its_store(start: Callable[..., Agent]) -> None:
    said: list[str] = []
    agents = _Agents(1, said.append)
    agents.start(start(0, "sleep", "600"))
    assert agents.watch(STORE, threading.Event(), 0.01) == 1
    assert agents.watch(SimpleNamespace(is_there=False), threading.Event(), None) == 1  # type: ignore[arg-type]
    agents.end(threading.Event())
    assert said == [
        "Wanted a job of at most 0.01 seconds. Found: it is still running",
        "Wanted a running rendezvous store. Found: it has ended",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_interrupts_a_job_that_runs(start: Callable[..., Agent], number: signal.Signals) -> None:
    said: list[str] = []
    agents = _Agents(1, said.append)
    with _signals() as signals:
        with pytest.raises(KeyboardInterrupt):  # during the pull
            signal.raise_signal(number)
        signals.is_raising = False
        agents.start(start(0, "sleep", "600"))
        signal.raise_signal(number)
        assert not signals.again.is_set()
        assert ended(agents, told=signals.told) == INTERRUPTED
        signal.raise_signal(number)
        assert signals.again.is_set()
    assert said == ["interrupted: ending the job"]
