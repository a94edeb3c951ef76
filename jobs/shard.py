"""Write a dataset as WebDataset shards: tars of pictures, fully shuffled, with an index for DALI beside each.

  spark-submit jobs/shard.py /data/imagenette/train --out s3://bucket/imagenette-train --maxsize 1e8
  spark-submit jobs/shard.py /data/ILSVRC2012_img_train.tar --split-name train --out /scratch/imagenet-train
  spark-submit jobs/shard.py /scratch/ILSVRC2012_img_train.tar --read sequential --out /scratch/imagenet-train
  spark-submit jobs/shard.py --split splits/imagenette --index 1 --out s3://bucket/imagenette-val
  spark-submit jobs/shard.py -d imagenette.data -m imagenette.metadata --img-format JPEG --img-size 256 --out shards/256

All images are put into one seeded order (a split's own, with --split) and packed: every shard is full, and an image may
be anywhere, whatever its class was. Each task streams one shard; nothing holds a shard in memory. The same images and
options give the same bytes on any number of executors. shards.json comes last: without it nothing was published.

How large should shards be? A reader takes a shard's images one after another, so that one seek serves many. Clusters
whose file systems stripe files over disks read large files best: 1 to 3 GB (the default for folders is 2e9). Object
stores begin a request in milliseconds, and many shards spread well over ranks and nodes: --maxsize 1e8 (their default).
Validation sets are sharded likewise; a set should have several shards for each rank that reads it.

Pictures that stay as they are, are read in random order straight into their shards. Where that is slow, as from tars on
a network file system of spinning disks, --read sequential reads each tar in order, and lets Spark shuffle pictures
through local disks. --img-format, --img-size and --compress make pictures first, in such a pass too.

Each sample has the picture (.jpg, .png, ...), its class number (.cls) and what is known of it (.json: id, path, class);
masks are .seg.png, arrays .npy. Files that are no pictures are left out, told in rejected.csv.
"""

import argparse
import sys
from collections.abc import Sequence

from etl.shards.plan import ShardPlan
from etl.shards.sharding import run
from jobs.command import execute, parse
from jobs.shard_options import add_options, check, needed, shard_plan, usual
from jobs.source_options import SOURCE_HELP

EPILOG = (
    SOURCE_HELP
    + """
S3 takes its keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or spark.imagestrata.s3.*; Cassandra is found by
spark.cassandra.*.

exit codes:
  0  done; files may have been rejected
  1  failed, and nothing was published; one line says why
  2  arguments that cannot be, found before anything starts
"""
)


def parse_args(argv: Sequence[str] | None = None) -> tuple[ShardPlan, bool]:
    """The plan, and whether the report is wanted as JSON. Exits with 2 for arguments that cannot be."""
    parser = argparse.ArgumentParser(
        "shard.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    args = parse(parser, argv, needed=needed, check=check, usual=usual)
    return shard_plan(args), args.json


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    return execute("shard.py", lambda spark: run(spark, plan=plan), as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
