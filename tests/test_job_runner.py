"""Training jobs, run: real torchruns, with gloo on the CPU, of which some are killed."""

import importlib.util
import os
import re
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from dataset_servers import TAR, Server, tar_of
from pictures import picture

from devstack import ports
from service import job_datasets, run_command
from service.job_agents import Agent
from service.job_datasets import dataset_at_hand
from service.job_errors import JobError
from service.processes import adopting, kill_marked

ROOT = Path(__file__).parent.parent
PATIENCE = 180.0

# While all are there it goes on for ever; with fewer, it ends after a few steps.
SCRIPT = """
import os, pathlib, subprocess, sys, time
import torch, torch.distributed as dist

subprocess.Popen(["sleep", "600"], start_new_session=True)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
pictures = list(pathlib.Path(os.environ["DATASET"], "train").glob("*/*.png"))
out = pathlib.Path(sys.argv[1])
try:
    pathlib.Path(os.environ["DATASETS"], "my_dataset", "new").write_text("x")
    print("written")
except OSError as error:
    print("not written:", error.strerror)
steps = 0
while steps < 5 or world == int(os.environ["ALL"]):
    sum = torch.ones(1)
    dist.all_reduce(sum)
    steps += 1
    if steps == 2:
        (out / f"{world}-{rank}.part").write_text(f"{os.getppid()} {len(pictures)} {sum.item():g}")
        (out / f"{world}-{rank}.part").rename(out / f"{world}-{rank}")
    time.sleep(0.05)
dist.destroy_process_group()
"""


