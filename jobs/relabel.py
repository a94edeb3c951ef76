"""Give images new labels without a new ingest: a label file becomes the next version of a label view.

The metadata table stays as it is. Splits that exist keep their labels, and new ones choose: split.py --label-view
label@v2. A version has the labels of its file. Images that the file does not name keep the label of the version before,
and at last that of the metadata table. The same file again does nothing.

examples:
  spark-submit jobs/relabel.py corrections.csv -d ks.data -m ks.metadata
  spark-submit jobs/relabel.py votes.parquet -d ks.data -m ks.metadata --view reviewed --label-column majority

FILE has the columns path and label, as for ingest.py --labels: paths in the ingested folder, with or without the
split folder, and names of classes. A path that no image has, two labels of one image, and an unknown class are refused.
Paths of deleted images are left out.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.labels.plan import RelabelPlan
from formats import command_line
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.labels.relabelling import RelabelReport

EPILOG = f"""
{options.CASSANDRA_HELP}
exit codes:
  0  done
  1  failed, and no version was added; one line says why
  2  bad arguments; nothing was read
"""


def parser() -> command_line.Parser:
    """The options; their help is the manual page."""
    made = make_parser("relabel.py", manual=__doc__, epilog=EPILOG)
    add = made.add_argument
    add("labels", metavar="FILE", help="a .csv, .tsv or .parquet file")
    options.add_table_options(add)
    add("--view", default="label", metavar="NAME", help="the label view that gets a version (default: label)")
    add("--path-column", metavar="NAME", help="the column of paths (default: path)")
    add("--label-column", metavar="NAME", help="the column of classes (default: label)")
    add("--new-classes", action="store_true", help="accept classes that the dataset does not have yet")
    options.add_column_options(add)
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[RelabelPlan, argparse.Namespace]:
    """The plan, and the option ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan)


def run(spark: "SparkSession", *, plan: RelabelPlan) -> "RelabelReport":
    """Add a version of a label view. Raises `EtlError` if the file does not match the images; then none was added."""
    from etl.labels import relabelling

    return relabelling.run(spark, plan=plan)


def _plan(args: argparse.Namespace) -> RelabelPlan:
    return options.plan_of(RelabelPlan, args, **options.tables_of(args), columns=options.columns_of(args))


@command_line.command("relabel.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    execute("relabel.py", run, plan, as_json=args.json, metrics=MetricsOptions.of(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
