"""The Cassandra that `imagestrata up` started: the note by which jobs and trainings find it.

The note is `node.json` in the folder of its data: `build/cassandra` in a checkout, and for an installed package
`imagestrata/cassandra` in the user's folder of data. A Cassandra that was started with ``--data`` in another folder is
not found. If it requires TLS and passwords, the note names the folder that has them.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from formats.durability import whole_file
from formats.errors import FormatsError
from schemas.parsing import parsed

NEWEST_FORMAT = 1
NAME = "node.json"
ROLES = ("admin", "writer", "reader")
JOBS = "jobs.conf"

Role: TypeAlias = Literal["admin", "writer", "reader"]


def data_folder(root: Path) -> Path:
    """The folder of the servers' data, which need not exist: `build` of a checkout, otherwise one in the user's folder
    of data.
    """
    if (root / "pyproject.toml").is_file():
        return root / "build"
    return Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "imagestrata"


PLACE = data_folder(Path(__file__).resolve().parents[1]) / "cassandra" / NAME


@dataclass(frozen=True, slots=True)
class LocalNode:
    """The address of a Cassandra on this machine, and its processes."""

    hosts: tuple[str, ...]
    port: int
    processes: tuple[tuple[int, str], ...]  # the pid of each node, and when the kernel started it: see `start_time`
    access: str | None = None  # the folder of certificates and passwords, if it requires them

    @classmethod
    def find(cls, place: Path | None = None) -> Self | None:
        """Read the note at the usual place, or at another one; None if there is none. Raises `schemas.SchemaError` if
        it cannot be read.
        """
        place = place or PLACE
        try:
            text = place.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):  # the other: this module is in a zip of --py-files
            return None
        return parsed(text, cls._read, what="note of a local Cassandra", place=str(place), newest=NEWEST_FORMAT)

    @classmethod
    def _read(cls, found: dict[str, Any]) -> Self:
        processes = tuple((int(pid), str(started)) for pid, started in found["processes"])
        access = found.get("access")
        return cls(tuple(map(str, found["hosts"])), int(found["port"]), processes, access and str(access))

    @classmethod
    def of(cls, hosts: Sequence[str], port: int, pids: Sequence[int], access: Path | None = None) -> Self:
        """A Cassandra whose nodes run now."""
        processes = tuple((pid, start_time(pid) or "") for pid in pids)
        return cls(tuple(hosts), port, processes, None if access is None else str(access))

    def write(self, place: Path) -> None:
        """Write the note, whole or not at all."""
        with whole_file(place) as file:
            file.write(f"{json.dumps({'format': NEWEST_FORMAT, **asdict(self)})}\n".encode())

    @classmethod
    def at(cls, hosts: Sequence[str], port: int) -> Self | None:
        """The node of the note if these are its addresses and its port, else None. Raises as `find` does."""
        if not all(host.startswith("127.") for host in hosts):
            return None  # a damaged note does not matter then
        node = cls.find()
        return node if node is not None and port == node.port and {*hosts} <= {*node.hosts} else None

    @property
    def is_running(self) -> bool:
        """Whether one of these very processes still runs."""
        return any(start_time(pid) == started for pid, started in self.processes)

    def variables(self, role: Role) -> dict[str, str]:
        """The variables IMAGESTRATA_* with the access of a role; none if it requires none. Raises `FormatsError`."""
        return {} if self.access is None else variables_in(Path(self.access, f"{role}.env"))

    @property
    def properties(self) -> dict[str, str]:
        """The properties of Spark with the access of jobs; none if it requires none. Raises `FormatsError`."""
        return {} if self.access is None else properties_in(Path(self.access, JOBS))

    def __str__(self) -> str:
        return f"{','.join(self.hosts)} port {self.port}"

    def not_running(self, setting: str) -> str:
        """The message for a node that has ended; ``setting`` is where the user may name another Cassandra."""
        return (
            f"Wanted the Cassandra at {self}, which `imagestrata up` started. Found: it is not running. Start it with "
            f"`imagestrata up`, or set {setting} to use another one."
        )


def variables_in(path: Path) -> dict[str, str]:
    """The variables in a file of lines ``NAME=VALUE`` for a shell. Raises `FormatsError`."""
    pairs = (shlex.split(line)[0].partition("=") for line in _text(path).splitlines())
    return {name: value for name, _, value in pairs}


def properties_in(path: Path) -> dict[str, str]:
    """The properties in a file of lines ``NAME VALUE`` for Spark. Raises `FormatsError`."""
    pairs = (line.partition(" ") for line in _text(path).splitlines())
    return {name: value for name, _, value in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FormatsError(
            f"Wanted the access to the Cassandra of `imagestrata up` in {path}. Found: {error.strerror}. "
            "Run as the user who started it, or name hosts, user and certificates yourself."
        ) from None


def hosts_of_script(hosts: Sequence[str] | None) -> Sequence[str] | None:
    """Contact points for the loader in a script: as given, None for it to find the local node, else 127.0.0.1."""
    return ("127.0.0.1",) if hosts is None and LocalNode.find() is None else hosts


def described(hosts: Sequence[str], port: int) -> str:
    """An address of Cassandra for people, and whether it is the one in the note."""
    is_local = LocalNode.at(hosts, port) is not None
    return f"{','.join(hosts)} port {port}" + " (started by `imagestrata up`)" * is_local


def start_time(pid: int) -> str | None:
    """When the kernel started a process, in clock ticks; None if it does not run. With the pid it names one process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may contain anything; the fields after it are plain. A zombie no longer runs, except if its
    # other threads are still ending: until then it holds its ports.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" and int(fields[17]) <= 1 else fields[19]
