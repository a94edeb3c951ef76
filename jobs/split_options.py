"""The command line of jobs/split.py: its options, and the plan that they make."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from etl.splits.conditions import check_condition
from etl.splits.plan import USUAL_RATIOS, Pin, SplitPlan, SplitRef, listed, parse_balance, parse_numbers
from formats import NotASplitError, SplitFolder
from formats.splits.dictionary import is_dictionary
from jobs.command import PAIR, parse
from schemas import Columns, FormatVersionError, SchemaError, TableName


def parse_args(argv: Sequence[str] | None, *, manual: str) -> tuple[SplitPlan, argparse.Namespace]:
    """The plan of a command line, and its other options, ``json`` and ``explain``; exits with 2 for bad arguments."""
    parser = argparse.ArgumentParser(
        prog="split.py", description=manual, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    _tables(parser.add_argument_group("what is split"))
    _shares(parser.add_argument_group("shares"))
    _rows(parser.add_argument_group("which images, and where they must go"))
    _result(parser.add_argument_group("result"))
    args = parse(parser, argv, needed=_needed, check=_check, usual=_usual)
    try:
        plan = _plan(args)
        if plan.where:
            check_condition(plan.where)
        if plan.overwrite and plan.out and not is_dictionary(plan.out):
            _check_replaceable(plan.out)
    except ValueError as error:
        parser.error(str(error))
    return plan, args


def _tables(group: Any) -> None:
    add = group.add_argument
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of pictures")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table that is read")
    add("--metadata-ifn", metavar="FOLDER", help="read the metadata from this cache; no Cassandra is needed then")
    add("--metadata-ofn", metavar="FOLDER", help="keep the metadata that were read as a cache")
    add("--dataset", metavar="NAME", help="whose class names to use (default: the dataset of the metadata table)")
    add("--id-col", metavar="COL", default="id", help="the id column of both tables (default: id)")
    add("--label-col", metavar="COL", default="label", help="the label column of both tables (default: label)")
    add("--data-col", metavar="COL", default="data", help="the picture column of the data table (default: data)")


def _shares(group: Any) -> None:
    add = group.add_argument
    add("-r", "--split-ratio", metavar="N,N,...", help="the splits' shares, any count (default: 8,2)")
    add(
        "--folds",
        type=int,
        metavar="K",
        help="K pairs for cross-validation: fold k trains on split 2k, validates on 2k+1",
    )
    add(
        "-b",
        "--balance",
        metavar="HOW",
        default="original",
        help="original: the classes' own proportions; uniform: equally many of each; random: seeded weights; or one "
        "weight a class, in the order of class numbers (2,1,0.5) or by name (cat=2,dog=1), 0 to leave a class out "
        "(default: original)",
    )
    add("--per-class", type=int, metavar="N", help="at most N images of each class")
    add("--limit", type=int, metavar="N", help="at most N images in all, in the proportions that the balance asks for")
    add(
        "--stratify",
        metavar="COL,...",
        help="share out every combination of these columns exactly, and the values of each column as well (default: "
        "label; labels, where images have several)",
    )
    add(
        "--group-column",
        metavar="COL",
        help="keep images with the same value here in one split; an image without a value is a group of its own",
    )
    add("--min-per-split", type=int, metavar="N", default=0, help="fail if a class has fewer images in a split")
    add("--seed", type=int, default=0, help="the seed of the choice and of the order (default: 0)")


def _rows(group: Any) -> None:
    add = group.add_argument
    add("--where", metavar="EXPRESSION", help="only these images: a Spark SQL expression over the metadata's columns")
    add(
        "--exclude",
        metavar="SPLIT",
        action="append",
        default=[],
        help="no image of this split folder, or of one of its splits (splits/OTHER:1); may be repeated",
    )
    add(
        "--pin",
        metavar="COL=VALUE:SPLIT",
        action="append",
        default=[],
        help="images whose column has this value go to that split, as in or_split=val:1; may be repeated",
    )
    add("--extend", metavar="SPLIT", help="let the images of this split folder stay where they are; share out the new")


def _result(group: Any) -> None:
    add = group.add_argument
    add("-o", "--split-ofn", metavar="PLACE", help="a folder for the split; or NAME.pckl or .pkl, a split dictionary")
    add("--no-position", action="store_true", help="leave the order of the rows to their readers: a faster job")
    add("--no-leak-check", action="store_true", help="do not count copies and look-alikes that lie in two splits")
    add(
        "--overwrite",
        action="store_true",
        help="replace a split, and a metadata cache, that is there, or what a killed run left of it",
    )
    add("--explain", action="store_true", help="tell how many images of each class would go where; write nothing")
    add("--json", action="store_true", help="print the report as one JSON object on the last line")


def _needed(args: argparse.Namespace) -> Mapping[str, Sequence[str]]:
    names = [] if args.metadata_ifn else ["data_table", "metadata_table"]
    return dict.fromkeys(names if args.explain else [*names, "split_ofn"], ())


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    found = {}
    if args.metadata_ifn and not args.data_table:
        found = dict.fromkeys(PAIR, f"as in {args.metadata_ifn}")
    if not (args.split_ratio or args.folds or args.extend):
        found["split_ratio"] = f"{listed(USUAL_RATIOS)} (default)"
    return found


def _check(args: argparse.Namespace) -> dict[str, Any]:
    """The plan's fields that need nothing of Spark's configuration. Raises ValueError."""
    tables = {name: TableName.parse(text) for name in ("data_table", "metadata_table") if (text := getattr(args, name))}
    fields: dict[str, Any] = {
        **tables,
        "out": args.split_ofn,
        "metadata_in": args.metadata_ifn,
        "metadata_out": args.metadata_ofn,
        "ratios": args.split_ratio and parse_numbers(args.split_ratio, what="split ratios"),
        "folds": args.folds,
        "balance": parse_balance(args.balance),
        "per_class": args.per_class,
        "limit": args.limit,
        "stratify": tuple(name.strip() for name in args.stratify.split(",")) if args.stratify is not None else None,
        "group_column": args.group_column,
        "min_per_split": args.min_per_split,
        "seed": args.seed,
        "where": args.where,
        "exclude": tuple(map(SplitRef.parse, args.exclude)),
        "pins": tuple(map(Pin.parse, args.pin)),
        "extend": args.extend,
        "has_position": not args.no_position,
        "has_leak_check": not args.no_leak_check,
        "overwrite": args.overwrite,
        "dataset": args.dataset,
        "columns": Columns(id=args.id_col, label=args.label_col, data=args.data_col),
    }
    if args.split_ratio is not None and fields["ratios"] == ():
        raise ValueError(f"Wanted split ratios above 0. Found: {args.split_ratio!r}")
    missing = {"data_table": TableName("ks", "data"), "metadata_table": TableName("ks", "metadata")}
    SplitPlan(**{**missing, **fields})  # what may still come from Spark's configuration is not judged yet
    if args.explain and args.metadata_ofn:
        raise ValueError("Wanted --explain, which writes nothing, or --metadata-ofn. Found: both")
    if args.where is not None and not args.where.strip():
        raise ValueError("Wanted a condition for --where. Found: an empty one")
    return fields


def _plan(args: argparse.Namespace) -> SplitPlan:
    return SplitPlan(**_check(args))


def _check_replaceable(out: str) -> None:
    """Raise `schemas.FormatVersionError` if a newer version's split stands there: this one cannot know its files."""
    try:
        SplitFolder.open(out)
    except FormatVersionError:
        raise
    except (SchemaError, NotASplitError):
        return
