"""The Go toolchain that builds programs for the stack."""

from pathlib import Path

import pytest

from imagestrata.devstack import golang


def test_the_program_is_built_with_a_recent_enough_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    assert golang.go_version(old) == (1, 19)
    assert golang.go_version(tmp_path / "none") == (0, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert golang.find_go() != old
