"""The command `imagestrata`: the demo, the embedded servers, the dataset service and its client.

A command is imported when it runs, so that each needs only its own extra.
"""

import difflib
import importlib
import logging
import sys
from collections.abc import Callable, Sequence

from formats import logs
from formats.command_line import command
from imagestrata import __version__
from schemas.errors import ImagestrataError

# By group and command: the module, what brings its libraries, and what it does. The modules `*commands` have several.
_GROUPS = {
    "first steps": {
        "demo": ("demo.command", "make demo", "ingest, split and read real images, and write a report"),
        "doctor": ("devstack.doctor", "spark", "check Java, ports, versions, disk, memory, the clock and the servers"),
    },
    "Spark jobs": {
        "similar": ("registry_commands", "spark", "find the images that look most like one, by vectors"),
        "registry": ("registry_commands", "spark", "show and change what is registered in a keyspace"),
        "lineage": ("registry_commands", "spark", "show where an image, split or model comes from, and what uses it"),
        "migrate": ("registry_commands", "spark", "bring tables of an earlier version into the current form"),
        "job": ("job_files", "spark", "print the path of a job's script, or of Spark's defaults, for spark-submit"),
    },
    "embedded Cassandra": {
        "up": ("devstack.commands", "spark", "start it; jobs and trainings find it"),
        "down": ("devstack.commands", "spark", "stop it and keep its data"),
        "status": ("devstack.commands", "spark", "show whether it is running"),
        "clean-data": ("devstack.commands", "spark", "stop it and delete its data"),
    },
    "embedded S3 server": {
        "s3-up": ("devstack.commands", "s3", "start it and show how to use it"),
        "s3-down": ("devstack.commands", "s3", "stop it and keep its buckets"),
        "s3-status": ("devstack.commands", "s3", "show whether it is running"),
        "s3-clean-data": ("devstack.commands", "s3", "stop it and delete its buckets"),
        "s3-build": ("devstack.commands", "s3", "build its program, once per machine"),
    },
    "trainings": {
        "replay": ("history_commands", "loader", "show which images the batches of a training had"),
        "seen": ("history_commands", "loader", "show at which steps a training has seen an image"),
        "plan": ("planner.command", "loader", "say how fast a training will read, and what to change"),
    },
    "dataset service": {
        "serve": ("service.commands", "service", "serve datasets over REST"),
        "token": ("service.commands", "service", "create, list and revoke access tokens of a service"),
    },
    "client of a dataset service": {
        "list": ("service.commands", "service", "list datasets"),
        "push": ("service.commands", "service", "upload a folder or a file as a new version of a dataset"),
        "pull": ("service.commands", "service", "download a dataset to a folder"),
        "restore": ("service.commands", "service", "make an older version the newest again"),
        "run": ("training_jobs.command", "service", "run a training job, or print it for Kubernetes"),
    },
    "development": {
        "chromium": ("devstack.commands", "spark", "find a Chromium for browser tests, or install Debian's"),
    },
}
COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (by default the process's) names, and return its exit code: 0 done, 1 failed, 2 bad
    arguments, 130 interrupted.
    """
    name, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        _print_help(sys.stdout.write)
        return 0
    if name == "--version":
        sys.stdout.write(f"imagestrata {__version__}\n")
        return 0
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        near = difflib.get_close_matches(name, [*COMMANDS, "--help", "--version"], n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        if kind == "option" and (later := next((word for word in rest if word in COMMANDS), None)):
            guess = f" Options follow the command, as in 'imagestrata {later} {name}'."
        logs.tell(f"imagestrata: error: unknown {kind} {name}.{guess} See imagestrata --help.", level=logging.ERROR)
        return 2
    module, extra, _ = COMMANDS[name]
    try:
        given = [name, *rest] if module.endswith("commands") else rest
        logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # our own messages have what matters of failures
        main_of = importlib.import_module(f"imagestrata.{module}").main
        with logs.on_stderr(f"imagestrata {name}"):
            return int(main_of(given))
    except ModuleNotFoundError as error:
        remedy = extra if extra.startswith("make ") else f"pip install 'imagestrata[{extra}]'"
        missing = f"Wanted {error.name} for 'imagestrata {name}'. Found: none. Install it: {remedy}"
        raise ImagestrataError(missing) from error


def _print_help(write: Callable[[str], object]) -> None:
    write("usage: imagestrata COMMAND [OPTION ...]\n\n")
    write("Run 'imagestrata COMMAND --help' for the options of a command, 'imagestrata --version' for the version.\n")
    for group, commands in _GROUPS.items():
        write(f"\n{group}:\n")
        for name, (_, _, text) in commands.items():
            write(f"  {name:<15}{text}\n")
    write("\nexit codes: 0 done, 1 failed, 2 bad arguments, 130 interrupted\n")
