"""Read images and write them to two Cassandra tables: one for the images, one for their metadata.

examples:
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

An image's id is computed from the dataset's name, the split and the path. If you ingest the same source again, the same
rows are written again. If an id already belongs to an image from another source, or was ingested with other image
options, the job stops before it writes anything; --overwrite allows it. --resume continues an interrupted ingest and
reads only the images that are missing.

A pair of tables holds one dataset with one type of labels. An ingest that does not fit is refused before it writes
anything. Four more tables are in the metadata table's keyspace:
  classes      the class numbers; known classes keep theirs, new classes get the next ones in the order of their names
  quarantine   files that are not whole JPEG, PNG, TIFF, BMP, WEBP, JPEG 2000 or PNM images, each with the reason;
               they are not ingested
  tables       what each pair of tables holds
  ingests      each run
"""

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from etl.ingest.plan import IngestPlan
from formats.command_line import Parser, command
from jobs import options
from jobs.arguments import PAIR, Needed, make_parser, parse
from jobs.command import execute
from jobs.metrics import MetricsOptions
from schemas.parsing import parse_ttl
from schemas.tables import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.ingest.report import IngestEstimate, IngestReport

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


def parser() -> Parser:
    """The options; their help is the manual page."""
    made = make_parser("ingest.py", manual=__doc__, epilog=EPILOG)
    options.add_source_options(made)
    group = made.add_argument_group("images")
    options.add_picture_options(group)
    add = group.add_argument
    options.add_check_options(group)
    add = made.add_argument_group("destination").add_argument
    options.add_table_options(add)
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
    add("--resume", action="store_true", help="read only images that are missing, or have another class or --ttl now")
    add("--overwrite", action="store_true", help="replace rows that came from another source")
    add("--list-stale", action="store_true", help="list rows of this source whose files no longer exist")
    add("--prune", action="store_true", help="delete these rows and their images")
    add(
        "--prune-count", type=int, metavar="N", help="confirm that N rows are deleted; required above 1%% of the source"
    )
    add("--restore-deleted", action="store_true",
        help="ingest images again that were deleted with delete.py; otherwise they are left out")  # fmt: skip
    add("--keep-replaced", action="store_true",
        help="keep the bytes of images that this run replaces with other bytes, for splits as of then, in the table "
        "DATA_NAME_history; those of pruned images go; not with --ttl")  # fmt: skip
    add("--ingest-id", type=uuid.UUID, metavar="UUID", help="continue this ingest; implies --resume")
    add("--json", action="store_true", help="print the report as JSON")
    return made


def parse_args(argv: Sequence[str] | None = None) -> tuple[IngestPlan, argparse.Namespace]:
    """The plan, and the options ``plan`` and ``json``. Exits with 2 for bad arguments."""
    return parse(parser(), argv, plan=_plan, needed=_needed, check=_check, usual=_usual)


def run(spark: "SparkSession", *, plan: IngestPlan) -> "IngestReport":
    """Read the images of a source and write them to tables, or to a folder. Raises `EtlError`, `FormatsError`."""
    from etl.ingest import ingestion

    return ingestion.run(spark, plan=plan)


def estimate(spark: "SparkSession", *, plan: IngestPlan) -> "IngestEstimate":
    """Count the images of a source and estimate sizes and time; writes nothing. Raises as `run` does."""
    from etl.ingest import ingestion

    return ingestion.estimate(spark, plan=plan)


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


@command("ingest.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    work, needs_cassandra = estimate if args.plan else run, plan.target is None
    execute(
        "ingest.py",
        work,
        plan,
        as_json=args.json,
        metrics=MetricsOptions.of(args),
        needs_cassandra=needs_cassandra,
        has_events=not args.plan,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