class Jobs:
    """Job files, and the runs of them; what these start is known by a mark, and ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.mark = folder, folder / "out", uuid.uuid4().hex
        self.prefix = folder / "datasets"
        self.out.mkdir()
        for label in ("cat", "dog"):
            place = self.prefix / "my_dataset" / "train" / label
            place.mkdir(parents=True)
            (place / "1.png").write_bytes(picture(1, width=8, height=8))
        (folder / "main.py").write_text(SCRIPT, encoding="utf-8")

    def write(self, command: list[str], least: int = 1, most: int = 1, **container: Any) -> Path:
        given = {"name": "train", "image": "hub/train:1", "command": command, **container}
        job = {
            "apiVersion": "breezeml.ai/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "example-job"},
            "spec": {
                "minSize": least,
                "maxSize": most,
                "dataset": "my_dataset",
                "replicaSpecs": {"template": {"spec": {"containers": [given]}}},
            },
        }
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
        return self.folder / "job.yaml"

    def train(self, least: int, most: int) -> subprocess.Popen[str]:
        """A run of the script in as many processes as it may have."""
        job = self.write(["python", "-u", "main.py", "$(OUT)"], least, most, env=[
            {"name": "OUT", "value": str(self.out)}, {"name": "ALL", "value": str(most)},
        ])  # fmt: skip
        return self.start(str(job), "--prefix", str(self.prefix))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        env = {**os.environ, "TEST_JOB": self.mark, "PYTHONPATH": str(ROOT), "IMAGESTRATA_TOKEN": "secret"}
        with open(self.folder / "log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "service", "run", *arguments],
                cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
            )  # fmt: skip

    def told(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def processes(self) -> list[int]:
        """All that have the mark of this test."""
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and f"TEST_JOB={self.mark}".encode() in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return found

    def until_all_train(self, run: subprocess.Popen[str], most: int) -> list[int]:
        """The process numbers of the agents by rank, once each has taken some steps."""
        files = [self.out / f"{most}-{rank}" for rank in range(most)]
        until(lambda: all(file.exists() for file in files) or run.poll() is not None)
        assert run.poll() is None, self.told()
        return [int(file.read_text().split()[0]) for file in files]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(tmp_path)
    yield made
    for pid in made.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.05)


def test_a_job_goes_on_when_an_agent_is_killed(jobs: Jobs) -> None:
    run = jobs.train(1, 3)
    agents = jobs.until_all_train(run, 3)
    os.kill(agents[0], signal.SIGKILL)  # whose process was the first of all
    assert run.wait(PATIENCE) == 0, jobs.told()
    told = jobs.told()
    assert [(jobs.out / f"2-{rank}").read_text().split()[1:] for rank in (0, 1)] == [["2", "2"]] * 2
    assert "is lost (signal 9, SIGKILL); the job goes on with 2" in told
    assert "the image hub/train:1 is not used" in told
    assert all(re.match(r"\[[012]\] |run: ", line) for line in told.splitlines())
    assert {line[:3] for line in told.splitlines() if "not written" in line} == {"[0]", "[1]", "[2]"}
    assert not (jobs.prefix / "my_dataset" / "new").exists()
    assert jobs.processes() == []


def test_a_job_fails_when_too_few_agents_are_left(jobs: Jobs) -> None:
    run = jobs.train(2, 2)
    os.kill(jobs.until_all_train(run, 2)[1], signal.SIGKILL)
    assert run.wait(PATIENCE) == 1
    assert "Wanted 2 agents at least. Found: 1" in jobs.told()
    assert jobs.processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_interrupted_leaves_nothing(jobs: Jobs, number: signal.Signals) -> None:
    run = jobs.train(1, 1)
    jobs.until_all_train(run, 1)
    assert len(jobs.processes()) >= 5  # the runner, the store, the agent, the script and its own process
    run.send_signal(number)
    assert run.wait(PATIENCE) == 130
    assert "interrupted" in jobs.told()
    assert jobs.processes() == []


def test_agents_do_not_outlive_a_runner_that_is_killed(jobs: Jobs) -> None:
    run = jobs.start(str(jobs.write(["sh", "-c", "echo begun; exec sleep 600"])), "--prefix", str(jobs.prefix))
    until(lambda: "[0] begun" in jobs.told() or run.poll() is not None)
    run.kill()
    run.wait()
    until(lambda: jobs.processes() == [])


def test_a_command_that_fails_is_started_anew_and_fails_the_job(jobs: Jobs) -> None:
    command = ["sh", "-c", 'echo "here $PWD $DATASET ${IMAGESTRATA_TOKEN-none}"; exit 3']
    (jobs.folder / "code").mkdir()
    job = jobs.write(command, workingDir="code")
    run = jobs.start(str(job), "--prefix", str(jobs.prefix), "--max-restarts", "1")
    assert run.wait(PATIENCE) == 1
    told = jobs.told()
    assert told.count(f"[0] here {jobs.folder / 'code'} {jobs.prefix / 'my_dataset'} none\n") == 2
    assert "the job failed: agent 0 gave up with exit code 1" in told
    assert jobs.processes() == []


def test_a_job_ends_with_its_time(jobs: Jobs) -> None:
    run = jobs.start(str(jobs.write(["sleep", "600"])), "--prefix", str(jobs.prefix), "--timeout", "0.5")
    assert run.wait(PATIENCE) == 1
    assert "Wanted a job that takes 0.5 seconds at most" in jobs.told()
    assert jobs.processes() == []


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        (["python", "none.py"], {}, "no none.py in"),
        (["none-such"], {}, "Wanted a command of this machine. Found: 'none-such'"),
        (["python", "main.py"], {"workingDir": "/none"}, "Wanted workingDir, a folder of this machine. Found: /none"),
        ([], {}, "Wanted command, a list of texts, one at least"),
    ],
)
def test_a_job_that_cannot_be_is_told(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], command: list[str], more: dict[str, Any], said: str
) -> None:
    assert run_command.run([str(jobs.write(command, **more))]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["none.yaml"], [], ["--timeout", "0"], ["--url", "ftp://x"]])
def test_arguments_that_cannot_be(jobs: Jobs, arguments: list[str]) -> None:
    job = [] if arguments in ([], ["none.yaml"]) else [str(jobs.write(["python", "main.py"]))]
    with pytest.raises(SystemExit) as ended:
        run_command.run([*job, *arguments])
    assert ended.value.code == 2


class Pulled:
    """Stands for a service: what is pulled from it lies in a folder of its version, with a link to it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Path]] = []

    def __call__(self, url: str, name: str, prefix: Path) -> Path:
        self.asked.append((url, name, prefix))
        folder = prefix / ".versions" / "1"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a", encoding="utf-8")
        (prefix / name).symlink_to(folder)
        return prefix / name


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch) -> Pulled:
    made = Pulled()
    monkeypatch.setattr(job_datasets, "fetch", made)
    return made


