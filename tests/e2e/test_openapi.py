"""The whole OpenAPI of the dataset service under schemathesis: nothing that it says is untrue."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.__main__ import main
from tests.support.dataset_servers import Server


def test_schemathesis_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert main(["token", "create", "--root", str(root), "--name", "all", "--scope", "write"]) == 0
    token = capsys.readouterr().out.strip()
    with Server(root) as server:
        command = [Path(sys.executable).parent / "schemathesis", "run", f"{server.url}/openapi.json"]
        options = ["--checks", "all", "--max-examples", "10", "--seed", "1", "--no-color", "--continue-on-failure"]
        headers = ["-H", f"Authorization: Bearer {token}"]
        done = subprocess.run(
            [*command, *options, *headers], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
        )
    assert done.returncode == 0, done.stdout[-6000:]
    found = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert found is not None
    assert int(found[2]) > 300
