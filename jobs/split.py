"""Assign every ingested image to a split, and save the splits as Parquet.

Reads the metadata table once, never a picture. Every class is shared out exactly: each count is its ideal rounded down
or up, and so is each split's total. Rows are chosen and ordered by hashes of their ids and the seed, so that the same
table gives the same splits on any machine, with any number of executors, in any retry.

Before anything is published, a sample of each split's ids is looked up in the data table. Tables that do not belong
together are refused, and so are images whose pictures are lost. With a metadata cache and no Cassandra nothing can be
looked up; the report says so.

examples:
  spark-submit jobs/split.py -d imagenette.data -m imagenette.metadata -r 8,2 -o splits/imagenette
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 0.7,0.2,0.1 --balance uniform --seed 7 -o splits/balanced
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 9,1 --balance cat=2,dog=1 -o splits/weighted
  spark-submit jobs/split.py -d ks.data -m ks.metadata --metadata-ofn build/metadata -o splits/first
  spark-submit jobs/split.py --metadata-ifn build/metadata -r 1 --per-class 100 -o splits/subset
  spark-submit jobs/split.py --metadata-ifn build/metadata --group-column group_id -o splits/no-look-alikes
  spark-submit jobs/split.py --metadata-ifn build/metadata --folds 5 -o splits/folds
  spark-submit jobs/split.py --metadata-ifn build/metadata --where "width >= 224" --exclude splits/test -o splits/large
  spark-submit jobs/split.py --metadata-ifn build/metadata --pin or_split=val:1 -o splits/as-published
  spark-submit jobs/split.py -d ks.data -m ks.metadata --extend splits/first -o splits/second
  spark-submit jobs/split.py --metadata-ifn build/metadata -o splits/for-others.pckl

The folder that it writes holds split=0/, split=1/, ... as Parquet files of (id, label, position), _report.html, and
_manifest.json, written last: tables, class names, options, counts and fingerprints. Read it with
loader.open_split(FOLDER, index=0). A name that ends with .pckl or .pkl is a split dictionary instead, for other tools.

Defaults come from spark-defaults.conf: spark.imagestrata.split-ofn, and the pair spark.imagestrata.data-table and
spark.imagestrata.metadata-table. One table of the pair alone is refused. The first line names the tables, and tells
where each option came from that was not typed. Cassandra's address and user come from spark.cassandra.*.

exit codes:
  0  the split is there; the last line tells its rows, its place and its fingerprints
  1  failed, and nothing was published; one line says why
  2  bad arguments, found before anything was read
"""

import argparse
import sys
from collections.abc import Sequence

from etl.splits.plan import SplitPlan
from etl.splits.report import SplitReport
from etl.splits.splitting import explain, run
from jobs import split_options
from jobs.command import execute

__all__ = ["SplitReport", "explain", "main", "parse_args", "run"]


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan of a command line, and its other options, ``json`` and ``explain``; exits with 2 for bad arguments."""
    return split_options.parse_args(argv, manual=__doc__)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    plan, args = parse_args(argv)
    job = explain if args.explain else run
    return execute("split.py", lambda spark: job(spark, plan=plan), as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
