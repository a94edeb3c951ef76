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
  spark-submit jobs/delete.py -d ks.data -m ks.metadata --forget-replaced 2026-03-01 --plan
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
from functools import partial
from typing import TYPE_CHECKING

from etl.deleting.plan import DeletePlan, ForgetPlan
from formats import command_line
from jobs import options
from jobs.arguments import make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.deleting.deletion import DeleteReport
    from etl.deleting.forgetting import ForgetReport

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
    add("--ingest", metavar="ID", help="all images that an ingest wrote, and no later one "
        "wrote again: its ingest id, or the number of its run")  # fmt: skip
    add("--where", metavar="EXPRESSION", help="images for which this Spark SQL expression over the metadata and "
        "features is true")  # fmt: skip
    add("--forget-replaced", metavar="BEFORE", help="no images, but the bytes that ingest.py --keep-replaced has kept "
        "of states that ended at or before a run: its number, an ingest id or a time; frees space")  # fmt: skip
    add = made.add_argument_group("how to run").add_argument
    add("--reason", default="", metavar="TEXT", help="why images are deleted, required for them; the history keeps "
        "it, so write no names")  # fmt: skip
    add("--plan", action="store_true", help="show what would be deleted; delete nothing")
    add("--count", type=int, metavar="N", help="confirm that N images, or copies of "
        "replaced bytes, are deleted; required above 1%% of the table")  # fmt: skip
    add("--split", dest="splits", action="append", default=[], metavar="SPLIT",
        help="a split that must not lose images, besides those that are pinned; repeatable")  # fmt: skip
    add("--force", action="store_true", help="delete images, or replaced bytes, also if such a split needs them")
    add("--cache", dest="caches", action="append", default=[], metavar="FOLDER",
        help="remove all deleted images from this metadata cache of split.py, too; repeatable")  # fmt: skip
    options.add_column_options(add)
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[DeletePlan | ForgetPlan, argparse.Namespace]:
    """The plan, and the options ``plan`` and ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, finish=_check)


def run(spark: "SparkSession", *, plan: DeletePlan) -> "DeleteReport":
    """Delete images. Raises `EtlError` if they cannot be deleted."""
    from etl.deleting import deletion

    return deletion.run(spark, plan=plan)


def estimate(spark: "SparkSession", *, plan: DeletePlan) -> "DeleteReport":
    """Find what would be deleted, and the splits that hold these images; writes nothing. Raises as `run` does."""
    from etl.deleting import deletion

    return deletion.estimate(spark, plan=plan)


def forget(spark: "SparkSession", *, plan: ForgetPlan, is_plan: bool = False) -> "ForgetReport":
    """Delete replaced bytes, or with ``is_plan`` find them. Raises `EtlError` if they cannot be deleted."""
    from etl.deleting import forgetting

    return forgetting.estimate(spark, plan=plan) if is_plan else forgetting.run(spark, plan=plan)


def _check(plan: DeletePlan | ForgetPlan) -> None:
    if isinstance(plan, DeletePlan):
        options.check_condition(plan)


def _plan(args: argparse.Namespace) -> DeletePlan | ForgetPlan:
    tables, columns = options.tables_of(args), options.columns_of(args)
    if args.forget_replaced is not None:
        ways = ("ids_file", "ids", "source", "ingest", "where", "reason", "splits", "caches")
        if given := [name for name in ways if getattr(args, name)]:
            raise ValueError(f"Wanted --forget-replaced alone, because it deletes no images. Found: {given[0]}, too.")
        return ForgetPlan(**tables, before=args.forget_replaced, count=args.count, force=args.force, columns=columns)
    return options.plan_of(DeletePlan, args, **tables, ingest=_ingest(args.ingest), columns=columns)


def _ingest(text: str | None) -> uuid.UUID | int | None:
    try:
        return None if text is None else int(text) if text.isdecimal() else uuid.UUID(text)
    except ValueError:
        raise ValueError(f"Wanted an ingest id (UUID) or the number of a run for --ingest. Found: {text!r}") from None


@command_line.command("delete.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    work = partial(forget, is_plan=args.plan) if isinstance(plan, ForgetPlan) else estimate if args.plan else run
    execute("delete.py", work, plan, as_json=args.json, metrics=MetricsOptions.of(args), has_events=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
