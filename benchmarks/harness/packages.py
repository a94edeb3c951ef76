"""Other packages that benchmarks compare with, each in a separate environment.

Their requirements conflict with each other and with ours. An environment is created once, below build/bench, from the
versions here.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.results import PLACE, tell

_INSTALL_SECONDS = 1_200


@dataclass(frozen=True)
class Package:
    """A package and its environment."""

    name: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The folder of its environment."""
        return PLACE / f"baseline-{self.name}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def install(self) -> None:
        """Create the environment unless it exists. Raises RuntimeError with uv's message."""
        mark, wanted = self.folder / "requirements.json", json.dumps(self.requirements)
        if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
            return
        tell(f"make the environment of {self.name}: {', '.join(self.requirements)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if uv is None:
            raise RuntimeError(f"Wanted uv, which makes the environment of {self.name}. Found: none on PATH.")
        _uv(uv, "venv", "--quiet", "--python", sys.executable, str(self.folder))
        _uv(uv, "pip", "install", "--quiet", "--python", str(self.python), *self.requirements)
        mark.write_text(wanted, encoding="utf-8")


def _uv(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode:
        told = " ".join(done.stderr.split())[:300]
        raise RuntimeError(f"Wanted uv {command[1]} to succeed. Found: {told}")


MOSAICML = Package("streaming", ("mosaicml-streaming==0.13.0", "torch==2.15.0", "torchvision==0.29.2"))
LITDATA = Package("litdata", ("litdata==0.2.76", "obstore==0.12.1", "torch==2.15.0", "torchvision==0.29.2"))
