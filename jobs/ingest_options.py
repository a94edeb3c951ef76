"""The command line of jobs/ingest.py: its options, and the plan that they make."""

import argparse
import uuid
from collections.abc import Mapping, Sequence

from etl.ingest.plan import IngestPlan
from formats.command_line import Parser
from jobs import options
from jobs.arguments import PAIR, Needed, make_parser, parse
from schemas.parsing import parse_ttl
from schemas.tables import Replication

EPILOG = (
    options.SOURCE_HELP
    + f"""
Options default to spark.imagestrata.NAME in spark-defaults.conf: source together with split-subdir (comma-separated),
and data-table together with metadata-table. Give both tables or neither. The first line lists the tables and the
defaults in use.

{options.CASSANDRA_HELP}
exit codes:
  0  done; files may have been rejected
  1  failed; one line says why, for example: Cassandra or the source cannot be read; all images, or more than
     --max-errors, were rejected; tables or rows conflict
  2  bad arguments; nothing was started
"""
)


def parser(manual: str | None) -> Parser:
    """The options, below a manual."""
    made = make_parser("ingest.py", manual=manual, epilog=EPILOG)
    options.add_source_options(made)
    group = made.add_argument_group("images")
    options.add_picture_options(group)
    add = group.add_argument
    options.add_check_options(group)
    add = made.add_argument_group("destination").add_argument
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of images")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table of metadata")
    add("--target-dir", metavar="DIR",
        help="write a tree of files instead, to a folder or s3://bucket/prefix; without tables")  # fmt: skip
    add("--dataset", default="", metavar="NAME", help="the dataset of ids and class numbers (default: the keyspace)")
    add("--no-create", action="store_true", help="do not create keyspaces and tables; fail if they are missing")
    add("--replication", metavar="N", help="replicas of new keyspaces: 3, or dc1:3,dc2:2 (default: 1)")
    add("--ttl", metavar="TIME", help="the images expire after this time: seconds, 30d, 12h, or none for never; needed "
        "again for each run of a source that has one")  # fmt: skip
    options.add_column_options(add)
    add = made.add_argument_group("how to run").add_argument
    add("--plan", action="store_true", help="count files and estimate time; read no contents, write nothing")
    add("--resume", action="store_true", help="read only images that are missing or have another class now")
    add("--overwrite", action="store_true", help="replace rows that came from another source")
    add("--list-stale", action="store_true", help="list rows of this source whose files no longer exist")
    add("--prune", action="store_true", help="delete these rows and their images")
    add(
        "--prune-count", type=int, metavar="N", help="confirm that N rows are deleted; required above 1%% of the source"
    )
    add("--restore-deleted", action="store_true",
        help="ingest images again that were deleted with delete.py; otherwise they are left out")  # fmt: skip
    add("--ingest-id", type=uuid.UUID, metavar="UUID", help="continue this ingest; implies --resume")
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(parser: Parser, argv: Sequence[str] | None) -> tuple[IngestPlan, argparse.Namespace]:
    """The plan of a command line, and the options ``plan`` and ``json``. Exits with 2 for bad arguments."""
    return parse(parser, argv, plan=_plan, needed=_needed, check=_check, usual=_usual)


def _plan(args: argparse.Namespace) -> IngestPlan:
    return options.plan_of(
        IngestPlan,
        args,
        **options.tables_of(args),
        source=options.source_plan(args),
        target=args.target_dir,
        columns=options.columns_of(args),
        create=not args.no_create,
        recode=options.recode(args),
        tolerance=options.tolerance(args),
        ttl=args.ttl and parse_ttl(args.ttl),
    )


def _needed(args: argparse.Namespace) -> Needed:
    return {"source": ["split_subdir"], **dict.fromkeys(() if args.target_dir else PAIR, ())}


def _usual(args: argparse.Namespace) -> Mapping[str, str]:
    if args.dataset or not args.metadata_table:
        return {}
    return {"dataset": f"{args.metadata_table.partition('.')[0]} (the metadata table's keyspace)"}


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    for make in (options.tables_of, options.columns_of, options.tolerance, options.recode):
        make(args)
    if args.replication is not None:
        Replication.parse(args.replication)
    if args.ttl is not None:
        parse_ttl(args.ttl)
    if args.source is not None:
        options.source_plan(args)
