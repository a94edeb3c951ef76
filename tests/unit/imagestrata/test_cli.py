"""The one command: what it lists, what it needs, and what it says where something is missing."""

import subprocess
import sys
from importlib import metadata, resources

import pytest

import imagestrata
from formats.origin import code_version
from imagestrata import cli


def test_help_lists_every_command_and_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")][:-1]
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


def test_version_and_the_servers_commands_import_no_library() -> None:
    code = (
        "import contextlib, sys\nfrom imagestrata.cli import main\nmain(['--version'])\n"
        "with contextlib.suppress(SystemExit): main(['up', '--help'])\n"
        "sys.exit(str(sorted({'cassandra', 'fastapi', 'numpy', 'pyarrow', 'rich'} & set(sys.modules))) if "
        "{'cassandra', 'fastapi', 'numpy', 'pyarrow', 'rich'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
