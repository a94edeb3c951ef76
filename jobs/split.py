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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from etl.splits.plan import (
    USUAL_RATIOS,
    LabelsOfReplaced,
    Pin,
    SplitPlan,
    SplitRef,
    Top,
    listed,
    parse_balance,
    parse_ratios,
)
from formats.command_line import Parser, command
from formats.errors import NotASplitError
from jobs import options
from jobs.arguments import PAIR, Needed, make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions
from schemas import FormatVersionError, SchemaError
from schemas.features import ViewName, parse_feature
from schemas.manifest import NEWER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.splits.report import SplitReport

EPILOG = f"""
Options default to spark.imagestrata.NAME in spark-defaults.conf: split-ofn, and data-table together with
metadata-table. Give both tables or neither. The first line lists the tables and the defaults in use.

{options.CASSANDRA_HELP}
exit codes:
  0  done; the last line has the rows, the place and the fingerprints
  1  failed, and nothing was published; one line says why
  2  bad arguments; nothing was read
"""


def parser() -> Parser:
    """The options; their help is the manual page."""
    made = make_parser("split.py", manual=__doc__, epilog=EPILOG)
    add = made.add_argument_group("input").add_argument
    options.add_table_options(add, metadata="to read")
    add("--metadata-ifn", metavar="FOLDER", help="read the metadata from this cache; Cassandra is not needed")
    add("--metadata-ofn", metavar="FOLDER", help="save the metadata of the table as a cache")
    add("--dataset", metavar="NAME", help="the dataset of the class names (default: that of the metadata table)")
    options.add_column_options(add)
    add = made.add_argument_group("proportions").add_argument
    add("-r", "--split-ratio", metavar="N,N,...", help="the proportions of the splits, one number each (default: 8,2)")
    add("--folds", type=int, metavar="K",
        help="K pairs for cross-validation: fold k trains on split 2k and validates on split 2k+1")  # fmt: skip
    add("-b", "--balance", metavar="HOW", default="original",
        help="original: the classes' own proportions; uniform: the same number of each class; random: seeded weights; "
        "or a weight for each class, in the order of class numbers (2,1,0.5) or by name (cat=2,dog=1); 0 leaves a "
        "class out (default: original)")  # fmt: skip
    add("--per-class", type=int, metavar="N", help="at most N images of each class, pinned ones included")
    add("--limit", type=int, metavar="N", help="at most N images in total, as --balance says, pinned ones included")
    add("--stratify", metavar="COL,...",
        help="divide every combination of values in these columns exactly, and the values of each column too (default: "
        "label; for images with several labels: labels)")  # fmt: skip
    add("--group-column", metavar="COL", help="keep images with the same value in this column in one split, or for "
        "phash those that look alike; an image without a value is a group by itself")  # fmt: skip
    add("--look-alike-bits", type=int, metavar="N", default=3, help="at most N of 64 bits of phash differ (default: 3)")
    add("--min-per-split", type=int, metavar="N", default=0, help="fail if a split has fewer images of a class")
    add("--seed", type=int, default=0, metavar="N", help="the seed of the choice and the order (default: 0)")
    add = made.add_argument_group("selection").add_argument
    add("--where", metavar="EXPRESSION", help="only images for which this Spark SQL expression over metadata is true")
    add("--top", metavar="COL=N%", help="of these, only those with the highest values in this column in each class: a "
        "share of the class (sharpness=10%%), or a number of images (sharpness=500)")  # fmt: skip
    add("--features", metavar="NAME@vN,...", default="", help="store the values of these feature views, or of those "
        "of a feature service (service:NAME@vN), beside the split, for the loader; conditions use these versions "
        "(default: the newest)")  # fmt: skip
    add("--label-view", metavar="NAME[@vN]", help="take the labels from this version of a label view (see relabel.py) "
        "instead of the metadata table")  # fmt: skip
    add("--labels-of-replaced", choices=get_args(LabelsOfReplaced), default=NEWER,
        help="with --label-view, the labels of images with other bytes or another class than the ones that were "
        "corrected: newer, those of the metadata table; keep: the corrections (default: newer)")  # fmt: skip
    add("--as-of", metavar="WHEN", help="as it was after this run: its number, an ingest id, or a time (2026-03-01)")
    add("--skip-replaced", action="store_true", help="with --as-of, leave out images whose bytes no longer exist")
    add("--exclude", metavar="SPLIT", action="append", default=[],
        help="leave out images in this split folder, or in one of its splits (splits/OTHER:1); repeatable")  # fmt: skip
    add("--pin", metavar="COL=VALUE:SPLIT", action="append", default=[],
        help="put images with this value in this column into that split: or_split=val:1; repeatable")  # fmt: skip
    add("--extend", metavar="SPLIT", help="keep the images of this split folder where they are; divide the new images")
    add = made.add_argument_group("output").add_argument
    add("-o", "--split-ofn", metavar="PLACE", help="a folder, or NAME.pckl or NAME.pkl for a split dictionary")
    add("--no-position", action="store_true", help="store no positions; faster, and readers compute the order")
    add("--no-leak-check", action="store_true", help="do not count duplicates and groups across splits")
    add("--overwrite", action="store_true", help="replace a split and metadata cache, also half-written ones")
    add("--explain", action="store_true", help="print how many images of each class go where; write nothing")
    add("--json", action="store_true", help="print the report as JSON on the last line")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan, and the options ``json`` and ``explain``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, needed=_needed, usual=_usual, finish=_finish)


