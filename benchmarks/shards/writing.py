"""The figures of writing shards to S3: our job compared with webdataset's ShardWriter, and our workers' memory."""

import statistics
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.results import Row, tell
from benchmarks.shards.baselines import WEBDATASET
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.fixture import BUCKET, ShardFixture

NUMBERS = (1, 2)
OURS = "ours"
"""The prefix of our shards in the bucket."""


@dataclass(frozen=True)
class Written:
    """Our job twice in one session: images/s of the second run, seconds of the first, MB of the largest worker.

    The time includes listing and packing in a warm Spark; ShardWriter's imports do not count either.
    """

    rate: float
    cold: float
    worker_mb: float


def shard(fixture: ShardFixture, prefix: str, *, seed: int = 0, watched: bool = False) -> Written:
    """Run our job on two cores, in a separate session. Raises RuntimeError if it fails or leaves images out.

    Sampling memory costs CPU time, so use ``watched`` only where speed does not count.
    """
    fixture.remove(prefix)
    tools, local = Path(sys.executable).parent, fixture.folder / "spark"
    local.mkdir(exist_ok=True)
    spark = [str(tools / "spark-submit"), "--master", "local[2]", "--conf", f"spark.local.dir={local}"]
    ours = ["benchmarks/shards/job.py", str(fixture.tree), "--out", f"s3://{BUCKET}/{prefix}", "--seed", str(seed)]
    answer, worker_mb = fixture.command([*spark, *ours, "--maxsize", str(fixture.sizes.maxsize)], watched=watched)
    if answer["images"] != fixture.sizes.pictures:
        raise RuntimeError(f"Wanted {fixture.sizes.pictures} pictures in shards. Found: {answer['images']}")
    written = Written(answer["images"] / answer["seconds"], answer["cold"], worker_mb)
    memory = f", largest worker {written.worker_mb:,.0f} MB" if watched else ""
    tell(f"ours wrote {written.rate:,.0f} images/s{memory}")
    return written


def prepare(fixture: ShardFixture) -> None:
    """Write our shards for the readers, unless they exist."""
    if not fixture.shards(OURS):
        shard(fixture, OURS)


def rows_of_writing(fixture: ShardFixture, wanted: Collection[int]) -> dict[int, Row]:
    """Our job alternates with ShardWriter, which reads the same tree and writes the same files per sample."""
    rows = {}
    if 1 in wanted:
        WEBDATASET.package.install()
        written: list[Written] = []

        def ours() -> float:
            written.append(shard(fixture, OURS))
            return written[-1].rate

        def other() -> float:
            answer = WEBDATASET.write(fixture)
            return float(answer["images"] / answer["seconds"])

        rates, others = in_turn(fixture.sizes.written, {"ours": ours, "other": other}).values()
        fixture.remove(WEBDATASET.prefix())
        note = f"ours {statistics.median(rates):,.0f} images/s, listing included, in a session that has run once, "
        note += f"whose first run took {statistics.median(one.cold for one in written):.1f} s; ShardWriter "
        note += f"{statistics.median(others):,.0f} images/s, each shard put whole by botocore"
        rows[1] = FIGURES.ratio_row(1, rates, others, note=note)
    if 2 in wanted:
        watched = [shard(fixture, OURS, watched=True).worker_mb for _ in range(fixture.sizes.written)]
        rows[2] = FIGURES.value_row(2, max(watched), note="the largest of all runs", runs=len(watched))
    return rows
