"""Write a dataset as WebDataset shards: tar files of shuffled images, each with an index for DALI.

examples:
  spark-submit jobs/shard.py /data/imagenette/train --out s3://bucket/imagenette-train --maxsize 100M
  spark-submit jobs/shard.py /data/ILSVRC2012_img_train.tar --split-name train --out /scratch/imagenet-train
  spark-submit jobs/shard.py /scratch/ILSVRC2012_img_train.tar --read sequential --out /scratch/imagenet-train
  spark-submit jobs/shard.py --split splits/imagenette --index 1 --out s3://bucket/imagenette-val
  spark-submit jobs/shard.py -d imagenette.data -m imagenette.metadata --img-format JPEG --img-size 256 --out shards/256

All images are put in one seeded order (with --split, in the order of the split) and packed into full shards. Each task
streams one shard; no shard is held in memory. The same images and options give the same bytes with any number of
executors. shards.json is written last: without it, nothing was published.

Choose the size of shards for the storage. A reader takes the images of a shard one after another. Cluster file systems
that stripe files over disks read large files best: use 1 to 3 GB (the default for folders is 2 GB). On object stores,
smaller shards spread better over ranks and nodes: use 100 MB (the default there). Write validation sets as shards too.
A set should have several shards for each rank that reads it.

Images that are not changed are read in random order, straight into their shards. On network file systems with
spinning disks this is slow for tars: with --read sequential, each tar is read in order and Spark shuffles the images
on local disks. --img-format, --img-size and --compress shuffle on local disks too.

A sample has the image (.jpg, .png, ...), its class number (.cls) and its metadata (.json: id, path, class). Masks are
.seg.png, arrays .npy. Files of a SOURCE that are not images are left out and listed in rejected.csv. An image of a
table or of a split that is missing or damaged is an error, unless --max-errors allows it.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from etl.shards.plan import COMPRESSIONS, ShardPlan
from formats import command_line, sizes
from jobs import options
from jobs.arguments import PAIR, make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.shards.report import ShardReport

EPILOG = (
    options.SOURCE_HELP
    + f"""
{sizes.HELP}.

S3 keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or spark.imagestrata.s3.*. Images from tables need
Cassandra: set spark.cassandra.connection.host and .port, and spark.cassandra.auth.username and .password. Without a
host, the job uses the Cassandra that `imagestrata up` started, otherwise 127.0.0.1 port 9042.

exit codes:
  0  done; files may have been rejected
  1  failed, and nothing was published; one line says why
  2  bad arguments; nothing was started
"""
)


def parser() -> command_line.Parser:
    """The options; their help is the manual page."""
    made = make_parser("shard.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(made)
    add = made.add_argument_group("tables and splits").add_argument
    options.add_table_options(add, data=", instead of a SOURCE")
    options.add_column_options(add, otherwise=", or as in the split")
    add("--as-of", metavar="WHEN", help="as it was after this run: its number, an ingest id, or a time (2026-03-01)")
    add("--skip-replaced", action="store_true", help="with --as-of, leave out images whose bytes no longer exist")
    add("--split", metavar="PLACE", help="only the images of this split folder or dictionary, in its order; read "
        "from the split's tables unless you give a SOURCE or tables")  # fmt: skip
    add("--index", type=int, default=0, metavar="N", help="the number of the split (default: 0)")
    add("--dataset", default="", metavar="NAME", help="the dataset of the ids of a SOURCE, as for ingest.py (default: "
        "the keyspace of --split, or none)")  # fmt: skip
    group = made.add_argument_group("images")
    options.add_picture_options(group)
    options.add_check_options(group, otherwise="only if all are; of tables and splits, if any is")
    add = group.add_argument
    add("--compress", choices=COMPRESSIONS, default="none",
        help="zstd: compress images in formats without compression, BMP, PNM and TIFF (default: none)")  # fmt: skip
    add = made.add_argument_group("shards").add_argument
    add("-o", "--out", metavar="PLACE", required=True, help="a folder, or s3://bucket/prefix")
    add("--maxsize", type=command_line.size, metavar="SIZE", help="the largest size of a shard, tar headers included "
        "(default: 100M on S3, 2G in a folder)")  # fmt: skip
    add("--maxcount", type=int, default=100_000, metavar="N", help="the most images in a shard (default: 100000)")
    add("--seed", type=int, default=0, metavar="N", help="the seed of the order; a split has its own (default: 0)")
    add("--endpoint", metavar="URL", help="the S3 endpoint, also for a SOURCE on S3 (default: "
        "spark.imagestrata.s3.endpoint, or AWS_ENDPOINT_URL)")  # fmt: skip
    add = made.add_argument_group("how to run").add_argument
    add("--resume", action="store_true", help="keep the shards that a killed run finished")
    add("--overwrite", action="store_true", help="replace existing shards")
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[ShardPlan, argparse.Namespace]:
    """The plan, and the option ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, needed=lambda args: {}, usual=_usual)


def run(spark: "SparkSession", *, plan: ShardPlan) -> "ShardReport":
    """Write and register WebDataset shards. Raises `EtlError`, `FormatsError`; then nothing was published."""
    from etl.catalog.products import register_output
    from etl.frames import setting
    from etl.secrets import PROPERTIES, driver_storage
    from etl.shards import sharding

    report = sharding.run(spark, plan=plan)
    with setting(spark, PROPERTIES["endpoint"], plan.endpoint):
        register_output(spark, driver_storage(spark, plan.out), report.out)
    return report


def _plan(args: argparse.Namespace) -> ShardPlan:
    if args.source is None and (alone := options.typed_source_options(args)):
        raise ValueError(f"Wanted a SOURCE with {', '.join(alone)}. Found: none. Add SOURCE, or leave them out.")
    return options.plan_of(
        ShardPlan,
        args,
        **options.tables_of(args),
        source=None if args.source is None else options.source_plan(args),
        columns=options.columns_of(args),
        recode=options.recode(args),
        tolerance=options.tolerance(args) if args.max_errors else None,
    )


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    """The tables, if images are read from those of a split."""
    return dict.fromkeys(PAIR, f"as in {args.split}") if args.split and not (args.source or args.data_table) else {}


@command_line.command("shard.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    execute("shard.py", run, plan, as_json=args.json, metrics=MetricsOptions.of(args), needs_cassandra=not plan.source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
