"""Every command line: how it is parsed, how the command ends, and what it prints if it fails.

A mistake in the command line is one line with the nearest option and where the help is. `command` decides the exit code
of every command.
"""

import argparse
import contextlib
import difflib
import functools
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TextIO, cast

from formats import logs
from formats.errors import FormatsError
from formats.sizes import parse_size
from schemas.errors import ImagestrataError

P = ParamSpec("P")
FAILED, WRONG, INTERRUPTED = 1, 2, 130  # exit codes of commands, besides 0 for done

# Explains an unknown option, given its name and the command line; None if it has nothing to say.
Explain = Callable[[str, Sequence[str]], str | None]

# argparse's own messages, in all versions since Python 3.8, and ours.
_MESSAGES = (
    (r"argument (.+?): expected one argument", r"Wanted a value for \1. Found: none"),
    (r"argument (.+?): expected at least one argument", r"Wanted at least one value for \1. Found: none"),
    (r"argument (.+?): expected (\d+) arguments", r"Wanted \2 values for \1. Found: another number"),
    (r"argument (.+?): not allowed with argument (.+)", r"Wanted \1 or \2. Found: both"),
    (r"argument (.+?): ignored explicit argument (.+)", r"\1 takes no value. Found: \2"),
    (r"one of the arguments (.+) is required", r"Wanted one of \1. Found: none"),
    (r"unrecognized arguments: (.+)", r"unexpected argument \1"),
    (r"argument (.+?): (.+)", r"\1: \2"),
)
_LEAST_PART = 3  # letters
_LEAST_LIKENESS = 0.8


def command(name: str, *, interrupted: str = "") -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorate the main function of a command: decide its exit code, and print one line, which begins with ``name``, if
    it does not succeed. ``interrupted`` says in that line what holds after Ctrl-C. Output that no one reads any more
    (``| head``) is dropped. An exception that is not expected is a bug and leaves its traceback. Logs are written as
    `formats.logs` says.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def ended(*args: P.args, **options: P.kwargs) -> int:
            work = functools.partial(main, *args, **options)
            with _lenient_output():
                if logs.are_on_stderr():  # the command is a part of another one
                    return _ended(work, name=name, interrupted=interrupted)
                try:
                    with logs.on_stderr(Path(sys.argv[0]).name if name == "error" else name):
                        return _ended(work, name=name, interrupted=interrupted)
                except FormatsError as error:  # in the settings of logs
                    return _end(f"{name}: {error}", WRONG)

        return ended

    return decorate


def _ended(work: Callable[[], int], *, name: str, interrupted: str) -> int:
    """Run a command; returns its exit code."""
    try:
        try:
            return work()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is a failure of this command
    except KeyboardInterrupt:
        return _end(": ".join(filter(None, ("interrupted", interrupted))), INTERRUPTED)
    except (ImagestrataError, OSError, subprocess.SubprocessError) as error:
        return _end(f"{name}: {' '.join(str(error).split()) or type(error).__name__}", FAILED)
    except Exception:
        if not logs.is_json():
            raise
        logging.getLogger(logs.OWN).critical("%s: unexpected error", name, exc_info=True)
        return FAILED


def _end(line: str, code: int) -> int:
    logs.tell(line, level=logging.ERROR)
    return code


class _Output:
    """Standard output or error, which drops what is written once its reader has gone, as in ``| head``. Characters that
    its encoding does not have, such as the raw bytes of a file name, are written as escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        with self._dropping():
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Drop what is buffered if it cannot be written, or Python would fail again when it ends."""
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if not isinstance(error, BrokenPipeError):
                raise


