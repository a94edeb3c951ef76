"""Write the ids and labels of a whole table to a row list, for training and validation in separate tables.

Reads the metadata table once; it reads no images. A row list is a folder of Parquet files like a split: every image
of the table, in a seeded order. Training reads it with --train-rows-fn and --val-rows-fn, or loader.open_rows(FOLDER).

examples:
  spark-submit jobs/cache_rows.py --metadata-table imagenette.metadata_train --rows-fn train.rows
  spark-submit jobs/cache_rows.py --metadata-table imagenette.metadata_val --rows-fn val.rows --overwrite
  spark-submit jobs/cache_rows.py --metadata-table ks.facts --data-table ks.pictures --rows-fn all.rows
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from etl.splits.plan import SplitPlan
from formats.command_line import Parser, command
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions
from schemas import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPILOG = f"""
Without --data-table, the data table has the name of the metadata table with "data" in place of "metadata": in the
first example, imagenette.data_train. Without both, spark.imagestrata.metadata-table and spark.imagestrata.data-table in
spark-defaults.conf are used. --data-table alone is refused. The first line lists the tables.

{options.CASSANDRA_HELP}
exit codes:
  0  done; the last line has the number of rows, the place and the fingerprint
  1  failed, and nothing was published; one line says why
  2  bad arguments; nothing was read
"""


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What was written: the place, the numbers of images and of their classes, and the fingerprint."""

    out: str
    rows: int
    classes: int
    fingerprint: str
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        return (
            f"wrote {self.rows:,} rows of {self.classes:,} classes to {self.out} in {self.seconds:.1f} s; "
            f"fingerprint {self.fingerprint[:12]}"
        )


def parser() -> Parser:
    """The options; their help is the manual page."""
    made = make_parser("cache_rows.py", manual=__doc__, epilog=EPILOG)
    add = made.add_argument
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table to read")
    add("-o", "--rows-fn", metavar="FOLDER", required=True, help="the folder to write")
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of images (default: see below)")
    add("--dataset", metavar="NAME", help="the dataset of the class names (default: that of the metadata table)")
    options.add_column_options(add)
    add("--seed", type=int, default=0, metavar="N", help="the seed of the order (default: 0)")
    add("--overwrite", action="store_true", help="replace an existing row list, also one that a killed run left")
    add("--json", action="store_true", help="print the report as JSON on the last line")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan, and the option ``json``. Exits with 2 for bad arguments."""
    needed = {"metadata_table": ["data_table"]}
    return parse(parser(), argv, plan=_plan, needed=lambda args: needed, usual=_usual, lone="metadata_table")


def run(spark: "SparkSession", *, plan: SplitPlan) -> RowsReport:
    """Write a row list, by a plan with one split. Raises `EtlError`, `FormatsError`; then nothing was published."""
    from etl.splits import splitting

    report = splitting.run(spark, plan=plan)
    assert report.out is not None
    return RowsReport(report.out, report.rows[0], len(report.counts[0]), report.fingerprints[0], report.seconds)


def data_table_of(metadata_table: TableName) -> TableName:
    """The data table whose name follows from that of a metadata table. Raises ValueError if none does."""
    before, found, after = metadata_table.table.partition("metadata")
    if not found:
        raise ValueError(f"Wanted --data-table, or metadata in the name of the table. Found: {metadata_table} alone")
    return TableName(metadata_table.keyspace, f"{before}data{after}")


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    if args.data_table is not None:
        return {}
    try:
        data_table = data_table_of(TableName.parse(args.metadata_table))
    except ValueError:
        return {}  # the plan refuses it
    return {"data_table": f"{data_table} (from the name of the metadata table)"}


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


@command("cache_rows.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    plan, args = parse_args(argv)
    execute("cache_rows.py", run, plan, as_json=args.json, metrics=MetricsOptions.of(args), has_events=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
