"""Logs of commands: lines on standard error, each with the run id, as text or as JSON.

``IMAGESTRATA_LOG=json`` makes each line an object with ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message``,
``run`` and ``command``, and with ``exception``, a traceback, if there is one.
"""

import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from formats.errors import FormatsError

FORM, RUN_ID = "IMAGESTRATA_LOG", "IMAGESTRATA_RUN_ID"
OWN = "imagestrata"  # the logger of what a command itself says

_GIVEN = re.compile(r"[!-~]{1,128}")  # fits on one line, between spaces


def run_id() -> str:
    """The id of this process: that in ``IMAGESTRATA_RUN_ID``, else a new one, which is put there, so that the processes
    that it starts have it too. Raises `FormatsError`.
    """
    given = os.environ.get(RUN_ID)
    if not given:
        os.environ[RUN_ID] = given = secrets.token_hex(6)
    if not _GIVEN.fullmatch(given):
        raise FormatsError(
            f"Wanted 1 to 128 printable ASCII characters without spaces in {RUN_ID}. Found: {given[:200]!r}"
        )
    return given


def is_json() -> bool:
    """Whether lines of logs are JSON. Raises `FormatsError`."""
    form = os.environ.get(FORM) or "text"
    if form not in ("text", "json"):
        raise FormatsError(f"Wanted text or json in {FORM}. Found: {form[:200]!r}")
    return form == "json"


@contextmanager
def on_stderr(command: str, *, level: int = logging.WARNING, text: str = "%(message)s") -> Iterator[None]:
    """Write what a block logs, from ``level`` on, to standard error, and restore the state before. A block inside it
    takes its place. ``command`` is the command's name, for JSON; ``text`` is the format of lines of text, which get the
    run id in front. Raises `FormatsError`.
    """
    root, outer = logging.getLogger(), _handler()
    # Not one for the process: another run in it may have another standard error.
    handler, before = _Handler(command, text), root.level
    if outer is not None:
        root.removeHandler(outer)
    root.addHandler(handler)
    root.setLevel(level)
    captures = handler.is_json and outer is None
    if captures:
        logging.captureWarnings(True)
    try:
        yield
    finally:
        if captures:
            logging.captureWarnings(False)
        root.setLevel(before)
        root.removeHandler(handler)
        if outer is not None:
            root.addHandler(outer)


def are_on_stderr() -> bool:
    """Whether this is inside `on_stderr`."""
    return _handler() is not None


def tell(line: str, *, level: int = logging.INFO) -> None:
    """Tell the user of a command something, whatever the level of logs: a plain line, or a line of JSON."""
    handler = _handler()
    if handler is not None and handler.is_json:
        handler.handle(logging.LogRecord(OWN, level, "", 0, line, None, None))
    else:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _handler() -> "_Handler | None":
    return next((one for one in logging.getLogger().handlers if isinstance(one, _Handler)), None)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # of standard error, as it is now
    def __init__(self, command: str, text: str) -> None:
        super().__init__(sys.stderr)
        self.is_json = is_json()
        self.setFormatter(_Json(command, run_id()) if self.is_json else _Text(text, run_id()))
        self.addFilter(lambda record: record.name != "root")  # where py4j logs the same traceback again


class _Text(logging.Formatter):
    def __init__(self, text: str, run: str) -> None:
        super().__init__(text)
        self._run = run

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(f"{self._run} {line}" for line in super().format(record).split("\n"))


class _Json(logging.Formatter):
    def __init__(self, command: str, run: str) -> None:
        super().__init__()
        self._of_all = {"run": run, "command": command}

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._of_all,
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)  # in ASCII: any encoding of standard error has it, and no character ends a line
