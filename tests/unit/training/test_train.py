"""The training's command where torch is missing."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "training" / "train.py"


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
