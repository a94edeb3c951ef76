"""Assign every ingested image to a split, and save the splits as Parquet.

Reads the metadata table once; it reads no images. Splits are exact: the number of images of each class in a split is
the ideal number rounded down or up, and so is each split's total. Images are chosen and ordered by hashes of their ids
and the seed. The same table gives the same splits on any machine, with any number of executors, after any retry.

examples:
  spark-submit jobs/split.py -d imagenette.data -m imagenette.metadata -r 8,2 -o splits/imagenette
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 0.7,0.2,0.1 --balance uniform --seed 7 -o splits/balanced
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 9,1 --balance cat=2,dog=1 -o splits/weighted
  spark-submit jobs/split.py -d ks.data -m ks.metadata --metadata-ofn build/metadata -o splits/first
  spark-submit jobs/split.py --metadata-ifn build/metadata -r 1 --per-class 100 -o splits/subset
  spark-submit jobs/split.py --metadata-ifn build/metadata --group-column phash -o splits/no-look-alikes
  spark-submit jobs/split.py --metadata-ifn build/metadata --folds 5 -o splits/folds
  spark-submit jobs/split.py --metadata-ifn build/metadata --where "width >= 224" --exclude splits/test -o splits/large
  spark-submit jobs/split.py --metadata-ifn build/metadata --pin or_split=val:1 -o splits/as-published
  spark-submit jobs/split.py -d ks.data -m ks.metadata --label-view label@v2 --where "sharpness > 100" -o splits/clean
  spark-submit jobs/split.py -d ks.data -m ks.metadata --as-of 2026-03-01 -o splits/march
  spark-submit jobs/split.py -d ks.data -m ks.metadata --extend splits/first -o splits/second
  spark-submit jobs/split.py --metadata-ifn build/metadata -o splits/for-others.pckl

A split folder has Parquet files of (id, label, position) in split=0/, split=1/, ..., and _report.html.
_manifest.json has the tables, class names, options, counts and fingerprints; it is written last. Read a split with
loader.open_split(FOLDER, index=0). If PLACE ends with .pckl or .pkl, a split dictionary for other tools is written.

Before it publishes a split, the job looks up a sample of the ids in the data table. It fails if the tables do not
belong together or if images are missing. With --metadata-ifn and without Cassandra it cannot look them up; the report
says so.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.splits.plan import SplitPlan
from formats.command_line import Parser, command
from jobs import split_options
from jobs.command import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.splits.report import SplitReport


def parser() -> Parser:
    """The options; their help is the manual page."""
    return split_options.parser(__doc__)


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan, and the options ``json`` and ``explain``. Exits with 2 for bad arguments."""
    return split_options.parse_args(parser(), argv)


def run(spark: "SparkSession", *, plan: SplitPlan) -> "SplitReport":
    """Compute splits, write them, and register them in the keyspace of the metadata table.

    Args:
        spark: The session.
        plan: What to split, how, and where to write the splits.

    Returns:
        Rows and fingerprints of each split, and the place.

    Raises:
        EtlError: The job cannot go on; nothing was published.
        FormatsError: A file cannot be read or written as its format says.
    """
    from etl.catalog.products import register_output
    from etl.splits import splitting

    report = splitting.run(spark, plan=plan)
    if report.out is not None:
        register_output(spark, None, report.out)
    return report


def explain(spark: "SparkSession", *, plan: SplitPlan) -> "SplitReport":
    """Compute splits and write nothing.

    Args:
        spark: The session.
        plan: What to split, and how.

    Returns:
        Rows of each split by class.

    Raises:
        EtlError: The job cannot go on.
        FormatsError: A file cannot be read or written as its format says.
    """
    from etl.splits import splitting

    return splitting.explain(spark, plan=plan)


@command("split.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    job = explain if args.explain else run
    needs_cassandra = plan.metadata_in is None
    return execute(
        "split.py",
        lambda spark: job(spark, plan=plan),
        as_json=args.json,
        needs_cassandra=needs_cassandra,
        plan=None if args.explain else plan,
    )


if __name__ == "__main__":
    sys.exit(main())
