"""Turn commands of containers into arguments of torchrun."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
_SIZES = ("--nnodes", "--standalone")
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z0-9_.-]+)\))")


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether a command is torchrun."""
    return PurePath(command[0]).name == "torchrun" or (is_python(command) and _module(command) in _TORCHRUN)


def own_size(command: Sequence[str]) -> str | None:
    """The size option of a torchrun command, which conflicts with the size of the job; None without one."""
    if not command or not is_torchrun(command):
        return None
    for text in arguments(command):
        if text == "-m" or text.endswith(".py"):
            break  # the rest is for the script
        option = text.partition("=")[0].replace("_", "-")
        if option in _SIZES:
            return text
    return None


def is_python(command: Sequence[str]) -> bool:
    """Whether a command is a Python interpreter."""
    return _PYTHON.fullmatch(PurePath(command[0]).name) is not None


def starter(command: Sequence[str]) -> list[str]:
    """The words that start torchrun, without options: from a torchrun command, or for the Python of a command."""
    if is_torchrun(command):
        return [command[0]] if not is_python(command) else [*command[: command.index("-m") + 2]]
    return [command[0], "-m", "torch.distributed.run"] if is_python(command) else ["torchrun"]


def arguments(command: Sequence[str], python: str | None = None) -> list[str]:
    """Return the arguments after torchrun's own options. ``python`` replaces the interpreter of the command."""
    if is_torchrun(command):
        return [*command[1:]] if not is_python(command) else [*command[command.index("-m") + 2 :]]
    if not is_python(command):
        return ["--no-python", *command]
    # torchrun starts scripts and modules with python -u itself.
    rest = [*command[1:]]
    while rest and rest[0] == "-u":
        del rest[0]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest
    if rest and not rest[0].startswith("-"):
        return rest
    return ["--no-python", python or command[0], *command[1:]]


def script(command: Sequence[str]) -> str | None:
    """The script of a Python command; None for modules and other commands."""
    if is_torchrun(command) or not is_python(command):
        return None
    found = arguments(command)[0]
    return None if found.startswith("-") else found


def expanded(texts: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Expand ``$(NAME)`` as Kubernetes does: unknown names stay, and ``$$`` becomes ``$``."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else env.get(found[2], found[0])

    return [_REFERENCE.sub(value, text) for text in texts]


def _module(command: Sequence[str]) -> str | None:
    rest = [text for text in command[1:] if text != "-u"]
    return rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else None
