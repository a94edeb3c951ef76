"""Read a tree of images and write it to two tables of Cassandra: the pictures, and what is known of them.

A tree is DIR/SPLIT/CLASS/**/image with --split-subdir, or DIR/CLASS/**/image without. Class folders may hold folders,
and links are followed. Missing keyspaces and tables are created.

  spark-submit jobs/ingest.py /data/imagenette --split-subdir train --split-subdir val \\
      --data-table imagenette.data --metadata-table imagenette.metadata

  spark-submit jobs/ingest.py /data/flowers --data-table flowers.data --metadata-table flowers.metadata --replication 3

Every image has an id that follows from the dataset's name, the split folder and the path, so the same tree may be
ingested twice: the same rows are written again. Images whose ids are taken by another source folder are refused before
anything is written, unless --overwrite. An ingest that was interrupted goes on with the --ingest-id that it logged.

Class numbers are kept in the table "classes" of the metadata table's keyspace: classes that are known keep theirs, new
ones follow in the order of their names. Files that are no whole JPEG, PNG, TIFF, BMP, WEBP, JPEG 2000 or PNM pictures
are not written; they are told, with their reasons, in the table "quarantine" of the same keyspace.

Where DIR or a table is not given, spark.imagestrata.source, spark.imagestrata.split-subdir (with commas),
spark.imagestrata.data-table and spark.imagestrata.metadata-table are taken, as they stand in spark-defaults.conf.
Cassandra is found by spark.cassandra.connection.host, .port and .localDC, and spark.cassandra.auth.username and
.password.

exit codes:
  0  done; files may have been rejected
  1  failed: Cassandra is not there, nothing to ingest, every image rejected, tables or rows that are in the way
  2  arguments that cannot be, found before anything starts
"""

import argparse
import logging
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra import Control, password_on_executors, read_table
from etl.class_numbers import take_numbers
from etl.errors import EtlError, SourceError
from etl.image_writer import WriteOrder
from etl.ingest import (
    already_there,
    check_tables,
    create_tables,
    in_the_way,
    is_empty,
    known_images,
    refuse,
    tally,
    task_count,
    write,
)
from etl.ingest_plan import IngestPlan, new_ingest_id
from etl.ingest_report import SUM_SEEDS, IngestReport
from etl.trees import class_folders, list_files, text
from jobs.command import execute, parse
from schemas import Columns, TableName
from schemas.tables import Replication

log = logging.getLogger("imagestrata.ingest")


