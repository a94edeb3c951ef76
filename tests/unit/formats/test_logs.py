"""Logs of commands: a run id in each line, as text or as JSON."""

import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from formats import logs
from formats.command_line import FAILED, WRONG, Parser, command
from formats.errors import FormatsError

log = logging.getLogger("imagestrata.test")
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.RUN_ID, "nightly-7")
    monkeypatch.delenv(logs.FORM, raising=False)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines of JSON that were written since the last call."""
    monkeypatch.setenv(logs.FORM, "json")
    return lambda: [json.loads(line) for line in capsys.readouterr().err.split("\n") if line]


def test_lines_of_text_begin_with_the_run_id(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.on_stderr("ingest.py", level=logging.INFO):
        log.info("%s of %d files", "three", 4)
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            log.exception("cannot go on")
        logs.tell("cassandra: 127.0.0.1")
    log.info("not written")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "nightly-7 three of 4 files"
    assert told[-3:] == ["nightly-7 ValueError: first", "nightly-7 second", "cassandra: 127.0.0.1"]
    assert [line for line in told[:-1] if not line.startswith("nightly-7 ")] == []


def test_a_line_of_json_has_the_fields_that_are_documented(lines: Lines) -> None:
    before = datetime.now(UTC)
    with logs.on_stderr("ingest.py", level=logging.INFO):
        log.warning("%s of %d files", "/bilder/süß\u2028.jpg", 4)
        logs.tell("a name that is no text: \udce9")  # not by a logger, whose records pytest cannot encode
    told, other = lines()
    assert other["message"] == "a name that is no text: \udce9"
    time = datetime.fromisoformat(told.pop("time"))
    assert before.replace(microsecond=0) <= time <= datetime.now(UTC)
    assert told == {
        "level": "WARNING",
        "logger": "imagestrata.test",
        "message": "/bilder/süß\u2028.jpg of 4 files",
        "run": "nightly-7",
        "command": "ingest.py",
    }


def test_an_exception_is_text_in_its_line_of_json(lines: Lines) -> None:
    with logs.on_stderr("ingest.py"):
        try:
            raise ValueError("first\nsecond: ü")
        except ValueError:
            log.exception("cannot go on\nat all")
    (told,) = lines()
    assert (told["level"], told["message"]) == ("ERROR", "cannot go on\nat all")
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("ValueError: first\nsecond: ü")


def test_warnings_of_python_are_lines_of_json_and_afterwards_as_before(lines: Lines) -> None:
    before = warnings.showwarning
    with logs.on_stderr("train.py"), warnings.catch_warnings():
        warnings.simplefilter("always")
        with logs.on_stderr("inside"):
            pass
        warnings.warn("do not", UserWarning, stacklevel=1)
    (told,) = lines()
    assert (told["level"], told["logger"], told["command"]) == ("WARNING", "py.warnings", "train.py")
    assert "UserWarning: do not" in told["message"]
    assert warnings.showwarning is before


def test_a_command_writes_only_json_to_standard_error(lines: Lines) -> None:
    @command("fetch")
    def fetch(kind: str) -> int:
        log.info("below the level")
        log.warning("slow")
        logs.tell("a note")
        if kind == "option":
            Parser("fetch").parse_args(["--no-such"])
        if kind == "bug":
            raise KeyError("oh")
        raise FormatsError("Wanted a file.\nFound: none.")

    assert fetch("fails") == FAILED
    assert [(one["level"], one["message"]) for one in lines()] == [
        ("WARNING", "slow"),
        ("INFO", "a note"),
        ("ERROR", "fetch: Wanted a file. Found: none."),
    ]
    assert fetch("bug") == FAILED
    told = lines()[-1]
    assert (told["level"], told["message"]) == ("CRITICAL", "fetch: unexpected error")
    assert told["exception"].endswith("KeyError: 'oh'")
    with pytest.raises(SystemExit) as stopped:
        fetch("option")
    assert stopped.value.code == WRONG
    assert lines()[-1]["message"] == "fetch: error: unknown option --no-such. See fetch --help."


def test_a_command_inside_another_writes_each_line_once(lines: Lines) -> None:
    @command("error")
    def inner() -> int:
        log.warning("once")
        return 0

    @command("error")
    def outer() -> int:
        with logs.on_stderr("imagestrata inner"):
            return inner()

    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    assert outer() == 0
    assert [(one["message"], one["command"]) for one in lines()] == [("once", "imagestrata inner")]
    assert (logging.getLogger().handlers, logging.getLogger().level) == (handlers, level)


@pytest.mark.parametrize(("name", "value"), [(logs.FORM, "xml"), (logs.RUN_ID, "a b"), (logs.RUN_ID, "a\nb")])
def test_wrong_settings_end_a_command_before_it_begins(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert command("fetch")(lambda: pytest.fail("has begun"))() == WRONG
    assert f"in {name}. Found: {value!r}" in capsys.readouterr().err


def test_a_process_has_one_run_id_which_its_children_have_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(logs.RUN_ID)
    code = "from formats.logs import run_id; print(run_id())"
    run = [sys.executable, "-c", code]
    alone = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    own = logs.run_id()
    assert len({own + "\n", *alone}) == 3
    assert own == logs.run_id() == os.environ[logs.RUN_ID]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == f"{own}\n"
