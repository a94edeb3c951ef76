"""The command line of jobs/split.py: its options, and the plan that they make."""

import argparse
from collections.abc import Mapping, Sequence

from etl.splits.conditions import check_condition
from etl.splits.plan import USUAL_RATIOS, Pin, SplitPlan, SplitRef, listed, parse_balance, parse_numbers
from formats import NotASplitError, SplitFolder
from formats.splits.dictionary import is_dictionary
from jobs import options
from jobs.arguments import PAIR, Needed, make_parser, parse
from schemas import FormatVersionError, SchemaError, TableName


def parse_args(argv: Sequence[str] | None, *, manual: str | None) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan of a command line, and its other options, ``json`` and ``explain``; exits with 2 for bad arguments."""
    parser = make_parser("split.py", manual=manual)
    add = parser.add_argument_group("what is split").add_argument
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of pictures")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table that is read")
    add("--metadata-ifn", metavar="FOLDER", help="read the metadata from this cache; no Cassandra is needed then")
    add("--metadata-ofn", metavar="FOLDER", help="keep the metadata that were read as a cache")
    add("--dataset", metavar="NAME", help="whose class names to use (default: the dataset of the metadata table)")
    add("--id-col", metavar="COL", default="id", help="the id column of both tables (default: id)")
    add("--label-col", metavar="COL", default="label", help="the label column of both tables (default: label)")
    add("--data-col", metavar="COL", default="data", help="the picture column of the data table (default: data)")
    add = parser.add_argument_group("shares").add_argument
    add("-r", "--split-ratio", metavar="N,N,...", help="the splits' shares, any count (default: 8,2)")
    add("--folds", type=int, metavar="K",
        help="K pairs for cross-validation: fold k trains on split 2k, validates on 2k+1")  # fmt: skip
    add("-b", "--balance", metavar="HOW", default="original",
        help="original: the classes' own proportions; uniform: equally many of each; random: seeded weights; or one "
        "weight a class, in the order of class numbers (2,1,0.5) or by name (cat=2,dog=1), 0 to leave a class out "
        "(default: original)")  # fmt: skip
    add("--per-class", type=int, metavar="N", help="at most N images of each class")
    add("--limit", type=int, metavar="N", help="at most N images in all, in the proportions that the balance asks for")
    add("--stratify", metavar="COL,...",
        help="share out every combination of these columns exactly, and the values of each column as well (default: "
        "label; labels, where images have several)")  # fmt: skip
    add("--group-column", metavar="COL",
        help="keep images with the same value here in one split; an image without a value is a group of its own"
    )  # fmt: skip
    add("--min-per-split", type=int, metavar="N", default=0, help="fail if a class has fewer images in a split")
    add("--seed", type=int, default=0, help="the seed of the choice and of the order (default: 0)")
    add = parser.add_argument_group("which images, and where they must go").add_argument
    add("--where", metavar="EXPRESSION", help="only these images: a Spark SQL expression over the metadata's columns")
    add("--exclude", metavar="SPLIT", action="append", default=[],
        help="no image of this split folder, or of one of its splits (splits/OTHER:1); may be repeated")  # fmt: skip
    add("--pin", metavar="COL=VALUE:SPLIT", action="append", default=[],
        help="images whose column has this value go to that split, as in or_split=val:1; may be repeated")  # fmt: skip
    add("--extend", metavar="SPLIT", help="let the images of this split folder stay where they are; share out the new")
    add = parser.add_argument_group("result").add_argument
    add("-o", "--split-ofn", metavar="PLACE", help="a folder for the split; or NAME.pckl or .pkl, a split dictionary")
    add("--no-position", action="store_true", help="leave the order of the rows to their readers: a faster job")
    add("--no-leak-check", action="store_true", help="do not count copies and look-alikes that lie in two splits")
    add("--overwrite", action="store_true",
        help="replace a split, and a metadata cache, that is there, or what a killed run left of it")  # fmt: skip
    add("--explain", action="store_true", help="tell how many images of each class would go where; write nothing")
    add("--json", action="store_true", help="print the report as one JSON object on the last line")
    return parse(parser, argv, plan=_plan, needed=_needed, check=_check, usual=_usual)


def _needed(args: argparse.Namespace) -> Needed:
    names = () if args.metadata_ifn else PAIR
    return dict.fromkeys(names if args.explain else (*names, "split_ofn"), ())


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    found = {}
    if args.metadata_ifn and not args.data_table:
        found = dict.fromkeys(PAIR, f"as in {args.metadata_ifn}")
    if not (args.split_ratio or args.folds or args.extend):
        found["split_ratio"] = f"{listed(USUAL_RATIOS)} (default)"
    return found


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    _draft(args, data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"))
    if args.explain and args.metadata_ofn:
        raise ValueError("Wanted --explain, which writes nothing, or --metadata-ofn. Found: both")
    if args.where is not None and not args.where.strip():
        raise ValueError("Wanted a condition for --where. Found: an empty one")


def _draft(args: argparse.Namespace, **missing: TableName) -> SplitPlan:
    return options.plan_of(
        SplitPlan,
        args,
        **{**missing, **options.tables_of(args)},
        out=args.split_ofn,
        metadata_in=args.metadata_ifn,
        metadata_out=args.metadata_ofn,
        ratios=args.split_ratio and parse_numbers(args.split_ratio, what="split ratios"),
        balance=parse_balance(args.balance),
        stratify=None if args.stratify is None else tuple(name.strip() for name in args.stratify.split(",")),
        exclude=tuple(map(SplitRef.parse, args.exclude)),
        pins=tuple(map(Pin.parse, args.pin)),
        has_position=not args.no_position,
        has_leak_check=not args.no_leak_check,
        columns=options.columns_of(args),
    )


def _plan(args: argparse.Namespace) -> SplitPlan:
    plan = _draft(args)
    if plan.where:
        check_condition(plan.where)
    if plan.overwrite and plan.out and not is_dictionary(plan.out):
        _check_replaceable(plan.out)
    return plan


def _check_replaceable(out: str) -> None:
    """Raise `schemas.FormatVersionError` if a newer version's split stands there: this one cannot know its files."""
    try:
        SplitFolder.open(out)
    except FormatVersionError:
        raise
    except (SchemaError, NotASplitError):
        return
