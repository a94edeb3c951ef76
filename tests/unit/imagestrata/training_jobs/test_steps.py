"""The messages of a job while it pulls and starts."""

from imagestrata.training_jobs.steps import Processes, Pulling
from tests.support.waiting import until


class Scene:
    """Processes of agents, and a clock, both set by the test."""

    def __init__(self, *found: int) -> None:
        self.now, self.found, self.said = 0.0, {number: {pid} - {0} for number, pid in enumerate(found)}, list[str]()
        self.looks = 0
        self.processes = Processes(self.look, self.said.append, lambda: self.now)

    def look(self) -> dict[int, set[int]]:
        self.looks += 1
        return self.found

    def after(self, seconds: float, **found: int) -> list[str]:
        """The messages until this many seconds later, with these processes of agents; 0 is none."""
        self.found |= {int(name[1:]): {pid} - {0} for name, pid in found.items()}
        self.said.clear()
        for _ in range(round(seconds * 2)):
            self.now += 0.5
            self.processes.look()
        return self.said[:]


def test_a_start_is_told_process_by_process() -> None:
    scene = Scene(0, 0, 0)
    assert scene.after(4) == []
    assert scene.after(2) == ["0 of 3 processes have started, 5 s so far"]
    assert scene.after(1, a1=11) == ["the first process has started after 6 s"]
    assert scene.after(6, a2=12) == ["2 of 3 processes have started, 12 s so far"]
    assert scene.after(1, a0=10) == ["all 3 processes have started after 14 s"]
    assert scene.after(600) == []


def test_a_long_wait_is_told_more_seldom_and_a_running_job_is_looked_at_seldom() -> None:
    scene = Scene(0)
    scene.after(60)
    assert scene.after(60) == [f"0 of 1 processes have started, {seconds} s so far" for seconds in (85, 115)]
    scene.after(1, a0=10)
    scene.looks = 0
    scene.after(60)
    assert 11 <= scene.looks <= 13


def test_a_lost_agent_makes_the_others_start_again() -> None:
    scene = Scene(10, 11, 12)
    assert scene.after(1) == ["all 3 processes have started after 0 s"]
    del scene.found[1]
    scene.processes.expect_again()
    assert scene.after(6) == ["0 of 2 processes have started again, 5 s so far"]
    assert scene.after(1, a0=20, a2=22) == ["all 2 processes have started again after 6 s"]


def test_a_command_that_fails_is_seen_to_start_again() -> None:
    scene = Scene(10, 11)
    scene.after(1)
    assert scene.after(6, a0=20) == [
        "the command restarts: it failed, or another torchrun joined",
        "the first process has started again after 0 s",
    ]
    assert scene.after(1, a1=21) == ["all 2 processes have started again after 2 s"]


def test_processes_that_end_are_not_told() -> None:
    scene = Scene(10, 11)
    scene.after(1)
    assert scene.after(20, a0=0) == []
    scene.found.clear()
    assert scene.after(20) == []


def test_processes_that_end_before_all_have_started_have_started() -> None:
    scene = Scene(0, 0, 0)
    assert scene.after(1, a0=10) == ["the first process has started after 0 s"]
    assert scene.after(6, a0=0) == ["1 of 3 processes have started, 6 s so far"]
    assert scene.after(1, a1=11, a2=12) == ["all 3 processes have started after 8 s"]
    assert scene.after(60, a1=0, a2=0) == []


def test_a_process_that_no_look_has_found_has_started_once_its_agent_is_done() -> None:
    scene = Scene(0, 0, 0)
    for number in range(2):
        del scene.found[number]
        scene.processes.ended(number)
    assert scene.after(6) == ["2 of 3 processes have started, 5 s so far"]
    assert scene.after(1, a2=12) == ["all 3 processes have started after 6 s"]


def test_a_pull_is_told_when_a_part_begins_and_while_it_takes_long() -> None:
    said: list[str] = []
    with Pulling("mine", said.append, every=0.01) as pulling:
        until(lambda: len(said) > 1, "a line", seconds=60)
        assert said[0] == "mine: waiting for the service or for another pull of the same dataset, 0 s so far"
        pulling.show("download", 0, 12_000_000)
        pulling.show("download", 3_000_000, 12_000_000)
        until(lambda: "mine: downloaded 3.0 of 12.0 MB, 0 s so far" in said, "its state", seconds=60)
        pulling.show("unpack", 7, 1_000)
        pulling.protecting()
        until(lambda: said[-1] == "mine: making the files read-only, 0 s so far", "the end", seconds=60)
    assert [line for line in said if "so far" not in line] == [
        "mine: downloading 12.0 MB",
        "mine: unpacking 1,000 files",
    ]
