"""Runs all eight jobs in one session: ``spark-submit tests/support/all_jobs.py TREE KEYSPACE OUT``.

The last line has what must be the same on every cluster.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from jobs.command import execute


@dataclass(frozen=True)
class Facts:
    """The fingerprints and counts of the jobs."""

    ingest: str
    features: int
    corrected: int
    splits: tuple[str, ...]
    shards: tuple[str, int, int]
    rows: str
    wrong: int
    deleted: int


def run(spark: SparkSession, *, plan: Sequence[str]) -> Facts:
    """Run the jobs on a tree of images in class folders."""
    tree, keyspace, out = plan
    tables = ["-d", f"{keyspace}.data", "-m", f"{keyspace}.metadata"]
    labels = Path(out, "labels.csv")
    labels.parent.mkdir(parents=True, exist_ok=True)
    labels.write_text("path,label\nant/0.png,bee\n", encoding="ascii")

    def done(job: Any, *arguments: str) -> Any:
        return job.run(spark, plan=job.parse_args([*tables, *arguments])[0])

    ingested = done(ingest, tree, "--dataset", "same", "--replication", "3")
    features = done(featurize, "--features", "sharpness")
    corrected = done(relabel, str(labels))
    divided = done(split, "-r", "8,2", "--label-view", "label@v1", "--features", "sharpness", "-o", f"{out}/split")
    packed = done(shard, "--split", f"{out}/split", "--out", f"{out}/shards", "--maxsize", "1MB")
    rows = done(cache_rows, "--rows-fn", f"{out}/rows")
    verified = done(verify, tree, "--dataset", "same")
    deleted = done(delete, "--where", "path LIKE 'doe/%'", "--reason", "a test", "--count", str(ingested.images // 4))
    return Facts(
        ingested.fingerprint,
        features.images,
        corrected.images,
        tuple(divided.fingerprints),
        (packed.fingerprint, packed.images, packed.shards),
        rows.fingerprint,
        verified.left,
        deleted.images,
    )


if __name__ == "__main__":
    execute("all_jobs.py", run, sys.argv[1:], as_json=True, has_events=False)