def run(spark: "SparkSession", *, plan: SplitPlan) -> "SplitReport":
    """Compute, write and register splits. Raises `EtlError`, `FormatsError`; then nothing was published."""
    from etl.catalog.products import register_output
    from etl.splits import splitting

    report = splitting.run(spark, plan=plan)
    if report.out is not None:
        register_output(spark, None, report.out)
    return report


def explain(spark: "SparkSession", *, plan: SplitPlan) -> "SplitReport":
    """Compute splits and write nothing; the report has the rows of each split by class. Raises as `run` does."""
    from etl.splits import splitting

    return splitting.explain(spark, plan=plan)


def _needed(args: argparse.Namespace) -> Needed:
    return dict.fromkeys((*(() if args.metadata_ifn else PAIR), *(() if args.explain else ("split_ofn",))), ())


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    found = {}
    if args.metadata_ifn and not args.data_table:
        found = dict.fromkeys(PAIR, f"as in {args.metadata_ifn}")
    if not (args.split_ratio or args.folds or args.extend):
        found["split_ratio"] = f"{listed(USUAL_RATIOS)} (default)"
    return found


def _plan(args: argparse.Namespace) -> SplitPlan:
    if args.explain and args.metadata_ofn:
        raise ValueError("Wanted --explain, which writes nothing, or --metadata-ofn. Found: both")
    if args.where is not None and not args.where.strip():
        raise ValueError("Wanted a condition for --where. Found: an empty one")
    return options.plan_of(
        SplitPlan,
        args,
        **options.tables_of(args),
        out=args.split_ofn,
        metadata_in=args.metadata_ifn,
        metadata_out=args.metadata_ofn,
        ratios=args.split_ratio and parse_ratios(args.split_ratio),
        balance=parse_balance(args.balance),
        stratify=None if args.stratify is None else tuple(name.strip() for name in args.stratify.split(",")),
        exclude=tuple(map(SplitRef.parse, args.exclude)),
        pins=tuple(map(Pin.parse, args.pin)),
        top=Top.parse(args.top) if args.top is not None else None,
        label_view=ViewName.parse(args.label_view) if args.label_view else None,
        features=tuple(parse_feature(name.strip()) for name in args.features.split(",") if args.features),
        has_position=not args.no_position,
        has_leak_check=not args.no_leak_check,
        columns=options.columns_of(args),
    )


def _finish(plan: SplitPlan) -> None:
    options.check_condition(plan)
    if plan.overwrite and plan.out:
        _check_replaceable(plan.out)


def _check_replaceable(out: str) -> None:
    """Raise `schemas.FormatVersionError` for a split of a newer version, whose files this one does not know."""
    from formats import is_dictionary, open_split  # imports Arrow

    try:
        if not is_dictionary(out):
            open_split(out)
    except FormatVersionError:
        raise
    except (SchemaError, NotASplitError):
        return


@command("split.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    execute(
        "split.py",
        explain if args.explain else run,
        plan,
        as_json=args.json,
        metrics=MetricsOptions.of(args),
        needs_cassandra=plan.metadata_in is None,
        has_events=not args.explain,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
