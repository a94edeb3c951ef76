"""A browser for tests is found, or downloaded if that is permitted."""

import os
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, chromium
from imagestrata.devstack.commands import main

ROOT, SOMEBODY = 0, 1000


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the only one on PATH, with only the system's `mkdir` and the like."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    return tmp_path


def put(folder: Path, name: str, text: str = "exit 0") -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_the_browser_named_in_the_environment_comes_first(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chromium.find() is None
    other, usual = put(tools, "google-chrome"), put(tools, "my-own")
    assert chromium.find() == str(other)
    assert chromium.bring() == str(other)
    monkeypatch.setenv("CHROMIUM", str(usual))
    assert chromium.find() == str(usual)


@pytest.mark.parametrize(("user", "has_apt"), [(SOMEBODY, True), (ROOT, False)])
def test_without_the_right_to_install_the_command_says_what_to_do(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user: int, has_apt: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if has_apt:
        put(tools, "apt-get")
    assert main(["chromium"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "apt-get install chromium" in said[0]


def test_root_installs_chromium_with_apt(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ROOT)
    put(
        tools,
        "apt-get",
        f'case "$*" in *install*) echo "#!/bin/sh" >{tools}/chromium; /bin/chmod +x {tools}/chromium;; esac',
    )
    assert main(["chromium"]) == 0
    assert capsys.readouterr().out.strip() == str(tools / "chromium")


def test_errors_of_apt_are_passed_on(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ROOT)
    put(tools, "apt-get", "echo 'E: no such host' >&2; exit 100")
    with pytest.raises(SetupError, match="Found: E: no such host"):
        chromium.bring()
