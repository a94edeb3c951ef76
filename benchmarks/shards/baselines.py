"""The baselines of streaming from shards: other packages, each in a separate environment.

Their requirements conflict with each other and with ours. An environment is created once, below build/bench, from the
versions here. If that fails, its row has no value, and the note has the reason. `benchmarks.shards.readers` says what
each reader does, `benchmarks.shards.writers` what each writer does.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.results import PLACE, tell
from benchmarks.harness.runs import Run
from benchmarks.shards.fixture import BUCKET, ShardFixture

_INSTALL_SECONDS = 1_200

OPENERS = ("s3fs", "s3torchconnector", "curl")
"""The fast ways from webdataset to S3; a command for each shard takes three times as long."""


@dataclass(frozen=True)
class Baseline:
    """A package, its environment, and the name of its reader and writer."""

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

    def prefix(self) -> str:
        """The prefix of its data in the bucket."""
        return f"baseline-{self.name}"

    def write(self, fixture: ShardFixture, **order: Any) -> dict[str, Any]:
        """Write the tree in its format. Raises RuntimeError if that fails."""
        fixture.remove(self.prefix())
        local = fixture.folder / "written"
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir()
        order = {"writer": self.name, "tree": str(fixture.tree), "local": str(local), **order}
        order |= {"remote": f"s3://{BUCKET}/{self.prefix()}", "maxsize": fixture.sizes.maxsize}
        answer = fixture.process("shards.writers:write", {"url": fixture.server.endpoint, **order}, python=self.python)
        shutil.rmtree(local, ignore_errors=True)
        tell(f"{self.name} wrote {answer['images'] / answer['seconds']:,.0f} images/s")
        return answer

    def read(self, fixture: ShardFixture, **order: Any) -> Run:
        """Read one epoch of the data that it has written, or of the data in the request."""
        return fixture.read(self.python, self.name, remote=f"s3://{BUCKET}/{self.prefix()}", **order)


def _uv(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode:
        told = " ".join(done.stderr.split())[:300]
        raise RuntimeError(f"Wanted uv {command[1]} to succeed. Found: {told}")


WEBDATASET = Baseline("webdataset", ("webdataset==1.0.2", "s3fs==2026.9.0", "s3torchconnector==1.5.0", "torch==2.15.0"))
STREAMING = Baseline("streaming", ("mosaicml-streaming==0.13.0", "torch==2.15.0", "torchvision==0.29.2"))
LITDATA = Baseline("litdata", ("litdata==0.2.76", "obstore==0.12.1", "torch==2.15.0", "torchvision==0.29.2"))
BY_ROW: Mapping[int, Baseline] = {3: WEBDATASET, 4: STREAMING, 5: LITDATA}
"""The baselines by row."""
