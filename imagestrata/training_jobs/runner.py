"""Run a training job on this machine: the command of its first container, under torchrun."""

import importlib.util
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from imagestrata.training_jobs.agents import Agent, Store, devices, training_processes
from imagestrata.training_jobs.datasets import TOKEN, dataset_at_hand, read_only
from imagestrata.training_jobs.errors import JobError, JobFileError
from imagestrata.training_jobs.job import Container, TrainingJob
from imagestrata.training_jobs.processes import adopting
from imagestrata.training_jobs.steps import Processes, Tell
from imagestrata.training_jobs.torchrun import arguments, expanded, is_python, is_torchrun, script

INTERRUPTED = 130
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 30
# An agent without a heartbeat for this time counts as lost. A busy machine may delay it for some seconds.
_HEARTBEAT = "keep_alive_interval=1,keep_alive_max_attempt=8"
# How long enough agents wait for more.
_LAST_CALL = "last_call_timeout=5"
# A process that waits for a lost one notices immediately with gloo, but only after ten minutes with NCCL.
_STUCK_SECONDS = 20
_OTHERS = ("PET_", "TORCHELASTIC_")
_NOT_PASSED_ON = {TOKEN, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run: the service, the folder of datasets, and limits."""

    url: str | None = None
    prefix: Path | None = None
    timeout: float | None = None
    max_restarts: int = 3


def run_job(job: TrainingJob, path: Path, options: RunOptions, tell: Tell) -> int:
    """Run a job, and return the exit code: 0 done, 1 failed, 130 interrupted. The folder of the job file is the default
    working directory; ``tell`` gets a line for each step. Raises `JobFileError` if the command does not exist here,
    `JobError` if the job cannot be started, OSError, and KeyboardInterrupt during the pull.
    """
    container = job.containers[0]
    cwd = path.resolve().parent / (container.working_dir or "")
    _check([*container.command, *container.args], cwd, container.env, path.name)
    if importlib.util.find_spec("torch") is None:
        raise JobError("Wanted torch, which starts the processes. Found: none (pip install 'imagestrata[train]')")
    _tell_what_is_not_done(job, tell)
    with _signals() as signals:
        dataset = dataset_at_hand(job.dataset, url=options.url, prefix=options.prefix, tell=tell)
        told = variables(container, dataset)
        command = arguments(expanded([*container.command, *container.args], told), sys.executable)
        wrapper = read_only(dataset, tell)
        signals.is_raising = False
        env = _environment() | told
        with Store(sys.executable) as store, TemporaryDirectory(prefix="imagestrata-job-") as logs, adopting(store.pid):
            torchrun = [*wrapper, *_torchrun(job, store.port, logs, options), *command]
            agents = _Agents(job.min_size, tell)
            try:
                shares = _shares(job, env, tell)
                tell(f"starting {_torchruns(job)}; rendezvous at 127.0.0.1:{store.port}")
                for number, share in enumerate(shares):
                    agents.start(Agent(number, torchrun, cwd=cwd, env=env | share, logs=Path(logs)))
                tell("waiting for the rendezvous and the start of the command")
                return agents.watch(store, signals.told, options.timeout)
            finally:
                agents.end(signals.again)


class _Agents:
    """All agents of a job."""

    def __init__(self, least: int, tell: Tell) -> None:
        self._least, self._tell = least, tell
        self._running: list[Agent] = []
        self._all = self._lost = 0
        self._stuck: dict[Agent, set[int]] = {}
        self._stuck_from = 0.0
        self._processes = Processes(lambda: training_processes(self._running), tell)

    def start(self, agent: Agent) -> None:
        self._running.append(agent)
        self._all += 1

    def watch(self, store: Store, told: threading.Event, timeout: float | None) -> int:
        """Watch the agents until the job is done or has failed."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._running:
            for agent in self._running[:]:
                if not self._goes_on(agent):
                    return 1
            self._free_stuck()
            self._processes.look()
            if not store.is_there:
                self._tell("Wanted a running rendezvous store. Found: it has ended")
                return 1
            if told.wait(_LOOK_SECONDS):
                self._tell("interrupted: ending the job")
                return INTERRUPTED
            if until is not None and time.monotonic() > until:
                self._tell(f"Wanted a job of at most {timeout:g} seconds. Found: it is still running")
                return 1
        return 0

    def end(self, again: threading.Event) -> None:
        """End running agents with SIGTERM, then SIGKILL, and wait for them. ``again`` skips the wait."""
        for agent in self._running:
            agent.signal(signal.SIGTERM)
        until = time.monotonic() + _GRACE_SECONDS + 5
        while any(agent.outcome == "running" for agent in self._running):
            if again.wait(_LOOK_SECONDS) or time.monotonic() > until:
                break
        for agent in self._running:
            if agent.outcome == "running":
                agent.signal(signal.SIGKILL)
        for agent in self._running:
            agent.wait(_GRACE_SECONDS)
            agent.clear()

    def _goes_on(self, agent: Agent) -> bool:
        """Whether the job continues, with the agent or without it."""
        outcome = agent.outcome
        if outcome == "running":
            return True
        self._running.remove(agent)
        agent.clear()
        if outcome == "done":
            self._processes.ended(agent.number)
        if outcome == "failed":
            self._tell(f"the job failed: agent {agent.number} gave up with {agent.code}")
            return False
        if outcome == "lost":
            self._lost += 1
            left = self._all - self._lost
            if left < self._least:
                self._tell(
                    f"Wanted at least {self._least} agents. Found: {left}, because agent {agent.number} ended: "
                    f"{agent.code}"
                )
                return False
            self._tell(f"agent {agent.number} is lost ({agent.code}); the job restarts the command with {left} left")
            self._processes.expect_again()
            self._stuck = {one: one.workers() for one in self._running}
            self._stuck_from = time.monotonic() + _STUCK_SECONDS
        return True

    def _free_stuck(self) -> None:
        """Kill processes that started with a lost one and did not notice the loss."""
        if self._stuck and time.monotonic() > self._stuck_from:
            stuck = [agent for agent, workers in self._stuck.items() if agent.kill_workers(workers)]
            if stuck:
                self._tell(
                    f"restarted, because they did not notice the loss: {', '.join(str(one.number) for one in stuck)}"
                )
            self._stuck = {}


@dataclass(slots=True)
class _Signals:
    """Counts Ctrl-C and SIGTERM: the first ends the job, the second ends it immediately."""

    told: threading.Event
    again: threading.Event
    is_raising: bool = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_raising:
            raise KeyboardInterrupt
        (self.again if self.told.is_set() else self.told).set()


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals(threading.Event(), threading.Event())
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _torchrun(job: TrainingJob, port: int, logs: str, options: RunOptions) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "torch.distributed.run"),  # -P: files of the job must not shadow modules of torch
        *("--nnodes", f"{job.min_size}:{job.max_size}", "--nproc-per-node", "1"),
        *("--max-restarts", str(options.max_restarts), "--rdzv-id", job.name, "--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host=false,{_HEARTBEAT},{_LAST_CALL}"),
        *("--local-addr", "127.0.0.1", "--log-dir", logs, "--shutdown-timeout", str(_GRACE_SECONDS)),
    ]


