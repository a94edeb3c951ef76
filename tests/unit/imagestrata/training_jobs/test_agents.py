"""Agents of jobs: the processes that they started are found, and can be ended."""

import os
from pathlib import Path

from imagestrata.training_jobs.agents import Agent
from tests.support.waiting import until


def test_processes_that_wait_for_a_lost_one_are_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", "RANK=0 sleep 600; echo anew"]
    agent = Agent(0, command, cwd=tmp_path, env=dict(os.environ), logs=tmp_path)
    until(lambda: len(agent.workers()) == 1)
    workers = agent.workers()
    assert not agent.kill_workers({1})
    assert agent.kill_workers(workers)
    assert agent.wait(60)
    assert not agent.kill_workers(workers)
    assert agent.outcome == "done"
    agent.clear()
