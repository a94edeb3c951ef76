"""The baselines of streaming from shards: other packages, each in a separate environment.

If one cannot be installed, its row has no value, and the note has the reason. `benchmarks.shards.readers` says what
each reader does, `benchmarks.shards.writers` what each writer does.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import packages
from benchmarks.harness.packages import Package
from benchmarks.harness.results import tell
from benchmarks.harness.runs import Run
from benchmarks.shards.fixture import BUCKET, ShardFixture

OPENERS = ("s3fs", "s3torchconnector", "curl")
"""The fast ways from webdataset to S3; a command for each shard takes three times as long."""


@dataclass(frozen=True)
class Baseline:
    """A package, whose name is that of its reader and writer."""

    package: Package

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.package.name

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
        answer = fixture.process(
            "shards.writers:write", {"url": fixture.server.endpoint, **order}, python=self.package.python
        )
        shutil.rmtree(local, ignore_errors=True)
        tell(f"{self.name} wrote {answer['images'] / answer['seconds']:,.0f} images/s")
        return answer

    def read(self, fixture: ShardFixture, **order: Any) -> Run:
        """Read one epoch of the data that it has written, or of the data in the request."""
        return fixture.read(self.package.python, self.name, remote=f"s3://{BUCKET}/{self.prefix()}", **order)


WEBDATASET = Baseline(
    Package("webdataset", ("webdataset==1.0.2", "s3fs==2026.9.0", "s3torchconnector==1.5.0", "torch==2.15.0"))
)
STREAMING, LITDATA = Baseline(packages.MOSAICML), Baseline(packages.LITDATA)
BY_ROW: Mapping[int, Baseline] = {3: WEBDATASET, 4: STREAMING, 5: LITDATA}
"""The baselines by row."""