def parse_args(argv: Sequence[str] | None = None) -> tuple[IngestPlan, bool]:
    """The plan, and whether the report is wanted as JSON. Exits with 2 for arguments that cannot be."""
    parser = argparse.ArgumentParser(
        "ingest.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("source", metavar="DIR", nargs="?", help="the folder with the tree")
    parser.add_argument(
        "--split-subdir",
        action="append",
        metavar="SPLIT",
        help="a folder of DIR that holds class folders; may be repeated",
    )
    parser.add_argument("--data-table", metavar="KS.TABLE", help="the table for the pictures")
    parser.add_argument("--metadata-table", metavar="KS.TABLE", help="the table for what is known of them")
    parser.add_argument(
        "--dataset", default="", metavar="NAME", help="the dataset's name (default: the metadata keyspace)"
    )
    parser.add_argument("--no-create", action="store_true", help="refuse to create keyspaces and tables")
    parser.add_argument("--replication", metavar="N", help="copies in new keyspaces: 3, or dc1:3,dc2:2 (default: 1)")
    parser.add_argument("--overwrite", action="store_true", help="write over rows that came from another source")
    parser.add_argument("--ingest-id", type=uuid.UUID, metavar="UUID", help="carry an interrupted ingest on")
    for name, what in (("id", "the image's id"), ("label", "the class number"), ("data", "the picture")):
        parser.add_argument(
            f"--{name}-col", default=name, metavar="NAME", help=f"the column of {what} (default: {name})"
        )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    needed = {"source": ["split_subdir"], "data_table": [], "metadata_table": []}
    args = parse(parser, argv, needed=needed, check=check)
    try:
        plan = IngestPlan(
            source=args.source,
            splits=tuple(args.split_subdir or ()),
            data_table=TableName.parse(args.data_table),
            metadata_table=TableName.parse(args.metadata_table),
            dataset=args.dataset,
            columns=Columns(id=args.id_col, label=args.label_col, data=args.data_col),
            create=not args.no_create,
            overwrite=args.overwrite,
            ingest_id=args.ingest_id,
            replication=args.replication,
        )
    except ValueError as error:
        parser.error(str(error))
    return plan, args.json


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    for name in filter(None, (args.data_table, args.metadata_table)):
        TableName.parse(name)
    Columns(id=args.id_col, label=args.label_col, data=args.data_col)
    if args.replication is not None:
        Replication.parse(args.replication)


def run(spark: SparkSession, *, plan: IngestPlan) -> IngestReport:
    """Ingest a tree. Raises the errors of `etl`, before anything is written or if every image is rejected."""
    started = time.monotonic()
    ingest_id = plan.ingest_id or new_ingest_id()
    with Control.from_spark(spark) as control:
        folders = class_folders(plan.root, plan.split_names)
        check_tables(control, plan=plan)
        log.info("list %d class folders in %s", len(folders), plan.source)
        files = list_files(spark, folders, root=plan.root, dataset=plan.dataset).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            total = files.agg(F.count("*").alias("files"), F.sum("bytes").alias("bytes")).first()
            if total is None or not total.files:
                raise SourceError(f"Wanted images in {plan.source}. Found: class folders without any file.")
            done = _known(spark, control, files, plan=plan, ingest_id=ingest_id)
            create_tables(control, plan=plan)
            names = {text(name) for _, name in folders}
            labels = take_numbers(control, keyspace=plan.metadata_table.keyspace, dataset=plan.dataset, names=names)
            order = WriteOrder(
                cluster=replace(control.cluster, datacenter=control.datacenter),
                root=plan.root,
                source=plan.source_name,
                data_table=plan.data_table,
                metadata_table=plan.metadata_table,
                quarantine_table=plan.quarantine_table,
                columns=plan.columns,
                labels={name: labels[name] for name in names},
                ingest_id=ingest_id,
            )
            log.info("%s files (%.1f MB) are ingest %s", f"{total.files:,}", total.bytes / 1e6, ingest_id)
            tasks = task_count(rows=total.files, size=total.bytes, cores=spark.sparkContext.defaultParallelism)
            left = files if done is None else files.join(done.select("id"), on="id", how="left_anti")
            outcomes = write(left, order=order, tasks=tasks)
            if done is not None:
                outcomes = outcomes.unionByName(done)
            with password_on_executors(spark):
                rows = tally(outcomes, seeds=SUM_SEEDS).collect()
        finally:
            files.unpersist()
    seconds = time.monotonic() - started
    report = IngestReport.of(rows, plan=plan, classes=len(names), ingest_id=str(ingest_id), seconds=seconds)
    if not report.images and not report.already_there:
        raise EtlError(
            f"Wanted images in {plan.source}. Found: {report.quarantined:,} files, all rejected. "
            f"Reasons: {report.quarantine_query}"
        )
    return report


def _known(
    spark: SparkSession, control: Control, files: DataFrame, *, plan: IngestPlan, ingest_id: uuid.UUID
) -> DataFrame | None:
    """Refuse files that are in the way; what an earlier run of this ingest has written, if it carries one on."""
    if is_empty(control, plan=plan):
        return None
    fields = (plan.columns.id, plan.columns.label, "or_split", "bytes", "sha256", "source", "ingest_id")
    known = read_table(spark, plan.metadata_table, columns=fields).transform(known_images, plan=plan)
    if not plan.overwrite:
        log.info("look for images of other sources in %s", plan.metadata_table)
        refuse(files.transform(in_the_way, known=known, source=plan.source_name), plan=plan)
    if plan.ingest_id is None:
        return None
    done = known.transform(already_there, files=files, ingest_id=str(ingest_id)).persist(StorageLevel.MEMORY_AND_DISK)
    log.info(
        "%s files were written before and are left out", f"{done.count():,}"
    )  # now: later the table has this run's rows as well
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    return execute("ingest.py", lambda spark: run(spark, plan=plan), as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
