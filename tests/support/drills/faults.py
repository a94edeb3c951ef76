"""The faults of the drills. Each is struck while something runs, and ends after a while, before or after that.

What a fault starts again is not tied to the thread that starts it, with which it would be killed.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.drills.proxy import Trouble
from tests.support.drills.world import World, end_group
from tests.support.waiting import until

Process = subprocess.Popen[str]
Strike = Callable[[World, random.Random, Process], Callable[[], None] | None]


class NotPossibleError(Exception):
    """This machine or this user cannot have the fault."""


@dataclass(frozen=True)
class Fault:
    """``strike`` begins it, while something runs or before that, and returns what ends it, after ``seconds``."""

    name: str
    strike: Strike
    seconds: float = 0.0
    is_before: bool = False


def _node(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    world.server.kill(numbers.randrange(2))  # the third one has a small disk
    return lambda: void(world.server.start())


def _all_nodes(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    for number in range(3):
        world.server.kill(number)
    return lambda: void(world.server.start())


def _hang(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    pid = world.server.nodes[numbers.randrange(3)].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def _rolling(world: World, numbers: random.Random, process: Process) -> None:
    for node in world.server.nodes:
        node.stop()
        world.server.start()


def _executor(world: World, numbers: random.Random, process: Process) -> None:
    until(lambda: world.spark.executors() or process.poll() is not None, "an executor", seconds=120)
    with suppress(ProcessLookupError, IndexError):
        os.kill(numbers.choice(world.spark.executors()), signal.SIGKILL)


def _worker(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    name = numbers.choice(world.spark.names[1:])
    world.spark.kill(name)
    return lambda: world.spark.start_process(name)


def _driver(world: World, numbers: random.Random, process: Process) -> None:
    end_group(process)


def _s3(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    assert world.s3.pid is not None
    os.kill(world.s3.pid, signal.SIGKILL)
    return lambda: void(world.s3.start())


def _full_node(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    """The disk of the third node is full; it is started again once there is room."""
    folder = world.server.nodes[2].folder
    if not os.path.ismount(folder):
        raise NotPossibleError("this user may not mount a small disk")
    filler = folder / "filler"
    with suppress(OSError), open(filler, "wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass

    def end() -> None:
        filler.unlink()
        world.server.kill(2)
        world.server.start()

    return end


def _full_output(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
    """There is room for a part of the output only: its folder becomes a small disk before anything is written."""
    out = world.folder / "split"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", out], check=False).returncode:
        raise NotPossibleError("this user may not mount a small disk")

    def end() -> None:
        subprocess.run(["umount", "-l", out], check=True)
        shutil.rmtree(out)

    return end


def _corrupted(world: World, numbers: random.Random, process: Process) -> None:
    """A bit flips in each picture that the first node has on its disk."""
    with world.server.session() as cql:
        cql.execute(f"ALTER TABLE {world.keyspace}.data WITH memtable_flush_period_in_ms = 1000")
    folder = Path(world.server.nodes[0].folder, "data", world.keyspace)
    # A part of the rows may be in another file.
    until(lambda: [*folder.glob("data-*/*-Data.db")], "a flushed table", seconds=60)
    world.server.nodes[0].stop()
    for file in folder.glob("data-*/*-Data.db"):
        data = bytearray(file.read_bytes())
        at = data.find(b"\x89PNG")
        while at >= 0:
            data[at + 60] ^= 1
            at = data.find(b"\x89PNG", at + 1)
        file.write_bytes(data)
    world.server.start()


def _connections(trouble: Trouble) -> Strike:
    """Trouble with the connections of an epoch, which then reads from the first node through a proxy."""

    def strike(world: World, numbers: random.Random, process: Process) -> Callable[[], None]:
        world.proxy.begin(trouble)
        return lambda: world.proxy.begin("none")

    return strike


def void(_: object) -> None:
    """Ignore a result."""


NODE = Fault("kill -9 of a node, started again after 5 s", _node, 5)
ALL_NODES = Fault("kill -9 of all nodes, started again after 2 s", _all_nodes, 2)
HANG = Fault("SIGSTOP of a node for 30 s", _hang, 30)
ROLLING = Fault("rolling restart of the nodes", _rolling)
EXECUTOR = Fault("kill -9 of an executor", _executor)
WORKER = Fault("kill -9 of a Spark worker, started again after 5 s", _worker, 5)
DRIVER = Fault("kill -9 of the driver", _driver)
RANK = Fault("kill -9 of a rank", _driver)
S3 = Fault("kill -9 of the S3 server, started again after 5 s", _s3, 5)
FULL_NODE = Fault("full disk of a node for 10 s", _full_node, 10)
FULL_OUTPUT = Fault("full disk of the output", _full_output, is_before=True)
CUT = Fault("all connections are reset for 5 s", _connections("cut"), 5)
DELAYED = Fault("0.6 s more for each answer, for 10 s", _connections("delay"), 10)
HALF_OPEN = Fault("half-open connections for 20 s", _connections("half open"), 20)
CORRUPTED = Fault("a flipped bit in each picture on a node", _corrupted, is_before=True)


def pause(seconds: float, process: Process) -> None:
    """Wait, at most until a program ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
