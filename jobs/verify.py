"""Check that two tables agree with each other and with their source, and repair them; or that a split is unchanged.

examples:
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata /data/imagenette --split-subdir train --repair
  spark-submit jobs/verify.py --split splits/imagenette

Without SOURCE, the tables are compared with each other and with their records:
  missing blob             a metadata row without its image
  blob without metadata    an image without its metadata row: it was never committed
  wrong size, wrong hash   an image whose size or SHA-256 differs from its metadata row
  wrong COLUMN             a label that is not the number of its class, a path that is not that of the id, ...
  written by no ingest; class without a number, class number lost or changed: the records contradict rows
With SOURCE and the options that jobs/ingest.py had (labels, masks and image options too), also:
  missing image            a file of the source without a metadata row; files in the quarantine are not missing
  changed in the source    a file that differs from the image and from its metadata row
  no longer in the source  a row of this source whose file no longer exists or has no label any more
  wrong COLUMN             any column that an ingest would write otherwise: labels and masks in both tables, names,
                           source, format, size, hash; group_id with --group-column
Images with rows of other sources are counted, not compared. Converted images are converted again: another version of
Pillow may give other bytes. --check sizes reads no images of the source: it compares names, classes and sizes.
--split lists what has changed since the split was made: its files, deleted images, labels, and bytes by their hashes.
--repair restores lost class numbers that all rows of a class agree on. With SOURCE, it writes missing, wrong and
changed images again from their files; it keeps rows of other sources and rows whose files no longer exist. Without
SOURCE, it deletes rows of one table that have none in the other (their image is lost, or was never committed).
The job reads back what it wrote or deleted. If nothing has changed, because the tables have later write times, the exit
code is 1. Do not repair while an ingest writes to the tables: its unfinished images look broken.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.errors import EtlError
from etl.ingest.plan import IngestPlan
from etl.verify.plan import VerifyPlan, failure
from formats.command_line import Parser, command
from jobs import options
from jobs.arguments import both_tables, make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.verify.report import VerifyReport
    from etl.verify.split_changes import SplitChanges

EPILOG = f"""{options.SOURCE_HELP}
Without tables, spark.imagestrata.data-table and spark.imagestrata.metadata-table in spark-defaults.conf are used. Give
both tables or neither. SOURCE has no default. The first line lists the tables.

{options.CASSANDRA_HELP}
exit codes:
  0  no problems, or all of them were repaired
  1  there are problems (the line after the report lists them), or the tables or the source cannot be read
  2  bad arguments; nothing was started
"""


def parser() -> Parser:
    """The options; their help is the manual page."""
    made = make_parser("verify.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(made)
    options.add_picture_options(made.add_argument_group("images, as for ingest.py"))
    add = made.add_argument_group("what to check").add_argument
    options.add_table_options(add)
    add("--dataset", default="", metavar="NAME", help="as for ingest.py (default: the keyspace)")
    options.add_column_options(add)
    add("--split", metavar="FOLDER", help="list what has changed of this split; the tables are those of the split")
    add("--check", choices=("sizes", "hashes"), default="hashes",
        help="what to compare of each image (default: hashes)")  # fmt: skip
    add("--repair", action="store_true", help="repair what can be repaired, see above; not while an ingest runs")
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[VerifyPlan | str, argparse.Namespace]:
    """The plan, or the split to check, and the option ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, needed=lambda args: {} if args.split else both_tables(args))


def run(spark: "SparkSession", *, plan: VerifyPlan) -> "VerifyReport":
    """Compare two tables with each other and with a source, and repair them. Raises `EtlError`, `FormatsError`."""
    from etl.verify import verification

    return verification.run(spark, plan=plan)


def _run(spark: "SparkSession", *, plan: VerifyPlan | str) -> "VerifyReport | SplitChanges":
    """As `run`, or find what has changed of a split."""
    from etl.verify import split_changes

    return split_changes.run(spark, address=plan) if isinstance(plan, str) else run(spark, plan=plan)


def _plan(args: argparse.Namespace) -> VerifyPlan | str:
    if args.split and (args.source or args.repair or args.data_table):
        raise ValueError("Wanted --split alone: the split names its tables. Found: a SOURCE, tables or --repair too")
    if args.source is None and options.typed_source_options(args):
        raise ValueError("Wanted a SOURCE with options about a source. Found: none. Add SOURCE, or leave them out.")
    columns, recode = options.columns_of(args), options.recode(args)
    if args.split:
        return str(args.split)
    tables, ingest = options.tables_of(args), None
    if args.source is not None:
        source = options.source_plan(args)
        ingest = IngestPlan(
            **tables, source=source, dataset=args.dataset, columns=columns, create=False, overwrite=True, recode=recode
        )
    return VerifyPlan(**tables, columns=columns, check=args.check, repair=args.repair, ingest=ingest)


@command("verify.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    report = execute("verify.py", _run, plan, as_json=args.json, metrics=MetricsOptions.of(args), has_events=False)
    if report.left:
        raise EtlError(failure(plan, found=report.summary()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
