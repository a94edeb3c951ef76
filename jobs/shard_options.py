"""The options of the sharding's command line, and the plan that they make."""

import argparse
from collections.abc import Mapping, Sequence
from typing import get_args

from etl.ingest.plan import Tolerance
from etl.pictures.images import Check
from etl.shards.plan import COMPRESSIONS, ShardPlan
from jobs.command import PAIR
from jobs.picture_options import add_picture_options, recode
from jobs.source_options import add_source_options, source_plan
from schemas import Columns, TableName

_OF_SOURCE = {
    "root": "",
    "split_subdir": None,
    "split_name": "",
    "layout": None,
    "read": "random",
    "label_type": None,
    "labels": None,
    "path_column": None,
    "label_column": None,
    "group_column": None,
    "image_column": None,
    "class_names": None,
    "class_level": None,
    "masks": None,
    "arrays": None,
}
"""The options that say how to read a SOURCE, and what they are if nobody says."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add SOURCE and all options."""
    add_source_options(parser)
    add = parser.add_argument_group("tables and splits").add_argument
    add("-d", "--data-table", metavar="KEYSPACE.TABLE", help="the pictures, instead of a SOURCE")
    add("-m", "--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    for name, what in (("id", "the image's id"), ("label", "the label"), ("data", "the picture")):
        add(f"--{name}-col", metavar="NAME", help=f"the column of {what} (default: {name}, or as the split says)")
    add("--split", metavar="PLACE", help="a split folder or dictionary: its images alone, in its order, from its own "
        "tables unless a SOURCE or tables are given")  # fmt: skip
    add("--index", type=int, default=0, metavar="N", help="which of its splits (default: 0)")
    add("--dataset", default="", metavar="NAME", help="what ids of a SOURCE belong to, as ingest.py has it "
        "(default: the keyspace of --split, or no name)")  # fmt: skip
    group = parser.add_argument_group("pictures")
    add_picture_options(group)
    group.add_argument(
        "--check", choices=get_args(Check), default="header", help="how pictures are looked at (default: header)"
    )
    group.add_argument(
        "--compress", choices=COMPRESSIONS, default="none",
        help="zstd: pictures whose formats do not compress (BMP, PNM, TIFF) (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--max-errors", metavar="N|P%", help="fail if more files are rejected (default: only if all are)"
    )
    add = parser.add_argument_group("shards").add_argument
    add("-o", "--out", metavar="PLACE", required=True, help="a folder, or s3://bucket/prefix")
    add("--maxsize", type=_bytes, metavar="BYTES", help="the most that a shard has, headers counted; 1e8 is a number "
        "(default: 1e8 for s3://, 2e9 for a folder)")  # fmt: skip
    add("--maxcount", type=int, default=100_000, metavar="N", help="the most images of a shard (default: 100000)")
    add("--seed", type=int, default=0, metavar="N", help="of the order of the images; a split has its own "
        "(default: 0)")  # fmt: skip
    add("--endpoint", metavar="URL", help="the S3 endpoint, of a SOURCE there, too (default: "
        "spark.imagestrata.s3.endpoint, AWS_ENDPOINT_URL)")  # fmt: skip
    add = parser.add_argument_group("how to run").add_argument
    add("--resume", action="store_true", help="keep the shards that a killed run has finished")
    add("--overwrite", action="store_true", help="replace the shards that are there")
    add("--json", action="store_true", help="print the report as JSON")


def shard_plan(args: argparse.Namespace) -> ShardPlan:
    """The plan that these options make. Raises ValueError for options that cannot be."""
    columns = {name: value for name in ("id", "label", "data") if (value := getattr(args, f"{name}_col")) is not None}
    return ShardPlan(
        source=None if args.source is None else source_plan(args),
        data_table=TableName.parse(args.data_table) if args.data_table else None,
        metadata_table=TableName.parse(args.metadata_table) if args.metadata_table else None,
        split=args.split,
        index=args.index,
        out=args.out,
        maxsize=args.maxsize,
        maxcount=args.maxcount,
        seed=args.seed,
        dataset=args.dataset,
        columns=Columns(**columns),
        recode=recode(args),
        check=args.check,
        compress=args.compress,
        tolerance=Tolerance.parse(args.max_errors) if args.max_errors else Tolerance(),
        endpoint=args.endpoint,
        overwrite=args.overwrite,
        resume=args.resume,
    )


def needed(args: argparse.Namespace) -> Mapping[str, Sequence[str]]:
    """What must be given, or stand in Spark's configuration: nothing, where something was given."""
    return {}


def usual(args: argparse.Namespace) -> Mapping[str, str]:
    """The tables of a split, for images that are read from them."""
    return dict.fromkeys(PAIR, f"as in {args.split}") if args.split and not (args.source or args.data_table) else {}


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong."""
    if args.source is None:
        given = [name for name, unset in _OF_SOURCE.items() if getattr(args, name) not in (None, unset)]
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"Wanted a SOURCE for the options that say how to read it. Found: {names} alone.")
    shard_plan(args)


def _bytes(text: str) -> int:
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
        return int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"wanted a number of bytes, as 100000000 or 1e8. Found: {text!r}") from None
