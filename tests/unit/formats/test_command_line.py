"""A wrong command line gives one line, the nearest option, and exit code 2. Commands end with 0, 1, 2 or 130."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from etl.errors import UnreachableError
from formats.command_line import Parser, command, own_port, port, size, token_file
from formats.errors import StorageError
from imagestrata.devstack import JavaError
from imagestrata.hub import HubError
from imagestrata.service.errors import NotThereError
from loader import SplitError
from schemas import SchemaError
from training import TrainingError

ROOT = Path(__file__).resolve().parents[3]


def parser() -> Parser:
    made = Parser("tool", manual="What it does:\n  as written")
    made.add_argument("place", nargs="?")
    made.add_argument("--img-format", choices=("JPEG", "PNG"))
    made.add_argument("-n", "--count", type=int)
    made.add_argument("--share", type=float)
    made.add_argument("--maxsize", type=size)
    made.add_argument("--port", type=port)
    made.add_argument("--own-port", type=own_port)
    made.add_argument("--quick", action="store_true")
    return made


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--image-format", "JPEG"], "unknown option --image-format. Did you mean --img-format?"),
        (["--image-format=JPEG"], "unknown option --image-format. Did you mean --img-format?"),
        (["x", "y", "--cuont", "1"], "unknown option --cuont. Did you mean --count?"),
        (["--count", "x", "--cuont", "1"], "unknown option --cuont. Did you mean --count?"),
        (["--something-else"], "unknown option --something-else."),
        (["-x"], "unknown option -x."),
        (["--format", "PNG"], "unknown option --format. Did you mean --img-format?"),  # a part of it
        (["--max"], "unknown option --max. Did you mean --maxsize?"),
        (["--countries"], "unknown option --countries."),  # not much like --count
        (["--count", "-1,2"], "-n/--count: wanted a whole number. Found: '-1,2'."),
        (["--img", "PNG"], "unknown option --img. Did you mean --img-format?"),  # no abbreviations
        (["--img-format", "JPG"], "--img-format: wanted JPEG or PNG. Found: JPG. Did you mean JPEG?"),
        (["--img-format", "bmp"], "--img-format: wanted JPEG or PNG. Found: bmp."),
        (["--count"], "Wanted a value for -n/--count. Found: none."),
        (["--count", "many"], "-n/--count: wanted a whole number. Found: 'many'."),
        (["--share", "many"], "--share: wanted a number. Found: 'many'."),
        (["--maxsize", "1 lot"], "--maxsize: wanted a size in bytes or with a unit, such as 500M, 1GiB or 3e8. "
         "Found: '1 lot'."),
        (["--port", "abc"], "--port: wanted a port from 1 to 65535. Found: 'abc'."),
        (["--own-port", "80"], "--own-port: wanted a port from 1024 to 65535. Found: '80'."),
        (["--quick=1"], "--quick takes no value. Found: '1'."),
        (["a", "b"], "unexpected argument b."),
    ],
)  # fmt: skip
def test_a_wrong_command_line_says_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(argv)
    assert stopped.value.code == 2
    told = capsys.readouterr()
    assert told.err == f"tool: error: {message} See tool --help.\n"
    assert told.out == ""


def test_values_that_look_like_options_after_two_dashes_are_arguments() -> None:
    assert parser().parse_args(["--", "--img"]).place == "--img"


def test_short_options_may_touch_their_values() -> None:
    assert parser().parse_args(["-n3"]).count == 3


def test_a_required_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    made = parser()
    made.add_argument("-o", "--out", required=True)
    with pytest.raises(SystemExit):
        made.parse_args([])
    assert capsys.readouterr().err == "tool: error: Wanted -o/--out. Found: none. See tool --help.\n"
    with pytest.raises(SystemExit):
        made.parse_args(["--otu", "x"])
    assert "unknown option --otu. Did you mean --out?" in capsys.readouterr().err


def test_an_argument_with_choices_is_named_by_them(capsys: pytest.CaptureFixture[str]) -> None:
    made = Parser("tool")
    made.add_argument("do", choices=("create", "list", "revoke"))
    made.add_argument("--root", required=True)
    for argv, message in (
        ([], "Wanted create, list or revoke, and --root. Found: none."),
        (["list"], "Wanted --root. Found: none."),
        (["lst", "--root", "x"], "Wanted create, list or revoke. Found: lst. Did you mean list?"),
    ):
        with pytest.raises(SystemExit, match="2"):
            made.parse_args(argv)
        assert capsys.readouterr().err == f"tool: error: {message} See tool --help.\n"


def test_options_that_exclude_each_other_are_both_named(capsys: pytest.CaptureFixture[str]) -> None:
    made = Parser("tool")
    group = made.add_mutually_exclusive_group()
    group.add_argument("--version", type=int)
    group.add_argument("--keep", action="store_true")
    with pytest.raises(SystemExit):
        made.parse_args(["--version", "1", "--keep"])
    assert capsys.readouterr().err == "tool: error: Wanted --keep or --version. Found: both. See tool --help.\n"


def test_help_keeps_the_layout_of_the_manual_and_begins_with_what_must_be_given() -> None:
    made = parser()
    made.add_argument("-o", "--out", metavar="PLACE", required=True)
    made.add_argument("do", choices=("create", "list"))
    page = made.format_help()
    assert page.startswith("usage: tool [OPTION ...] [PLACE] --out PLACE {create,list}\n\nWhat it does:\n  as written")
    assert "  --maxsize MAXSIZE" in page


def test_an_error_of_the_caller_s_own_is_told_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    made = parser()
    made.parse_args(["--quick"])
    with pytest.raises(SystemExit, match="2"):
        made.error("Wanted a place. Found: none")
    assert capsys.readouterr().err == "tool: error: Wanted a place. Found: none. See tool --help.\n"


def test_a_token_comes_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, file = parser(), tmp_path / "token"
    made.add_argument("--token-file", type=token_file)
    for content, found in ((None, "No such file or directory"), (b" \n", "an empty file"), (b"\xff", "'utf-8' codec")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SystemExit, match="2"):
            made.parse_args(["--token-file", str(file)])
        assert f"--token-file: wanted a token in {file}. Found: {found}" in capsys.readouterr().err
    file.write_text("secret\n")
    assert made.parse_args(["--token-file", str(file)]).token_file == "secret"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        *((kind("Wanted a.\n  Found: b"), 1, "tool: Wanted a. Found: b\n")
          for kind in (HubError, JavaError, NotThereError, SchemaError, SplitError, StorageError, TrainingError,
                       UnreachableError)),
        (PermissionError(13, "Permission denied", "f"), 1, "tool: [Errno 13] Permission denied: 'f'\n"),
        (subprocess.TimeoutExpired("java", 9), 1, "tool: Command 'java' timed out after 9 seconds\n"),
        (KeyboardInterrupt(), 130, "interrupted: nothing was changed\n"),
        (None, 0, ""),
    ],
)  # fmt: skip
def test_a_command_ends_with_a_code_and_one_line(
    error: BaseException | None, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @command("tool", interrupted="nothing was changed")
    def main(argv: Sequence[str] | None = None) -> int:
        if error is not None:
            raise error
        return 0

    assert main([]) == code
    assert capsys.readouterr() == ("", line)


def test_a_bug_in_a_command_keeps_its_traceback() -> None:
    @command("tool")
    def main() -> int:
        return {}["missing"]

    with pytest.raises(KeyError):
        main()


COMMAND = """
import os, sys
from formats.command_line import command
@command("tool")
def main():
    for number in range(50_000):
        print(f"line {number} of {os.fsdecode(bytes([255]))}", file=getattr(sys, sys.argv[1]))
    open(sys.argv[2], "w").close()
    return 0
sys.exit(main())
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_whose_reader_has_gone_does_its_work_in_silence(stream: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMAND, stream, str(tmp_path / "done")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        read, other = (process.stdout, process.stderr) if stream == "stdout" else (process.stderr, process.stdout)
        assert read.readline() == b"line 0 of \\udcff\n"  # no encoding has the raw byte of a file name
        read.close()
        assert other.read() == b""
    assert process.returncode == 0
    assert (tmp_path / "done").exists()


def test_a_command_whose_output_finds_the_disk_full_fails_with_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMAND, "stdout", str(tmp_path / "done")]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"tool: [Errno 28] No space left on device\n")


def test_ctrl_c_ends_a_command_with_130_and_without_a_traceback() -> None:
    code = """
import sys, time
from formats.command_line import command
@command("tool")
def main():
    print("ready", flush=True)
    time.sleep(60)
    return 0
sys.exit(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # it may be ignored here
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"interrupted\n"
    assert process.returncode == 130
