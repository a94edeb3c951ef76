"""Training jobs with real torchrun processes and gloo on the CPU, some of which are killed."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from imagestrata.devstack.servers import ports
from imagestrata.training_jobs.job import read_job
from imagestrata.training_jobs.manifests import RenderOptions, documents
from imagestrata.training_jobs.torchrun import expanded
from tests.support.pictures import picture
from tests.support.training_jobs import write_job
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0

# With all processes it runs forever; with fewer, it ends after a few steps.
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
    """Job files and their runs. Processes are found by a mark and ended with the test."""

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
        return write_job(self.folder, command, least, most, **container)

    def train(self, least: int, most: int) -> subprocess.Popen[str]:
        """Run the script in as many processes as allowed."""
        job = self.write(["python", "-u", "main.py", "$(OUT)"], least, most, env=[
            {"name": "OUT", "value": str(self.out)}, {"name": "ALL", "value": str(most)},
        ])  # fmt: skip
        return self.start(str(job), "--prefix", str(self.prefix))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        env = {**os.environ, "TEST_JOB": self.mark, "PYTHONPATH": str(ROOT), "IMAGESTRATA_TOKEN": "secret"}
        with open(self.folder / "log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "imagestrata", "run", *arguments],
                cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
            )  # fmt: skip

    def told(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def processes(self) -> list[int]:
        """All processes that have the mark of this test."""
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and f"TEST_JOB={self.mark}".encode() in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return found

    def until_all_train(self, run: subprocess.Popen[str], most: int) -> list[int]:
        """The pids of the agents by rank, after each has run some steps."""
        files = [self.out / f"{most}-{rank}" for rank in range(most)]
        until(lambda: all(file.exists() for file in files) or run.poll() is not None, "steps", seconds=PATIENCE)
        assert run.poll() is None, self.told()
        return [int(file.read_text().split()[0]) for file in files]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(tmp_path)
    yield made
    for pid in made.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_job_continues_when_an_agent_is_killed(jobs: Jobs) -> None:
    run = jobs.train(1, 3)
    agents = jobs.until_all_train(run, 3)
    os.kill(agents[0], signal.SIGKILL)  # its process was the first of all
    assert run.wait(PATIENCE) == 0, jobs.told()
    told = jobs.told()
    assert [(jobs.out / f"2-{rank}").read_text().split()[1:] for rank in (0, 1)] == [["2", "2"]] * 2
    assert "is lost (signal 9, SIGKILL); the job restarts the command with 2 left" in told
    assert "the image hub/train:1 is not used" in told
    steps = (
        "starting 3 torchruns (at least 1 must keep running)",
        "all 3 processes have started after",
        "started again after",
    )
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert all(re.match(r"\[[012]\] |run: ", line) for line in told.splitlines())
    assert {line[:3] for line in told.splitlines() if "not written" in line} == {"[0]", "[1]", "[2]"}
    assert not (jobs.prefix / "my_dataset" / "new").exists()
    assert jobs.processes() == []


def test_a_job_that_is_interrupted_leaves_nothing(jobs: Jobs) -> None:
    command = ["sh", "-c", "setsid sleep 600 & echo begun; exec sleep 600"]
    run = jobs.start(str(jobs.write(command)), "--prefix", str(jobs.prefix))
    until(lambda: "[0] begun" in jobs.told() or run.poll() is not None, "the command", seconds=PATIENCE)
    assert len(jobs.processes()) >= 5  # the runner, the store, the agent, the command and its own process
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE) == 130
    assert "interrupted" in jobs.told()
    assert jobs.processes() == []


def test_agents_do_not_outlive_a_runner_that_is_killed(jobs: Jobs) -> None:
    run = jobs.start(str(jobs.write(["sh", "-c", "echo begun; exec sleep 600"])), "--prefix", str(jobs.prefix))
    until(lambda: "[0] begun" in jobs.told() or run.poll() is not None, "the command", seconds=PATIENCE)
    run.kill()
    run.wait()
    until(lambda: jobs.processes() == [], "their end", seconds=PATIENCE)


def test_a_failing_command_is_restarted_and_then_fails_the_job(jobs: Jobs) -> None:
    command = ["sh", "-c", 'echo "here $PWD $DATASET ${IMAGESTRATA_TOKEN-none}"; exit 3']
    (jobs.folder / "code").mkdir()
    job = jobs.write(command, workingDir="code")
    run = jobs.start(str(job), "--prefix", str(jobs.prefix), "--max-restarts", "1")
    assert run.wait(PATIENCE) == 1
    told = jobs.told()
    assert told.count(f"[0] here {jobs.folder / 'code'} {jobs.prefix / 'my_dataset'} none\n") == 2
    assert "the job failed: agent 0 gave up with exit code 1" in told
    assert jobs.processes() == []


def test_the_command_of_a_rendered_train_job_trains_in_two_pods(jobs: Jobs) -> None:
    """Run with the variables that Trainer gives its pods, expanded as Kubernetes does."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    # In one piece: two processes share the output.
    code = f"import os; os.write(1, (' '.join(os.environ[name] for name in {names}) + '\\n').encode())"
    (jobs.folder / "world.py").write_text(code)
    path = jobs.write(["python", "world.py"], 1, 2, resources={"limits": {"nvidia.com/gpu": 2}})
    runtime, job = documents(read_job(path), RenderOptions(volume_claim="shared"))
    (step,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    command = step["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[0] == "python"
    trainer = job["spec"]["trainer"]
    (port,) = ports.free(["127.0.0.1"], 1)
    pods = []
    for index in range(trainer["numNodes"]):
        given = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
            "TEST_JOB": jobs.mark,
        }
        words = [sys.executable, *expanded(command[1:], given)]
        pods.append(
            subprocess.Popen(words, cwd=jobs.folder, env={**os.environ, **given}, stdout=-1, stderr=-1, text=True)
        )
    answers = [pod.communicate(timeout=PATIENCE) for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], answers
    assert sorted("".join(out for out, _ in answers).splitlines()) == [f"{rank} 4 2" for rank in range(4)]


def test_a_job_ends_at_its_timeout(jobs: Jobs) -> None:
    run = jobs.start(str(jobs.write(["sleep", "600"])), "--prefix", str(jobs.prefix), "--timeout", "0.5")
    assert run.wait(PATIENCE) == 1
    assert "Wanted a job of at most 0.5 seconds" in jobs.told()
    assert jobs.processes() == []
