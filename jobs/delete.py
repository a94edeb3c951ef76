"""Delete images from the tables: "remove this person's pictures".

Removes the images, the bytes that earlier runs replaced, their metadata, their feature values and labels in all
versions, and their rows in the table quarantine. A record of each image stays in the table METADATA_NAME_history: id,
label, class, SHA-256, source, the reason and the time, but no path. Splits keep the ids, and hashes of the names of
groups. Training with on_missing="skip" leaves deleted images out, and all ranks keep the same number of batches. An
ingest of the same files leaves them out, too; see ingest.py --restore-deleted.

examples:
  spark-submit jobs/delete.py -d ks.data -m ks.metadata --where "path LIKE 'anna/%'" --reason "request 17" --plan
  spark-submit jobs/delete.py -d ks.data -m ks.metadata --source /data/b --reason "no licence" --count 12
  spark-submit jobs/delete.py -d ks.data -m ks.metadata --ids ids.txt --reason "request 17" --split splits/first
  spark-submit jobs/delete.py -d ks.data -m ks.metadata --ingest 3 --reason "wrong folder" --cache build/metadata

Show first what would be deleted, with --plan. You must confirm the number of images with --count if it exceeds 1 % of
the table. Images in a split that is pinned in the registry, or named with --split, are not deleted without --force.

Shards, dataset versions and other files keep copies; the report lists them, with what to do. If the job is interrupted,
run it again.
"""

import argparse
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.deleting.plan import DeletePlan
from formats import command_line
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.deleting.deletion import DeleteReport

EPILOG = f"""
{options.CASSANDRA_HELP}
exit codes:
  0  done
  1  failed; one line says why
  2  bad arguments; nothing was read
"""


def parser() -> command_line.Parser:
    """The options; their help is the manual page."""
    made = make_parser("delete.py", manual=__doc__, epilog=EPILOG)
    add = made.add_argument
    options.add_table_options(add)
    add = made.add_argument_group("which images: one of these").add_argument
    add("--ids", dest="ids_file", metavar="FILE",
        help="the ids in a file: .txt or .csv with one on each line, or .parquet with a column id")  # fmt: skip
    add("--id", dest="ids", type=uuid.UUID, action="append", default=[], metavar="UUID", help="this id; repeatable")
    add("--source", metavar="NAME", help="all images of a source, as the metadata names it")
    add("--ingest", metavar="ID", help="all images that an ingest wrote: its ingest id, or the number of its run")
    add("--where", metavar="EXPRESSION", help="images for which this Spark SQL expression over the metadata and "
        "features is true")  # fmt: skip
    add = made.add_argument_group("how to run").add_argument
    add("--reason", required=True, metavar="TEXT", help="why they are deleted; the history keeps it, so write no names")
    add("--plan", action="store_true", help="show what would be deleted; delete nothing")
    add("--count", type=int, metavar="N", help="confirm that N images are deleted; required above 1%% of the table")
    add("--split", dest="splits", action="append", default=[], metavar="SPLIT",
        help="a split that must not lose images, besides those that are pinned; repeatable")  # fmt: skip
    add("--force", action="store_true", help="delete images also if such a split has them")
    add("--cache", dest="caches", action="append", default=[], metavar="FOLDER",
        help="remove all deleted images from this metadata cache of split.py, too; repeatable")  # fmt: skip
    options.add_column_options(add)
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[DeletePlan, argparse.Namespace]:
    """The plan, and the options ``plan`` and ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, finish=options.check_condition)


def run(spark: "SparkSession", *, plan: DeletePlan) -> "DeleteReport":
    """Delete images. Raises `EtlError` if they cannot be deleted."""
    from etl.deleting import deletion

    return deletion.run(spark, plan=plan)


def estimate(spark: "SparkSession", *, plan: DeletePlan) -> "DeleteReport":
    """Find what would be deleted, and the splits that hold these images; writes nothing. Raises as `run` does."""
    from etl.deleting import deletion

    return deletion.estimate(spark, plan=plan)


def _plan(args: argparse.Namespace) -> DeletePlan:
    return options.plan_of(
        DeletePlan, args, **options.tables_of(args), ingest=_ingest(args.ingest), columns=options.columns_of(args)
    )


def _ingest(text: str | None) -> uuid.UUID | int | None:
    try:
        return None if text is None else int(text) if text.isdecimal() else uuid.UUID(text)
    except ValueError:
        raise ValueError(f"Wanted an ingest id (UUID) or the number of a run for --ingest. Found: {text!r}") from None


@command_line.command("delete.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    execute("delete.py", estimate if args.plan else run, plan, as_json=args.json, has_events=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
