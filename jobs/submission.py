"""Options of spark-submit that follow the script, where spark-submit does not see them."""

import os
import re
import shlex
import sys
from collections.abc import Sequence

# fmt: off
_WITH_VALUE = {
    "--archives", "--class", "--conf", "--deploy-mode", "--driver-class-path", "--driver-cores",
    "--driver-java-options", "--driver-library-path", "--driver-memory", "--exclude-packages", "--executor-cores",
    "--executor-memory", "--files", "--jars", "--keytab", "--master", "--name", "--num-executors", "--packages",
    "--principal", "--properties-file", "--proxy-user", "--py-files", "--queue", "--repositories",
    "--total-executor-cores", "-c",
}
# fmt: on
_ALONE = {"--supervise", "--verbose"}
_SECRET = re.compile(r"((?:[^\s=]*)(?:secret|password|token|access[.]?key)[^\s=]*=).+", re.IGNORECASE)


def misplaced(name: str, argv: Sequence[str]) -> str | None:
    """The message for an option of spark-submit, with the corrected command; None for any other option."""
    if name not in _WITH_VALUE | _ALONE:
        return None
    moved, kept = _parted(argv)
    words = ["spark-submit", *map(_hidden, moved), _script(), *kept]
    return f"{name} is an option of spark-submit and goes before the script: {shlex.join(words)}"


def _parted(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line that belong to spark-submit, and the others."""
    moved: list[str] = []
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in _WITH_VALUE | _ALONE:
            kept.append(word)
            continue
        moved.append(word)
        if name in _WITH_VALUE and not equals:
            moved.extend(value for value in (next(words, None),) if value is not None)
    return moved, kept


def _hidden(word: str) -> str:
    return _SECRET.sub(r"\1...", word)


def _script() -> str:
    """The path of the job, relative to the current folder if it is below it."""
    path = sys.argv[0]
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return path if near.startswith("..") else near
