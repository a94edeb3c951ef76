"""The parser of train.py and loop_read.py, the options that both have, and the functions that options name."""

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from formats.command_line import Parser, port
from training import TrainingError

# How long a process waits for torchrun to end it, which it does once one process has failed: the one that prints must
# be the first. If that one does not fail, the others fail after this time.
_WAIT_SECONDS = 30.0

DEVICES = ("auto", "cpu", "cuda")


class ScriptParser(Parser):
    """The parser of a script that torchrun may start: of all its processes on a machine, the first prints an error."""

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        """End the process."""
        if status and "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
            time.sleep(_WAIT_SECONDS)
            message = None
        super().exit(status, message)


def add_split(add: Callable[..., Any]) -> None:
    """A split, as both scripts read one."""
    add("--split", "--split-fn", metavar="PLACE", help="a split folder or a split dictionary (.pckl)")


def add_cassandra(add: Callable[..., Any]) -> None:
    """Where Cassandra is, and how it is read."""
    add(
        "--hosts",
        type=_hosts,
        metavar="HOST,...",
        help="contact points of Cassandra (default: the one that `imagestrata up` started, otherwise 127.0.0.1)",
    )
    add("--port", type=port, metavar="N", help="its port (default: that of `imagestrata up`, otherwise 9042)")
    add(
        "--on-changed",
        choices=("raise", "accept"),
        help="fail at an image that was replaced since its split was made, or read the newest bytes "
        "(default: %(default)s)",
    )


def add_batch_size(add: Callable[..., Any]) -> None:
    """Images of a batch, with the names of the scripts that people come from."""
    names = ("-b", "--b", "--bs", "--batch-size")
    whole: dict[str, Any] = {"type": int, "metavar": "N", "dest": "batch_size"}
    add(*names, **whole, help="images of a batch of each process (default: %(default)s)")


def add_device(add: Callable[..., Any], *, usual: str) -> None:
    """The device, and the other name for a GPU; ``usual`` says what the default means."""
    add("--device", choices=DEVICES, help=f"where batches go: the CPU, or a GPU for each process (default: {usual})")
    add("--use-gpu", action="store_const", const="cuda", dest="device", help="the same as --device cuda")


def add_workers(add: Callable[..., Any]) -> None:
    """Threads of DALI."""
    add("-j", "--workers", type=int, metavar="N", help="threads of DALI in each process (default: %(default)s)")


def named(name: str, *, option: str) -> Callable[..., Any]:
    """The function, from a module that Python finds, also in the current folder. Raises `TrainingError` if there is
    none.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise TrainingError(f"Wanted {option} as MODULE:FUNCTION. Found: {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise TrainingError(f"Wanted {option} {name}. Found: {error}") from error
    if not callable(found):
        raise TrainingError(f"Wanted {option} {name} to be a function. Found: {found!r}")
    function: Callable[..., Any] = found
    return function


def one_line(error: Exception) -> str:
    """Another library's error, for the end of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))
