"""The options of the ingest's command line, and the plan that they make."""

import argparse
import uuid
from collections.abc import Mapping, Sequence
from typing import get_args

from etl.ingest.plan import IngestPlan, Tolerance
from etl.pictures.images import Check
from jobs.picture_options import add_picture_options, recode
from jobs.source_options import add_source_options, source_plan
from schemas import Columns, TableName
from schemas.tables import Replication


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add SOURCE and all options."""
    add_source_options(parser)
    group = parser.add_argument_group("pictures")
    add_picture_options(group)
    group.add_argument(
        "--check",
        choices=get_args(Check),
        default="header",
        help="how pictures are looked at; full decodes them (default: header)",
    )
    group.add_argument(
        "--max-errors", metavar="N|P%", help="fail if more files are rejected (default: only if all are)"
    )
    group.add_argument(
        "--near-duplicates",
        action="store_true",
        help="give all pictures of the table that look alike a common group_id",
    )
    group = parser.add_argument_group("where to")
    group.add_argument("--data-table", metavar="KEYSPACE.TABLE", help="the pictures")
    group.add_argument("--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    group.add_argument(
        "--target-dir",
        metavar="DIR",
        help="write a tree of files instead (a folder, or s3://bucket/prefix); without options of tables",
    )
    group.add_argument(
        "--dataset", default="", metavar="NAME", help="ids and class numbers belong to it (default: the keyspace)"
    )
    group.add_argument("--no-create", action="store_true", help="refuse to create keyspaces and tables")
    group.add_argument("--replication", metavar="N", help="copies in new keyspaces: 3, or dc1:3,dc2:2 (default: 1)")
    for name, what in (("id", "the image's id"), ("label", "the label"), ("data", "the picture")):
        group.add_argument(
            f"--{name}-col", default=name, metavar="NAME", help=f"the column of {what} (default: {name})"
        )
    group = parser.add_argument_group("how to run")
    group.add_argument("--plan", action="store_true", help="count and estimate, write nothing")
    group.add_argument(
        "--resume", action="store_true", help="read only images that are not there yet, or have another class now"
    )
    group.add_argument("--overwrite", action="store_true", help="write over what came from another source")
    group.add_argument(
        "--list-stale", action="store_true", help="name the rows of this source whose files this run did not find again"
    )
    group.add_argument("--prune", action="store_true", help="remove these rows and their pictures")
    group.add_argument(
        "--prune-count", type=int, metavar="N", help="confirm the removal of N rows, needed above 1%% of this source's"
    )
    group.add_argument("--ingest-id", type=uuid.UUID, metavar="UUID", help="carry this ingest on, as --resume does")
    group.add_argument("--json", action="store_true", help="print the report as JSON")


def ingest_plan(args: argparse.Namespace) -> IngestPlan:
    """The plan that these options make. Raises ValueError for options that cannot be."""
    return IngestPlan(
        source=source_plan(args),
        data_table=TableName.parse(args.data_table) if args.data_table else None,
        metadata_table=TableName.parse(args.metadata_table) if args.metadata_table else None,
        target=args.target_dir,
        dataset=args.dataset,
        columns=Columns(id=args.id_col, label=args.label_col, data=args.data_col),
        create=not args.no_create,
        overwrite=args.overwrite,
        resume=args.resume,
        ingest_id=args.ingest_id,
        replication=args.replication,
        recode=recode(args),
        check=args.check,
        tolerance=Tolerance.parse(args.max_errors) if args.max_errors else Tolerance(),
        near_duplicates=args.near_duplicates,
        list_stale=args.list_stale,
        prune=args.prune,
        prune_count=args.prune_count,
    )


def needed(args: argparse.Namespace) -> Mapping[str, Sequence[str]]:
    """What must be given, or stand in Spark's configuration."""
    tables: dict[str, Sequence[str]] = {} if args.target_dir else {"data_table": [], "metadata_table": []}
    return {"source": ["split_subdir"], **tables}


def usual(args: argparse.Namespace) -> Mapping[str, str]:
    """The dataset, where none was named."""
    if args.dataset or not args.metadata_table:
        return {}
    return {"dataset": f"{args.metadata_table.partition('.')[0]} (the metadata table's keyspace)"}


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    for name in filter(None, (args.data_table, args.metadata_table)):
        TableName.parse(name)
    Columns(id=args.id_col, label=args.label_col, data=args.data_col)
    if args.replication is not None:
        Replication.parse(args.replication)
    if args.max_errors:
        Tolerance.parse(args.max_errors)
    recode(args)
    if args.source is not None:
        source_plan(args)
