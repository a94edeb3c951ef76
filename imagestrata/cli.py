"""One command for the operator: the demo, the embedded servers, the dataset service and its client.

A command imports what it uses when it runs: the set-up's and the servers' need the extra `spark` at most.
"""

import importlib
import sys
from collections.abc import Callable, Sequence

from imagestrata import __version__

# Command: its module, how to bring what that needs, and what it does. The mains of `commands` get its name, too.
_COMMANDS = {
    "demo": (
        "demo.journey",
        "make demo",
        "everything once, on real pictures: ingest, split, batches, a report",
    ),
    "up": ("devstack.commands", "spark", "start the embedded Cassandra"),
    "down": ("devstack.commands", "spark", "end it; its data stay"),
    "status": ("devstack.commands", "spark", "say whether it is up"),
    "clean-data": ("devstack.commands", "spark", "end it and remove its data"),
    "s3-up": ("devstack.commands", "s3", "start the embedded S3 server; says how to use it"),
    "s3-down": ("devstack.commands", "s3", "end it; its buckets stay"),
    "s3-status": ("devstack.commands", "s3", "say whether it is up"),
    "s3-clean-data": ("devstack.commands", "s3", "end it and remove its buckets"),
    "s3-build": ("devstack.commands", "s3", "build its program, if it is not there"),
    "chromium": ("devstack.commands", "spark", "find a Chromium for tests of the page, or install Debian's"),
    "doctor": ("devstack.doctor", "spark", "check Java, ports, versions, disk, memory, clock and the servers"),
    "serve": ("service.commands", "service", "serve datasets over REST"),
    "token": ("service.commands", "service", "create, list and revoke tokens that open a service"),
    "list": ("service.commands", "service", "list the datasets of a service"),
    "push": ("service.commands", "service", "publish a folder or a file as a version of a dataset"),
    "pull": ("service.commands", "service", "have a dataset in a folder of this machine"),
    "restore": ("service.commands", "service", "make an older version the newest one again"),
    "run": ("service.commands", "service", "run a training job, or print it for Kubernetes"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 failed, 2 bad arguments, 130 interrupted."""
    command, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if command in ("-h", "--help"):
        _say(sys.stdout.write)
        return 0
    if command == "--version":
        sys.stdout.write(f"imagestrata {__version__}\n")
        return 0
    if command not in _COMMANDS:
        _say(sys.stderr.write)
        sys.stderr.write(f"imagestrata: error: wanted a command. Found: {command!r}\n")
        return 2
    module, extra, _ = _COMMANDS[command]
    try:
        given = [command, *rest] if module.endswith(".commands") else rest
        return int(importlib.import_module(f"imagestrata.{module}").main(given))
    except ModuleNotFoundError as error:
        cure = extra if extra.startswith("make ") else f"pip install 'imagestrata[{extra}]'"
        sys.stderr.write(f"error: wanted {error.name} for 'imagestrata {command}'. Found: none. Install it: {cure}\n")
        return 1


def _say(write: Callable[[str], object]) -> None:
    write("usage: imagestrata COMMAND [OPTION ...]     (imagestrata COMMAND --help says its options)\n\n")
    for name, (_, _, text) in _COMMANDS.items():
        write(f"  {name:<15}{text}\n")
    write(f"  {'--version':<15}the version of this package\n")
