"""The `imagestrata` command: its list of commands, and messages for missing packages."""

import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import imagestrata
from formats.origin import code_version
from imagestrata import cli, job_files
from imagestrata.demo.command import parse_args
from tests.support.imports import ROOT, heavy_imports
from tests.support.pictures import picture


def test_help_lists_every_command_and_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert names == list(cli.COMMANDS)
    assert {"demo", "up", "down", "status", "doctor", "serve", "token", "pull", "push", "run"} <= set(names)
    for name in names:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        assert f"usage: imagestrata {name}" in capsys.readouterr().out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"imagestrata {imagestrata.__version__}\n"
    assert imagestrata.__version__ == code_version() == metadata.version("imagestrata")


def test_every_installed_package_is_typed() -> None:
    for package in ("schemas", "formats", "etl", "jobs", "loader", "imagestrata"):
        assert resources.files(package).joinpath("py.typed").is_file(), package


def test_a_wrong_command_or_option_is_exit_code_2() -> None:
    assert cli.main(["no-such"]) == cli.main(["--no-such"]) == 2
    for command in ("up", "doctor", "pull"):
        with pytest.raises(SystemExit, match="2"):
            cli.main([command, "--no-such"])


def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    for name in [one for one in sys.modules if one.startswith("imagestrata.service")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve", "--root", "x"]) == 1
    assert "pip install 'imagestrata[service]'" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "library", "extra"), [("up", "cassandra", "spark"), ("s3-up", "botocore", "s3")])
def test_a_missing_library_of_a_server_is_said_before_it_is_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    library: str,
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert cli.main([name, "--data", str(tmp_path / "data")]) == 1
    remedy = f"Install it: pip install 'imagestrata[{extra}]'"
    assert capsys.readouterr().err == f"error: Wanted {library} for 'imagestrata {name}'. Found: none. {remedy}\n"
    assert not (tmp_path / "data").exists()


def test_help_of_every_command_imports_nothing_that_takes_long() -> None:
    code = """
import contextlib
from imagestrata import cli
from imagestrata.demo import train
cli.main(["--version"])
for name in cli.COMMANDS:
    with contextlib.suppress(SystemExit):
        cli.main([name, "--help"])
with contextlib.suppress(SystemExit):
    train.main(["--help"])
"""
    assert heavy_imports(code) == set()


def test_options_of_the_demo_need_the_standard_library_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "cat").mkdir(parents=True)
    (tree / "cat" / "1.png").write_bytes(picture(1))
    code = f"from imagestrata.demo.command import parse_args; parse_args(['--port', '9151', '--data', {str(tree)!r}])"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--data", "/nope"], "Wanted a folder of images in --data (DATA= of make). Found: no folder at /nope."),
        (["--data", __file__], f"Found: a file at {__file__}."),
        (["--port", "abc"], "--port: wanted a port from 1024 to 65535. Found: 'abc'."),
    ],
)
def test_the_demo_refuses_what_it_cannot_use_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", *argv])
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def put(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"some text" if path.suffix in (".txt", ".tar") else picture(1))


@pytest.mark.parametrize("name", ["cat/1.png", "cat/kittens/1", "train/cat/1.png", "cats/more.tar"])
def test_the_demo_takes_trees_with_images_in_class_folders(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    assert parse_args(["--data", str(tmp_path)]).data == tmp_path


@pytest.mark.parametrize("name", ["", "1.png", "train/1.png", "cat/notes.txt"])
def test_the_demo_refuses_other_trees_before_it_starts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name:
        put(tmp_path, name)
    with pytest.raises(SystemExit, match="2"):
        parse_args(["--data", str(tmp_path)])
    assert f"CLASS/**/image or SPLIT/CLASS/**/image. Found: none in {tmp_path}. See" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["pusch", "x"], "unknown command pusch. Did you mean push? See imagestrata --help."),
        (["--versoin"], "unknown option --versoin. Did you mean --version? See imagestrata --help."),
        (
            ["--token-file", "F", "list"],
            "unknown option --token-file. Options follow the command, as in 'imagestrata list --token-file'. See ",
        ),
        (["serve", "--root", "x", "--max-uplaod", "1M"], "unknown option --max-uplaod. Did you mean --max-upload?"),
        (["serve", "--root", "x", "--quota", "0"], "--quota: wanted a size in bytes or with a unit"),
        (
            ["job"],
            "job: error: Wanted ingest, split, verify, shard, cache_rows, featurize, relabel, delete or defaults. ",
        ),
        (["job", "splt"], "or defaults. Found: splt. Did you mean split? See imagestrata job --help."),
        (["up", "--heap", "512"], "--heap: wanted 256MiB or more. Found: 512 bytes. Add a unit: 512M."),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(argv)
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_the_path_of_each_job_and_of_the_defaults_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {path.stem for path in (ROOT / "jobs").glob("*.py") if "__main__" in path.read_text()}
    assert scripts == set(job_files.JOBS)
    for name, path in (
        (job_files.DEFAULTS, "spark-defaults.conf"),
        *((job, f"jobs/{job}.py") for job in job_files.JOBS),
    ):
        assert cli.main(["job", name]) == 0
        assert capsys.readouterr().out == f"{ROOT / path}\n"
