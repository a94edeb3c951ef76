"""Cache the ids and labels of a whole table as a rows file: train and val may each have tables of their own.

Reads the metadata table once, never a picture. A rows file is a folder with Parquet inside, as a split has it: every
image of the table, in a seeded order of its own. Training reads it with --train-rows-fn or --val-rows-fn, and Python
with loader.open_rows(FOLDER).

examples:
  spark-submit jobs/cache_rows.py --metadata-table imagenette.metadata_train --rows-fn train.rows
  spark-submit jobs/cache_rows.py --metadata-table imagenette.metadata_val --rows-fn val.rows --overwrite
  spark-submit jobs/cache_rows.py --metadata-table ks.facts --data-table ks.pictures --rows-fn all.rows

Without --data-table the pictures' table is the one with "data" in place of "metadata" in its name, as
imagenette.data_train above. Without both, spark.imagestrata.metadata-table and spark.imagestrata.data-table are taken
from spark-defaults.conf. --data-table alone is refused. Cassandra's address and user come from spark.cassandra.*.

exit codes:
  0  the rows are there; the last line tells their number, place and fingerprint
  1  failed, and nothing was published; one line says why
  2  bad arguments, found before anything was read
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pyspark.sql import SparkSession

from etl.splits.plan import SplitPlan
from etl.splits.splitting import run as split
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute
from schemas import TableName


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What was written: images, classes among them, the place and the fingerprint."""

    out: str
    rows: int
    classes: int
    fingerprint: str
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        return (
            f"cached {self.rows:,} rows of {self.classes:,} classes at {self.out} in {self.seconds:.1f} s; "
            f"fingerprint {self.fingerprint[:12]}"
        )


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, bool]:
    """The plan, and whether the report is wanted as JSON; exits with 2 for bad arguments."""
    parser = make_parser("cache_rows.py", manual=__doc__)
    add = parser.add_argument
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table that is read")
    add("-o", "--rows-fn", metavar="FOLDER", required=True, help="the rows file that is made")
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of pictures (default: by the metadata table's name)")
    add("--dataset", metavar="NAME", help="whose class names to use (default: the dataset of the metadata table)")
    options.add_column_options(add, metavar="COL")
    add("--seed", type=int, default=0, help="the seed of the rows' order (default: 0)")
    add("--overwrite", action="store_true", help="replace rows that are there, or what a killed run left of them")
    add("--json", action="store_true", help="print the report as one JSON object on the last line")
    needed = {"metadata_table": ["data_table"]}
    plan, args = parse(
        parser, argv, plan=_plan, needed=lambda args: needed, check=_check, usual=_usual, lone="metadata_table"
    )
    return plan, args.json


def run(spark: SparkSession, *, plan: SplitPlan) -> RowsReport:
    """Make the rows file. Raises `etl.EtlError`, `FormatsError`; then nothing was published."""
    report = split(spark, plan=plan)
    assert report.out is not None
    return RowsReport(report.out, report.rows[0], len(report.counts[0]), report.fingerprints[0], report.seconds)


def data_table_of(metadata_table: TableName) -> TableName:
    """The table of pictures that goes with one of metadata, by its name. Raises ValueError where that does not tell."""
    before, found, after = metadata_table.table.partition("metadata")
    if not found:
        raise ValueError(
            f"Wanted --data-table, or metadata in the metadata table's name. Found: {metadata_table}, and neither"
        )
    return TableName(metadata_table.keyspace, f"{before}data{after}")


def _check(args: argparse.Namespace) -> None:
    """What needs nothing of Spark's configuration. Raises ValueError."""
    if args.metadata_table is not None:
        _plan(args)


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    if args.data_table is not None:
        return {}
    try:
        data_table = data_table_of(TableName.parse(args.metadata_table))
    except ValueError:
        return {}  # the plan refuses it
    return {"data_table": f"{data_table} (by the metadata table's name)"}


def _plan(args: argparse.Namespace) -> SplitPlan:
    metadata_table = TableName.parse(args.metadata_table)
    return options.plan_of(
        SplitPlan,
        args,
        data_table=TableName.parse(args.data_table) if args.data_table is not None else data_table_of(metadata_table),
        metadata_table=metadata_table,
        out=args.rows_fn,
        ratios=(Fraction(1),),
        columns=options.columns_of(args),
        has_leak_check=False,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    plan, as_json = parse_args(argv)
    return execute("cache_rows.py", lambda spark: run(spark, plan=plan), as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
