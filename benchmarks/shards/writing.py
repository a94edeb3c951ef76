"""The figures of writing shards to S3: our job beside webdataset's ShardWriter, and the memory of its workers."""

import statistics
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.command import tell
from benchmarks.harness.results import Row
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.rivals import WEBDATASET
from benchmarks.shards.stage import BUCKET, Stage

NUMBERS = (1, 2)
OURS = "ours"
"""Where our shards lie in the bucket, for all that reads them."""


@dataclass(frozen=True)
class Written:
    """Our job twice in one session: seconds of the second run and of the first, and the largest worker's memory."""

    images: int
    seconds: float
    cold: float
    worker_mb: float

    @property
    def rate(self) -> float:
        """Pictures a second, listing and packing included, once Spark is warm: ShardWriter's imports do not count."""
        return self.images / self.seconds


def shard(stage: Stage, prefix: str, *, seed: int = 0, watched: bool = False) -> Written:
    """Our job on two cores, in a session of its own. Raises RuntimeError if it fails or leaves pictures out.

    Memory is looked at where it is ``watched``, which takes time of the cores: not where speed counts.
    """
    stage.remove(prefix)
    tools, local = Path(sys.executable).parent, stage.folder / "spark"
    local.mkdir(exist_ok=True)
    spark = [str(tools / "spark-submit"), "--master", "local[2]", "--conf", f"spark.local.dir={local}"]
    ours = ["benchmarks/shards/job.py", str(stage.tree), "--out", f"s3://{BUCKET}/{prefix}", "--seed", str(seed)]
    done = stage.command([*spark, *ours, "--maxsize", str(stage.sizes.maxsize)], watched=watched)
    answer = done.answer
    if answer["images"] != stage.sizes.pictures:
        raise RuntimeError(f"Wanted {stage.sizes.pictures} pictures in shards. Found: {answer['images']}")
    written = Written(answer["images"], answer["seconds"], answer["cold"], done.worker_mb)
    memory = f", largest worker {written.worker_mb:,.0f} MB" if watched else ""
    tell(f"ours wrote {written.rate:,.0f} images/s{memory}")
    return written


def prepare(stage: Stage) -> None:
    """Our shards, for what reads them, unless they are there."""
    if not stage.shards(OURS):
        shard(stage, OURS)


def rows_of_writing(stage: Stage, wanted: Collection[int], *, quick: bool) -> dict[int, Row]:
    """Our job in turn with ShardWriter, which reads the same tree and writes the same files of a sample."""
    ours: list[Written] = []
    others: list[float] = []
    if 1 in wanted:
        WEBDATASET.install()
    for turn in range(stage.sizes.pairs if 1 in wanted else 0):
        for is_ours in (True, False) if turn % 2 == 0 else (False, True):
            if is_ours:
                ours.append(shard(stage, OURS))
            else:
                answer = WEBDATASET.write(stage)
                others.append(answer["images"] / answer["seconds"])
    stage.remove(WEBDATASET.prefix())
    rows = {}
    if 1 in wanted:
        rate, cold = (statistics.median(values) for values in zip(*((one.rate, one.cold) for one in ours), strict=True))
        note = f"ours {rate:,.0f} images/s, listing included, in a session that has run once, whose first run took "
        note += f"{cold:.1f} s; ShardWriter "
        note += f"{statistics.median(others):,.0f} images/s, each shard put whole by botocore"
        rows[1] = FIGURES.ratio_row(1, [one.rate for one in ours], others, note=note, quick=quick)
    if 2 in wanted:
        watched = [shard(stage, OURS, watched=True).worker_mb for _ in range(stage.sizes.pairs)]
        rows[2] = FIGURES.value_row(2, max(watched), note="the largest of all runs", quick=quick, runs=len(watched))
    return rows
