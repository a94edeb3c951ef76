"""A Spark cluster on 127.0.0.1: a standalone master and some workers, each a separate process.

`Spark(folder, workers=2)` describes it. Submit jobs with its properties file, which has the lines of the environment's
spark-defaults.conf, the address of the master, the code for executors, and a secret without which the cluster accepts
no program: `spark-submit --properties-file FOLDER/submit.conf jobs/ingest.py`.

    FOLDER/settings.json  deps.zip
           submit.conf  secret.conf (readable only by their owner)
           master/pid  master/log  worker1/pid  worker1/log  worker1/work (executors)
"""

import json
import os
import secrets
import shutil
import signal
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import urllib3

from formats.durability import whole_file
from imagestrata.devstack import NodeError, PortError, java, packaging, sparkconf
from imagestrata.devstack.servers import ports, processes
from imagestrata.devstack.steps import locked

HOST = "127.0.0.1"
MAX_WORKERS = 4
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
SUBMIT = "submit.conf"

_SECRET = "secret.conf"
_CLASSES = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Settings:
    """The settings of a folder; in its `settings.json`."""

    workers: int
    port: int
    page_port: int  # of the master's web page


class Spark:
    """A cluster in a folder. Each worker offers ``cores`` processors and ``memory_mb`` of memory to executors; by
    default the workers share the machine's processors. Raises `NodeError` for values out of range.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int | None = None, memory_mb: int = 2048) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise NodeError(f"wanted 1 to {MAX_WORKERS} Spark workers. Found: {workers}.")
        self.folder = Path(folder).resolve()
        self._workers = workers
        self._cores = cores or max(1, len(os.sched_getaffinity(0)) // workers)
        self._memory_mb = memory_mb
        self._settings = _read(self.folder)

    @classmethod
    def existing(cls, folder: Path) -> Self | None:
        """The cluster that was started in a folder, or None. Raises `NodeError` if its settings cannot be read."""
        settings = _read(folder)
        return None if settings is None else cls(folder, workers=settings.workers)

    @property
    def master(self) -> str:
        """The address of the master. Raises `NodeError` before the first start."""
        return f"spark://{HOST}:{self._known().port}"

    @property
    def page(self) -> str:
        """The address of the master's web page."""
        return f"http://{HOST}:{self._known().page_port}"

    @property
    def submit_conf(self) -> Path:
        """The properties file for spark-submit."""
        return self.folder / SUBMIT

    @property
    def names(self) -> list[str]:
        """The names of the processes: ``master``, ``worker1``, ..."""
        return ["master", *(f"worker{number + 1}" for number in range(self._workers))]

    def pid(self, name: str) -> int | None:
        """The pid of a process, or None if it does not run."""
        return processes.recall(self.folder / name / "pid")

    def executors(self) -> list[int]:
        """The pids of the executors that run."""
        found = []
        for name in self.names[1:]:
            if (pid := self.pid(name)) is not None:
                found += [child.pid for child in psutil.Process(pid).children() if _is_executor(child)]
        return found

    def is_up(self) -> bool:
        """Whether all processes run, and the master knows all workers."""
        return self._settings is not None and None not in map(self.pid, self.names) and self._alive() >= self._workers

    def start(self, *, settings: Mapping[str, str], tied: bool = False) -> bool:
        """Start what does not run, and wait until the master knows all workers; False if all were running. ``settings``
        are further properties for jobs. ``tied`` processes are killed when the thread that starts them ends. Raises
        `JavaError`, `PortError` and `NodeError`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / "lock", timeout_s=2 * START_TIMEOUT_S, what=f"Spark in {self.folder}"):
            self._settings = _read(self.folder)
            if self._settings is not None and self._settings.workers != self._workers:
                raise NodeError(
                    f"wanted {self._workers} workers. Found: a cluster of {self._settings.workers} in {self.folder}. "
                    "Stop it with `imagestrata down`, or ask for as many."
                )
            is_fresh = not self.is_up()
            if is_fresh:
                ports.start(lambda: self._launch(tied), undo=self.stop, change_ports=self._forget)
            self._write_conf(settings)
            return is_fresh

    def start_process(self, name: str, *, tied: bool = False) -> None:
        """Start the master or a worker again, as after a kill, and wait until it takes part."""
        known = self._known()
        if name == "master":
            command = ["Master", "--host", HOST, "--port", str(known.port), "--webui-port", str(known.page_port)]
        else:
            offer = ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m"]
            work = ["--work-dir", str(self.folder / name / "work"), "--webui-port", "0", "--host", HOST]
            command = ["Worker", *offer, *work, self.master]
        self._run(name, command, tied=tied)

    def kill(self, name: str) -> bool:
        """Kill the master or a worker with SIGKILL; its executors end with it. False if it did not run."""
        return processes.end(self.folder / name / "pid", timeout_s=STOP_TIMEOUT_S, by=signal.SIGKILL)

    def stop(self) -> bool:
        """Stop all processes and wait until they end; False if none ran."""
        ran = [processes.end(self.folder / name / "pid", timeout_s=STOP_TIMEOUT_S) for name in reversed(self.names)]
        return any(ran)

    def clean(self) -> None:
        """Stop the processes and delete the folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._settings = None

    def _known(self) -> Settings:
        if self._settings is None:
            raise NodeError(f"wanted the address of the Spark cluster in {self.folder}. Found: it was never started.")
        return self._settings

    def _forget(self) -> None:
        (self.folder / "settings.json").unlink(missing_ok=True)
        self._settings = None

    def _launch(self, tied: bool) -> None:
        """Start the processes that do not run."""
        if self._settings is None:
            port, page_port = ports.free([HOST], 2)
            self._settings = Settings(self._workers, port, page_port)
            with whole_file(self.folder / "settings.json") as file:
                file.write(json.dumps(self._settings.__dict__).encode())
        if not (self.folder / _SECRET).is_file():
            secret = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_urlsafe(24)}\n"
            with whole_file(self.folder / _SECRET, private=True) as file:
                file.write(secret.encode())
        for name in self.names:
            if self.pid(name) is None:
                self.start_process(name, tied=tied)

    def _run(self, name: str, command: list[str], *, tied: bool) -> None:
        folder, wanted = self.folder / name, self._alive() + 1
        folder.mkdir(exist_ok=True)
        packages = Path(sysconfig.get_path("purelib"))
        home = packages / "pyspark"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        environment |= {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(sparkconf.java_for_spark(java.find(packages).home, site_packages=packages)),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
        }
        secret = ["--properties-file", str(self.folder / _SECRET)]
        class_name, *options = command
        line = [str(home / "bin" / "spark-class"), f"{_CLASSES}.{class_name.lower()}.{class_name}", *secret, *options]
        log = folder / "log"
        process = processes.launch(line, folder / "pid", log=log, tied=tied, environment=environment)

        def is_ready() -> bool:
            if class_name == "Worker":
                return self._alive() >= wanted
            pid = self.pid(name)
            return pid is not None and all(
                ports.holds(pid, port, HOST) for port in (self._known().port, self._known().page_port)
            )

        processes.await_ready(
            process, is_ready, what=f"a Spark {class_name.lower()}", folder=folder, address=f"of {self.master}",
            log=log, complaint=lambda: _complaint(log), timeout_s=START_TIMEOUT_S,
        )  # fmt: skip

    def _alive(self) -> int:
        """How many workers the master knows; 0 if it does not answer."""
        if self._settings is None:
            return 0
        try:
            found = urllib3.request("GET", f"{self.page}/json/", timeout=5, retries=False).json()
            return sum(worker["state"] == "ALIVE" for worker in found["workers"])
        except (urllib3.exceptions.HTTPError, ValueError, KeyError):
            return 0

    def _write_conf(self, settings: Mapping[str, str]) -> None:
        """Write the properties for jobs, and the code for executors."""
        packaging.write_archive(self.folder / "deps.zip")
        defaults = sparkconf.conf_folder(Path(sysconfig.get_path("purelib"))) / "spark-defaults.conf"
        ours = {"spark.master": self.master, "spark.submit.pyFiles": str(self.folder / "deps.zip"), **settings}
        kept = [line for line in defaults.read_text(encoding="utf-8").splitlines() if line.split(" ")[0] not in ours]
        lines = [*kept, *(f"{name} {value}" for name, value in ours.items())]
        with whole_file(self.submit_conf, private=True) as file:
            file.write("\n".join([*lines, (self.folder / _SECRET).read_text(encoding="ascii")]).encode())


def _read(folder: Path) -> Settings | None:
    path = folder / "settings.json"
    if not path.is_file():
        return None
    try:
        return Settings(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise NodeError(f"wanted the settings of Spark in {path}. Found: {error}. Delete {folder}.") from error


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline()
    except psutil.Error:
        return False


def _complaint(log: Path) -> str:
    """The first error in a log, for messages. Raises `PortError` if it is a port in use."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.strip() for line in lines if "ERROR" in line or "Exception" in line]
    if errors and "in use" in errors[0]:
        raise PortError(f"wanted a free port for Spark. Found: {errors[0]}")
    return errors[0] if errors else "no error in its log"