def variables(container: Container, dataset: Path) -> dict[str, str]:
    """The environment variables of a container: the paths of datasets, and those of the job file."""
    told = {"DATASETS": str(dataset.parent.absolute()), "DATASET": str(dataset.absolute())}
    for name, value in container.env.items():
        told[name] = expanded([value], told)[0]
    return told


def _environment() -> dict[str, str]:
    """Our environment without variables of another torchrun, and without the token, which pods do not have either."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(_OTHERS) and name not in _NOT_PASSED_ON
    }
    # torch's agents would keep using the store of a lost agent, so the first process creates a new one each time.
    return env | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def _shares(job: TrainingJob, env: Mapping[str, str], tell: Tell) -> list[dict[str, str]]:
    """The environment of each agent: its share of the cores, and its GPU."""
    threads = {} if "OMP_NUM_THREADS" in env else {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // job.max_size))
    }  # fmt: skip
    found = [] if "CUDA_VISIBLE_DEVICES" in job.containers[0].env else devices(tell)
    if 0 < len(found) < job.max_size:
        tell(f"{job.max_size} processes share {len(found)} GPUs, which NCCL refuses (reduce maxSize, or use gloo)")
    return [
        threads | ({"CUDA_VISIBLE_DEVICES": found[number % len(found)]} if found else {})
        for number in range(job.max_size)
    ]


def _torchruns(job: TrainingJob) -> str:
    if job.max_size == 1:
        return "a torchrun"
    fewer = f" (at least {job.min_size} must keep running)" if job.min_size < job.max_size else ""
    return f"{job.max_size} torchruns{fewer}"


def _check(command: Sequence[str], cwd: Path, env: Mapping[str, str], name: str) -> None:
    """Raise `JobFileError` if a command cannot be started here."""
    if not cwd.is_dir():
        raise JobFileError([f"{name}: Wanted a local folder as workingDir. Found: {cwd}, which is not a folder"])
    file = script(command)
    if file is not None and "$(" not in file and not (cwd / file).is_file():
        raise JobFileError([f"{name}: Wanted the script of command. Found: no {file} in {cwd} (set workingDir?)"])
    if is_python(command) or is_torchrun(command):
        return
    path = env.get("PATH", os.environ.get("PATH"))
    if shutil.which(cwd / command[0] if "/" in command[0] else command[0], path=path) is None:
        raise JobFileError([f"{name}: Wanted a command on this machine. Found: {command[0]!r}, which does not exist"])


def _tell_what_is_not_done(job: TrainingJob, tell: Tell) -> None:
    container = job.containers[0]
    tell(f"the image {container.image} is not used: the command runs here, with this Python")
    if len(job.containers) > 1:
        tell(f"only the first container runs here, {container.name}")
    absent = [one["name"] for one in container.written.get("env", ()) if "valueFrom" in one]
    if absent:
        tell(f"variables with values from the cluster (valueFrom) are not set: {', '.join(absent)}")
