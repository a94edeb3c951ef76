"""Compute feature values of every image in the tables: sharpness, perceptual hashes, or values of your own functions.

Only images that lack a value are read, so you can run the job again after each ingest. The values of a view are in a
table beside the metadata table, METADATA_NAME_vN, by image id.

examples:
  spark-submit jobs/featurize.py -d digits.data -m digits.metadata --features sharpness,brightness,phash
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features redness=mine.colors:redness
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features redness@v2=mine.colors:redness

built-in features:
  size        size_width, size_height: in pixels, upright
  channels    channels_mean_red, ..., channels_deviation_blue: of each channel, from 0 to 255
  brightness  the mean gray value, from 0 to 255
  sharpness   the variance of the Laplacian; below about 100 for blurred photographs
  entropy     of the histogram of gray values, in bits
  phash       the perceptual hash, 64 bits

A function takes one parameter, whose annotation says what it gets: bytes (the encoded image) or numpy.ndarray (uint8,
height x width x 3, RGB), or a list of these. It returns a number, bool, str, bytes or vector, or a dict of these by
name; for a list of images, a list of values. It runs in a separate process. Images on which it fails or hangs go to the
quarantine table, and the job continues. The type of its first value becomes the type of the view.

A view is registered with the SHA-256 of the function's module. If you change the module, make a new version: NAME@v2.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.features.plan import FeatureRequest, FeaturizePlan
from formats import command_line
from jobs import options
from jobs.arguments import PAIR, make_parser, parse
from jobs.command import execute
from schemas import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.features.report import FeaturizeReport

EPILOG = f"""
{options.CASSANDRA_HELP}
exit codes:
  0  done; images on which a function failed are counted and in the quarantine table
  1  failed; values that were written stay, and the next run continues
  2  bad arguments; nothing was read
"""


def parser() -> command_line.Parser:
    """The options; their help is the manual page."""
    made = make_parser("featurize.py", manual=__doc__, epilog=EPILOG)
    add = made.add_argument
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of images")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table of metadata")
    add("--features", action="append", required=True, metavar="NAME,...",
        help="the features to compute: NAME, NAME@v2, or NAME=MODULE:FUNCTION for a new one; repeatable")  # fmt: skip
    options.add_column_options(add)
    add("--retry", action="store_true", help="compute again what an earlier run could not compute")
    add("--timeout", type=float, default=60.0, metavar="SECONDS",
        help="the longest time for an image, or a list of images, in your functions (default: 60)")  # fmt: skip
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[FeaturizePlan, bool]:
    """The plan, and whether to print the report as JSON. Exits with 2 for bad arguments."""
    plan, args = parse(parser(), argv, plan=_plan, needed=lambda args: dict.fromkeys(PAIR, ()), check=_check)
    return plan, args.json


def run(spark: "SparkSession", *, plan: FeaturizePlan) -> "FeaturizeReport":
    """Compute the features that images lack.

    Args:
        spark: The session.
        plan: The tables and the features.

    Returns:
        Counts by feature view.

    Raises:
        EtlError: The job cannot go on; values that were written stay.
    """
    from etl.features import featurizing

    return featurizing.run(spark, plan=plan)


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    _draft(args, data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"))


def _plan(args: argparse.Namespace) -> FeaturizePlan:
    return _draft(args)


def _draft(args: argparse.Namespace, **missing: TableName) -> FeaturizePlan:
    return options.plan_of(
        FeaturizePlan,
        args,
        **{**missing, **options.tables_of(args)},
        features=FeatureRequest.parse_all(args.features),
        columns=options.columns_of(args),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    return execute("featurize.py", lambda spark: run(spark, plan=plan), as_json=as_json, plan=plan)


if __name__ == "__main__":
    sys.exit(main())