@contextlib.contextmanager
def _lenient_output() -> Iterator[None]:
    """Wrap standard output and error, unless they are closed or wrapped already."""
    with contextlib.ExitStack() as stack:
        for name, redirect in (("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)):
            stream = getattr(sys, name)
            if stream is not None and not isinstance(stream, _Output):
                stack.enter_context(redirect(cast(TextIO, _Output(stream))))
        yield


class Parser(argparse.ArgumentParser):
    """An argument parser that prints its manual and epilog as they are written, and whose errors are one line. Options
    cannot be abbreviated. ``explain`` may explain an unknown option better than by the nearest known one. Exits with 2
    for a wrong command line.
    """

    def __init__(
        self,
        prog: str | None = None,
        *,
        manual: str | None = None,
        epilog: str | None = None,
        explain: Explain = lambda name, argv: None,
    ) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=manual, epilog=epilog, formatter_class=layout, allow_abbrev=False)
        self.register("type", int, whole_number)
        self.register("type", float, number)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # also -1,2 is a value, and no unknown option
        self._explain = explain
        self._given: Sequence[str] = ()

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse a command line; exits with 2 if it is wrong."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_args(self._given, namespace)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the process, with a line that says why."""
        if message:
            logs.tell(message.rstrip("\n"), level=logging.ERROR if status else logging.INFO)
        sys.exit(status)

    def format_help(self) -> str:
        """The manual page. Its first line names what must be given; the options are listed below."""
        self.usage = self.usage or " ".join(["%(prog)s", "[OPTION ...]", *filter(None, map(_synopsis, self._actions))])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line that says what is wrong and where the help is, and exit with 2."""
        given, self._given = self._given, ()
        told = self._unknown_option(given) or self._missing(message) or _translated(message)
        end = "\n" if "\n" in told else " " if told.endswith((".", "?")) else ". "
        self.exit(WRONG, f"{self.prog}: error: {told}{end}See {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            found = f"anted {_either(known)}. Found: {value}.{_guess(str(value), known)}"
            if action.option_strings or action.metavar:
                raise argparse.ArgumentError(action, f"w{found}")
            raise argparse.ArgumentError(None, f"W{found}")  # the name of its field says nothing to users

    def _missing(self, message: str) -> str | None:
        """What must be given and is not; None for another message. An argument with choices is named by them."""
        found = re.fullmatch("the following arguments are required: (.+)", message)
        if found is None:
            return None
        choices = {
            action.dest: _either([str(choice) for choice in action.choices])
            for action in self._actions
            if action.choices and not action.option_strings and not action.metavar
        }
        names = found[1].split(", ")
        is_plain = choices.keys().isdisjoint(names)
        return f"Wanted {(', ' if is_plain else ', and ').join(choices.get(name, name) for name in names)}. Found: none"

    def _unknown_option(self, given: Sequence[str]) -> str | None:
        """What is wrong with the first unknown option; None if all options are known."""
        known = self._option_string_actions
        for word in given:
            name, _, _ = word.partition("=")
            if word == "--":
                return None
            if not re.fullmatch(r"--?[A-Za-z][\w.-]*", name) or name in known or (name[:2] in known and name[1] != "-"):
                continue
            return self._explain(name, given) or f"unknown option {name}.{_guess(name, known)}"
        return None


def whole_number(text: str) -> int:
    """The type of an option that is a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a whole number. Found: {text!r}") from None


def number(text: str) -> float:
    """The type of an option that is a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a number. Found: {text!r}") from None


def size(text: str) -> int:
    """The type of an option that is a number of bytes: see `formats.sizes`."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"w{str(error)[1:]}") from None


def token_file(text: str) -> str:
    """The type of an option that names the file of a token: the token."""
    try:
        token = Path(text).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        found = (isinstance(error, OSError) and error.strerror) or error
        raise argparse.ArgumentTypeError(f"wanted a token in {text}. Found: {found}") from None
    if not token:
        raise argparse.ArgumentTypeError(f"wanted a token in {text}. Found: an empty file")
    return token


def port(text: str, *, least: int = 1) -> int:
    """The type of an option that is the port of a server to connect to."""
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"wanted a port from {least} to 65535. Found: {text!r}")
    return int(text)


own_port = functools.partial(port, least=1024)  # to start a server on, without special rights


def _synopsis(action: argparse.Action) -> str:
    """A required option or an argument in the first line of a help page; nothing for other options."""
    name = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    text = str(action.metavar or name)
    if action.option_strings:
        return f"{action.option_strings[-1]} {text}" if action.required else ""
    return f"[{text}]" if action.nargs in ("?", "*") else text


def _translated(message: str) -> str:
    for pattern, ours in _MESSAGES:
        if re.fullmatch(pattern, message, re.DOTALL):
            return re.sub(pattern, ours, message, count=1, flags=re.DOTALL)
    return message


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _guess(word: str, known: Iterable[str]) -> str:
    """The known word that begins with this one, has it as a part or is much like it; empty if there is none."""
    names = {name: name.lstrip("-") for name in known}
    bare = word.lstrip("-")
    near = [name for name in names if name.startswith(word)]
    near += [name for name in names if len(bare) >= _LEAST_PART and bare in names[name]]
    like = difflib.get_close_matches(bare, names.values(), n=1, cutoff=_LEAST_LIKENESS)
    near += [name for name in names if names[name] in like or sorted(names[name]) == sorted(bare)]  # letters swapped
    return f" Did you mean {near[0]}?" if near else ""
