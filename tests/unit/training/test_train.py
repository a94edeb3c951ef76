"""The training commands without torch, and with only the loader installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "training" / "train.py"


def test_missing_torch_is_reported_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")")
    paths = [str(tmp_path), *filter(None, sys.path)]
    for arguments, code, message in [
        (
            ["--split", "s"],
            1,
            "train.py: Wanted torch and torchvision. Found: No module named 'torch'. Install them: pip",
        ),
        (["--help"], 0, "--opt-level O1, O2     mixed precision"),
    ]:
        found = subprocess.run(
            [sys.executable, str(SCRIPT), *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert found.returncode == code, found.stderr
        assert message in found.stdout + found.stderr


@pytest.mark.parametrize("name", ["train.py", "loop_read.py"])
def test_scripts_run_where_only_the_loader_is_installed(tmp_path: Path, name: str) -> None:
    for package in ("loader", "formats", "schemas"):
        (tmp_path / package).symlink_to(ROOT / package)
    paths = [str(tmp_path), *(path for path in sys.path if path and Path(path).resolve() != ROOT)]
    found = subprocess.run(
        [sys.executable, "-S", str(ROOT / "training" / name), "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
