"""Compute feature values of every image in the tables: sharpness, perceptual hashes, or values of your own functions.

Only images that lack a value are read, so you can run the job again after each ingest. The values of a view are in a
table beside the metadata table, METADATA_NAME_vN, by image id.

examples:
  spark-submit jobs/featurize.py -d digits.data -m digits.metadata --features sharpness,brightness,phash
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features redness=mine.colors:redness
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features redness@v2=mine.colors:redness
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features embedding=onnx:resnet50.onnx
  spark-submit jobs/featurize.py -d ks.data -m ks.metadata --features "bin=sql:int(brightness / 32)"

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
quarantine table, and the job continues. The annotation of the result is the type of the view; if it does not name one
type, the values of the first two images that agree are.

A view is registered with the SHA-256 of the function's module and of your own modules that it imports. If you change
one of them, make a new version: NAME@v2.

An ONNX model takes RGB images, (N, 3, height, width) or (N, height, width, 3) of float, float16 or uint8, and returns a
number or a vector for each. Its weights are in the same file. Images are resized until they cover the model's size, and
the center is cut out:
  imagenet    as torchvision evaluates its models: the cut is 7/8 of the size; mean and deviation of ImageNet's channels
  clip        as CLIP: bicubic, the cut has the full size; mean and deviation of CLIP
  0-1, none   the cut has the full size; values from 0 to 1, or from 0 to 255
The preprocessing and the model's SHA-256 belong to the view. To change one of them, make a new version.

A view sql:EXPRESSION has no table. Its values are computed when they are read, from columns of the metadata and fields
of other views, in the versions that are the newest ones now, and in UTC and ANSI mode, whatever the settings of the
session are.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.features.plan import FeatureRequest, FeaturizePlan
from formats import command_line
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions

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
    options.add_table_options(add)
    add("--features", action="append", required=True, metavar="NAME,...",
        help="the features to compute: NAME, NAME@v2, or for a new one NAME=MODULE:FUNCTION, NAME=onnx:FILE or "
        "NAME=sql:EXPRESSION; repeatable")  # fmt: skip
    add("--onnx-preprocess", metavar="HOW",
        help="how images become the input of ONNX models: imagenet, clip, 0-1 or none, with a size for models of any "
        "size, as imagenet@224 (default: imagenet)")  # fmt: skip
    add("--vector-index", action="store_true",
        help="keep the vectors in a vector index too, for `imagestrata similar`; later runs update it")  # fmt: skip
    options.add_column_options(add)
    add("--retry", action="store_true", help="compute again what an earlier run could not compute")
    add("--timeout", type=float, default=60.0, metavar="SECONDS",
        help="the longest time for an image, or a list of images, in your functions (default: 60)")  # fmt: skip
    add("--offline", metavar="FOLDER",
        help="also write the values that all images have now to Parquet files in this folder")  # fmt: skip
    add("--overwrite", action="store_true", help="replace the features in the folder of --offline")
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[FeaturizePlan, argparse.Namespace]:
    """The plan, and the option ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan)


def run(spark: "SparkSession", *, plan: FeaturizePlan) -> "FeaturizeReport":
    """Compute the features that images lack. Raises `EtlError` if it cannot go on; values that were written stay."""
    from etl.catalog.products import register_output
    from etl.features import featurizing

    report = featurizing.run(spark, plan=plan)
    if report.offline is not None:
        register_output(spark, None, report.offline)
    return report


def _plan(args: argparse.Namespace) -> FeaturizePlan:
    return options.plan_of(
        FeaturizePlan,
        args,
        **options.tables_of(args),
        features=FeatureRequest.parse_all(args.features, preprocess=args.onnx_preprocess),
        columns=options.columns_of(args),
    )


@command_line.command("featurize.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    execute("featurize.py", run, plan, as_json=args.json, metrics=MetricsOptions.of(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
