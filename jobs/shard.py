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
from collections.abc import Mapping, Sequence
from typing import get_args

from etl.pictures.images import Check
from etl.shards.plan import COMPRESSIONS, ShardPlan
from etl.shards.sharding import run
from jobs import options
from jobs.arguments import PAIR, make_parser, parse
from jobs.command import execute

__all__ = ["main", "parse_args", "run"]

EPILOG = (
    options.SOURCE_HELP
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
    parser = make_parser("shard.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(parser)
    add = parser.add_argument_group("tables and splits").add_argument
    add("-d", "--data-table", metavar="KEYSPACE.TABLE", help="the pictures, instead of a SOURCE")
    add("-m", "--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    for name, what in (("id", "the image's id"), ("label", "the label"), ("data", "the picture")):
        add(f"--{name}-col", metavar="NAME", help=f"the column of {what} (default: {name}, or as the split says)")
    add("--split", metavar="PLACE", help="a split folder or dictionary: its images alone, in its order, from its own "
        "tables unless a SOURCE or tables are given")  # fmt: skip
    add("--index", type=int, default=0, metavar="N", help="which of its splits (default: 0)")
    add("--dataset", default="", metavar="NAME", help="what ids of a SOURCE belong to, as ingest.py has it "
        "(default: the keyspace of --split, or no name)")  # fmt: skip
    group = parser.add_argument_group("pictures")
    options.add_picture_options(group)
    add = group.add_argument
    add("--check", choices=get_args(Check), default="header", help="how pictures are looked at (default: header)")
    add("--compress", choices=COMPRESSIONS, default="none",
        help="zstd: pictures whose formats do not compress (BMP, PNM, TIFF) (default: none)")  # fmt: skip
    add("--max-errors", metavar="N|P%", help="fail if more files are rejected (default: only if all are)")
    add = parser.add_argument_group("shards").add_argument
    add("-o", "--out", metavar="PLACE", required=True, help="a folder, or s3://bucket/prefix")
    add("--maxsize", type=_bytes, metavar="BYTES", help="the most that a shard has, headers counted; 1e8 is a number "
        "(default: 1e8 for s3://, 2e9 for a folder)")  # fmt: skip
    add("--maxcount", type=int, default=100_000, metavar="N", help="the most images of a shard (default: 100000)")
    add("--seed", type=int, default=0, metavar="N", help="of the order of the images; a split has its own "
        "(default: 0)")  # fmt: skip
    add("--endpoint", metavar="URL", help="the S3 endpoint, of a SOURCE there, too (default: "
        "spark.imagestrata.s3.endpoint, AWS_ENDPOINT_URL)")  # fmt: skip
    add = parser.add_argument_group("how to run").add_argument
    add("--resume", action="store_true", help="keep the shards that a killed run has finished")
    add("--overwrite", action="store_true", help="replace the shards that are there")
    add("--json", action="store_true", help="print the report as JSON")
    plan, args = parse(parser, argv, plan=_plan, needed=lambda args: {}, check=_plan, usual=_usual)
    return plan, args.json


def _plan(args: argparse.Namespace) -> ShardPlan:
    if args.source is None and (alone := options.typed_source_options(args)):
        raise ValueError(f"Wanted a SOURCE for the options that say how to read it. Found: {', '.join(alone)} alone.")
    return options.plan_of(
        ShardPlan,
        args,
        **options.tables_of(args),
        source=None if args.source is None else options.source_plan(args),
        columns=options.columns_of(args),
        recode=options.recode(args),
        tolerance=options.tolerance(args),
    )


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    """The tables of a split, for images that are read from them."""
    return dict.fromkeys(PAIR, f"as in {args.split}") if args.split and not (args.source or args.data_table) else {}


def _bytes(text: str) -> int:
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
        return int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"wanted a number of bytes, as 100000000 or 1e8. Found: {text!r}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    return execute("shard.py", lambda spark: run(spark, plan=plan), as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
