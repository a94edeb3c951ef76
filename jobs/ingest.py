"""Read images and write them to two tables of Cassandra: the pictures, and what is known of them.

  spark-submit jobs/ingest.py /data/imagenette --split-subdir train --split-subdir val \\
      --data-table imagenette.data --metadata-table imagenette.metadata

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_train.tar --split-name train \\
      --data-table imagenet.data --metadata-table imagenet.metadata --replication 3

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_val.tar --split-name val --labels /data/val_wnids.csv \\
      --data-table imagenet.data --metadata-table imagenet.metadata

  spark-submit jobs/ingest.py /data/ADE20K/images --masks /data/ADE20K/masks --split-subdir training \\
      --data-table ade.data --metadata-table ade.metadata

  spark-submit jobs/ingest.py /data/corel --arrays /data/corel \\
      --data-table corel.data --metadata-table corel.metadata

Every image has an id that follows from the dataset's name, the split and the path, so the same source may be
ingested twice: the same rows are written again. Images whose ids are taken by another source, or by this one with other
image options, are refused before anything is written, unless --overwrite. An ingest that was interrupted goes on with
--resume, which reads only what is not there yet.

Two tables hold one dataset, with labels of one type; an ingest that does not fit is refused before anything is written.
What they hold is recorded in the table "tables" of the metadata table's keyspace, and each run in the table "ingests".

Class numbers are kept in the table "classes" of the metadata table's keyspace: classes that are known keep theirs, new
ones follow in the order of their names. Files that are no whole JPEG, PNG, TIFF, BMP, WEBP, JPEG 2000 or PNM pictures
are not written; they are told, with their reasons, in the table "quarantine" of the same keyspace.
"""

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import get_args

from etl.ingest.ingestion import estimate, run
from etl.ingest.plan import IngestPlan
from etl.pictures.images import Check
from jobs import options
from jobs.arguments import PAIR, Needed, make_parser, parse
from jobs.command import execute
from schemas.tables import Replication

__all__ = ["estimate", "main", "parse_args", "run"]

EPILOG = (
    options.SOURCE_HELP
    + """
Defaults come from spark-defaults.conf: spark.imagestrata.source with spark.imagestrata.split-subdir (with commas), and
the pair spark.imagestrata.data-table and spark.imagestrata.metadata-table. One table of the pair alone is refused. The
first line names the tables, and where each option came from that was not typed.
Cassandra is found by spark.cassandra.connection.host, .port and .localDC, and spark.cassandra.auth.username and
.password.

exit codes:
  0  done; files may have been rejected
  1  failed: Cassandra is not there, a source that cannot be read, every image or more than --max-errors rejected,
     tables or rows that are in the way
  2  arguments that cannot be, found before anything starts
"""
)


def parse_args(argv: Sequence[str] | None = None) -> tuple[IngestPlan, argparse.Namespace]:
    """The plan, and how it is to be run (``plan``, ``json``). Exits with 2 for arguments that cannot be."""
    parser = make_parser("ingest.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(parser)
    group = parser.add_argument_group("pictures")
    options.add_picture_options(group)
    add = group.add_argument
    add("--check", choices=get_args(Check), default="header",
        help="how pictures are looked at; full decodes them (default: header)")  # fmt: skip
    add("--max-errors", metavar="N|P%", help="fail if more files are rejected (default: only if all are)")
    add("--near-duplicates", action="store_true",
        help="give all pictures of the table that look alike a common group_id")  # fmt: skip
    add = parser.add_argument_group("where to").add_argument
    add("--data-table", metavar="KEYSPACE.TABLE", help="the pictures")
    add("--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    add("--target-dir", metavar="DIR",
        help="write a tree of files instead (a folder, or s3://bucket/prefix); without options of tables")  # fmt: skip
    add("--dataset", default="", metavar="NAME", help="ids and class numbers belong to it (default: the keyspace)")
    add("--no-create", action="store_true", help="refuse to create keyspaces and tables")
    add("--replication", metavar="N", help="copies in new keyspaces: 3, or dc1:3,dc2:2 (default: 1)")
    options.add_column_options(add, metavar="NAME")
    add = parser.add_argument_group("how to run").add_argument
    add("--plan", action="store_true", help="count and estimate, write nothing")
    add("--resume", action="store_true", help="read only images that are not there yet, or have another class now")
    add("--overwrite", action="store_true", help="write over what came from another source")
    add(
        "--list-stale", action="store_true", help="name the rows of this source whose files this run did not find again"
    )
    add("--prune", action="store_true", help="remove these rows and their pictures")
    add("--prune-count", type=int, metavar="N", help="confirm the removal of N rows, needed above 1%% of this source's")
    add("--ingest-id", type=uuid.UUID, metavar="UUID", help="carry this ingest on, as --resume does")
    add("--json", action="store_true", help="print the report as JSON")
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
    if args.source is not None:
        options.source_plan(args)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    work = estimate if args.plan else run
    return execute("ingest.py", lambda spark: work(spark, plan=plan), as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
