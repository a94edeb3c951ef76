"""Check that the tables hold what they say, and that they hold what a source has; mend what can be mended.

  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata --check sizes
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata /data/imagenette --split-subdir train --repair

Without SOURCE only the tables are read:
  missing blob             a metadata row without its picture
  blob without metadata    a picture without its metadata row: it was never committed
  wrong size, wrong hash   a picture of another length, or of another SHA-256, than its metadata row says
With SOURCE, told as it was to jobs/ingest.py (labels, masks and image options too), these also:
  missing image            a file of the source without a metadata row; files in the quarantine are not missed
  changed in the source    a file of another size than its metadata row says (only of pictures stored as they are)
  no longer in the source  a row that came from this source, of a file that it does not list

The pictures are read in small pages, and only their lengths and hashes are kept.

--repair, with SOURCE: what is missing, wrong or changed is written again from its file. Rows of files that are no
longer in the source, and of other sources, stay as they are.
--repair, without SOURCE: metadata rows whose picture is missing are deleted (the picture is lost; the row lies), and so
are pictures without a metadata row. Of a wrong size or hash nothing can be known: name the source.
What was written or deleted is read back: exit code 1 if it is as before, because a later write time lies in the tables.
Never repair while an ingest writes to the tables: what it has just written looks like half of an image.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from etl.ingest.plan import IngestPlan
from etl.verify.plan import VerifyPlan
from etl.verify.report import VerifyReport
from etl.verify.verification import run
from jobs import options
from jobs.arguments import PAIR, make_parser, parse
from jobs.command import execute

__all__ = ["main", "parse_args", "run"]

EPILOG = (
    options.SOURCE_HELP
    + """
Without tables, spark.imagestrata.data-table and spark.imagestrata.metadata-table are taken from spark-defaults.conf;
one table of the pair alone is refused. A source is always typed here. Cassandra is found by spark.cassandra.*.

exit codes:
  0  nothing is wrong, or all that was wrong has been mended
  1  something is wrong, told on the line after the report; or the tables or the source cannot be read
  2  arguments that cannot be, found before anything starts
"""
)


def parse_args(argv: Sequence[str] | None = None) -> tuple[VerifyPlan, bool]:
    """The plan, and whether the report is wanted as JSON. Exits with 2 for arguments that cannot be."""
    parser = make_parser("verify.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(parser)
    options.add_picture_options(parser.add_argument_group("pictures, as they were given to ingest.py"))
    add = parser.add_argument_group("what to check").add_argument
    add("-d", "--data-table", metavar="KEYSPACE.TABLE", help="the pictures")
    add("-m", "--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    add("--dataset", default="", metavar="NAME", help="as it was given to ingest.py (default: the keyspace)")
    options.add_column_options(add, metavar="NAME")
    add("--check", choices=("sizes", "hashes"), default="hashes",
        help="what of a picture is compared (default: hashes)")  # fmt: skip
    add("--repair", action="store_true", help="mend what can be mended: see above; not while an ingest runs")
    add("--json", action="store_true", help="print the report as JSON")
    plan, args = parse(parser, argv, plan=_plan, needed=lambda args: dict.fromkeys(PAIR, ()), check=_check)
    return plan, args.json


def _plan(args: argparse.Namespace) -> VerifyPlan:
    tables, columns = options.tables_of(args), options.columns_of(args)
    ingest = None
    if args.source is not None:
        source, recode = options.source_plan(args), options.recode(args)
        ingest = IngestPlan(
            **tables, source=source, dataset=args.dataset, columns=columns, create=False, overwrite=True, recode=recode
        )
    return VerifyPlan(**tables, columns=columns, check=args.check, repair=args.repair, ingest=ingest)


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    for make in (options.tables_of, options.columns_of, options.recode):
        make(args)
    if args.source is not None:
        options.source_plan(args)
    elif args.root or args.split_subdir or args.split_name or args.labels or args.masks or args.arrays or args.layout:
        raise ValueError("Wanted a SOURCE for the options that say how to read it. Found: none.")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    reports: list[VerifyReport] = []

    def verify(spark: SparkSession) -> VerifyReport:
        reports.append(run(spark, plan=plan))
        return reports[-1]

    code = execute("verify.py", verify, as_json=as_json)
    if code == 0 and reports[0].left:
        hint = "" if plan.repair else " Say --repair to mend what can be mended."
        print(
            f"verify.py: Wanted {plan.metadata_table} and {plan.data_table} to hold what they say. "
            f"Found: {reports[0].summary()}.{hint}",
            file=sys.stderr,
            flush=True,
        )
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