def test_what_is_pulled_has_no_permission_to_write(tmp_path: Path, pulled: Pulled) -> None:
    told: list[str] = []
    found = dataset_at_hand("mine", url="http://x", prefix=tmp_path / "p", tell=told.append)
    assert found == tmp_path / "p" / "mine"
    assert pulled.asked == [("http://x", "mine", tmp_path / "p")]
    assert stat.S_IMODE((found / "a.txt").stat().st_mode) & 0o222 == 0
    assert stat.S_IMODE(found.stat().st_mode) == 0o555
    assert "is read-only" in told[-1]


def test_another_version_may_take_the_place_of_what_was_pulled(
    tmp_path: Path, pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dataset_at_hand("mine", url="http://x", prefix=tmp_path, tell=lambda line: None)
    modes: list[int] = []

    def broken(*_: object) -> Path:
        modes.append(stat.S_IMODE(found.stat().st_mode))
        raise JobError("no answer")

    monkeypatch.setattr(job_datasets, "fetch", broken)
    with pytest.raises(JobError, match="no answer"):
        dataset_at_hand("mine", url="http://x", prefix=tmp_path, tell=lambda line: None)
    assert modes == [0o755]
    assert stat.S_IMODE(found.stat().st_mode) == 0o555


@pytest.mark.skipif(importlib.util.find_spec("loader._datasets") is None, reason="the client of services is not here")
def test_datasets_come_from_a_service_version_by_version(tmp_path: Path) -> None:
    with Server(tmp_path / "served") as server:
        server.create("mine")
        for text in (b"one", b"two"):
            server.put("mine", tar_of({"train/a.txt": text}), kind=TAR)
            found = dataset_at_hand("mine", url=server.url, prefix=tmp_path / "p", tell=lambda line: None)
            assert (found / "train" / "a.txt").read_bytes() == text
            assert stat.S_IMODE((found / "train").stat().st_mode) & 0o222 == 0


def test_who_may_not_write_to_the_prefix_has_one_below_the_cache(
    tmp_path: Path, pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(job_datasets, "PREFIX", tmp_path / "file" / "datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    found = dataset_at_hand("mine", url="http://x", prefix=None, tell=told.append)
    assert found == tmp_path / "cache" / "imagestrata" / "datasets" / "mine"
    assert f"datasets are in {found.parent}, not in {tmp_path / 'file' / 'datasets'}" in told[0]
    assert dataset_at_hand("mine", url=None, prefix=None, tell=told.append) == found  # it is there by now
    with pytest.raises(JobError, match="Wanted a folder for datasets that can be written to"):
        dataset_at_hand("mine", url="http://x", prefix=tmp_path / "file", tell=told.append)


def test_a_service_that_does_not_answer_leaves_no_folder(tmp_path: Path) -> None:
    (port,) = ports.free(["127.0.0.1"], 1)
    for prefix in (tmp_path / "a" / "b", tmp_path):
        with pytest.raises(JobError, match=r"no answer|refused"):
            dataset_at_hand("mine", url=f"http://127.0.0.1:{port}", prefix=prefix, tell=lambda line: None)
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=re.escape(f"Found: none at {tmp_path / 'mine'} (name the service")):
        dataset_at_hand("mine", url=None, prefix=tmp_path, tell=lambda line: None)


def test_processes_that_wait_for_a_lost_one_are_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", "RANK=0 sleep 600; echo anew"]
    agent = Agent(0, command, cwd=tmp_path, env=dict(os.environ), logs=tmp_path)
    until(lambda: len(agent.workers()) == 1)
    workers = agent.workers()
    assert not agent.kill_workers({1})
    assert agent.kill_workers(workers)
    assert agent.wait(PATIENCE)
    assert not agent.kill_workers(workers)
    assert agent.outcome == "done"
    agent.clear()


def test_marked_processes_end_with_their_children() -> None:
    mark = uuid.uuid4().hex
    with adopting():
        command = ["sh", "-c", "setsid sleep 600 & setsid sleep 600 & echo; wait"]
        env = {**os.environ, "IMAGESTRATA_AGENT": mark}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            kill_marked(mark)
    wanted = f"IMAGESTRATA_AGENT={mark}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            assert wanted not in Path("/proc", name, "environ").read_bytes()
