"""Check that the tables hold what they say, and that they hold what a source has; mend what can be mended.

  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata --check sizes
  spark-submit jobs/verify.py -d imagenette.data -m imagenette.metadata /data/imagenette --split-subdir train --repair

Without SOURCE only the tables are read:
  missing blob             a metadata row without its picture
  blob without metadata    a picture without its metadata row: it was never committed
  wrong size, wrong hash   a picture of another length, or of another SHA-256, than its metadata row says
With SOURCE, told as it was to jobs/ingest.py (labels, masks and image options too), these also:
  missing image            a file of the source without a metadata row; files in the quarantine are not missed
  changed in the source    a file of another size than its metadata row says (only of pictures stored as they are)
  no longer in the source  a row that came from this source, of a file that it does not list

The pictures are read in small pages, and only their lengths and hashes are kept.

--repair, with SOURCE: what is missing, wrong or changed is written again from its file. Rows of files that are no
longer in the source, and of other sources, stay as they are.
--repair, without SOURCE: metadata rows whose picture is missing are deleted (the picture is lost; the row lies), and so
are pictures without a metadata row. Of a wrong size or hash nothing can be known: name the source.
What was written or deleted is read back: exit code 1 if it is as before, because a later write time lies in the tables.
Never repair while an ingest writes to the tables: what it has just written looks like half of an image.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns, read_table
from etl.cassandra.table_records import check_pair
from etl.errors import SourceError
from etl.frames import kept, pictures_in_rows, plain_inside
from etl.ingest.destination import check_fits_early, check_tables, create_records
from etl.ingest.plan import IngestPlan
from etl.ingest.verbs import Survey, count_entries
from etl.secrets import secrets_on_executors
from etl.sources.entries import Listing
from etl.sources.listing import list_source
from etl.verify.repair import Repaired, delete_halves, rewrite, still_rejected
from etl.verify.report import EXAMPLES, VerifyReport, describe
from etl.verify.verification import (
    KINDS,
    VerifyPlan,
    blob_facts,
    count_problems,
    facts,
    first_problems,
    page_rows,
    rejected_before,
    source_problems,
    table_problems,
)
from jobs.command import execute, parse
from jobs.picture_options import add_picture_options, recode
from jobs.source_options import SOURCE_HELP, add_source_options, source_plan
from schemas import Columns, TableName

EPILOG = (
    SOURCE_HELP
    + """
Without tables, spark.imagestrata.data-table and spark.imagestrata.metadata-table are taken from spark-defaults.conf;
one table of the pair alone is refused. A source is always typed here. Cassandra is found by spark.cassandra.*.

exit codes:
  0  nothing is wrong, or all that was wrong has been mended
  1  something is wrong, told on the line after the report; or the tables or the source cannot be read
  2  arguments that cannot be, found before anything starts
"""
)

log = logging.getLogger("imagestrata.verify")


def parse_args(argv: Sequence[str] | None = None) -> tuple[VerifyPlan, bool]:
    """The plan, and whether the report is wanted as JSON. Exits with 2 for arguments that cannot be."""
    parser = argparse.ArgumentParser(
        "verify.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_source_options(parser)
    add_picture_options(parser.add_argument_group("pictures, as they were given to ingest.py"))
    add = parser.add_argument_group("what to check").add_argument
    add("-d", "--data-table", metavar="KEYSPACE.TABLE", help="the pictures")
    add("-m", "--metadata-table", metavar="KEYSPACE.TABLE", help="what is known of them")
    add("--dataset", default="", metavar="NAME", help="as it was given to ingest.py (default: the keyspace)")
    for name, what in (("id", "the image's id"), ("label", "the label"), ("data", "the picture")):
        add(f"--{name}-col", default=name, metavar="NAME", help=f"the column of {what} (default: {name})")
    add(
        "--check", choices=("sizes", "hashes"), default="hashes", help="what of a picture is compared (default: hashes)"
    )
    add("--repair", action="store_true", help="mend what can be mended: see above; not while an ingest runs")
    add("--json", action="store_true", help="print the report as JSON")
    args = parse(parser, argv, needed=lambda args: {"data_table": (), "metadata_table": ()}, check=check)
    try:
        data, metadata = TableName.parse(args.data_table), TableName.parse(args.metadata_table)
        columns = Columns(id=args.id_col, label=args.label_col, data=args.data_col)
        ingest = None
        if args.source is not None:
            ingest = IngestPlan(
                source=source_plan(args),
                data_table=data,
                metadata_table=metadata,
                dataset=args.dataset,
                columns=columns,
                create=False,
                overwrite=True,
                recode=recode(args),
            )
        plan = VerifyPlan(
            data_table=data,
            metadata_table=metadata,
            columns=columns,
            check=args.check,
            repair=args.repair,
            ingest=ingest,
        )
    except ValueError as error:
        parser.error(str(error))
    return plan, args.json


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are wrong whatever Spark's configuration says."""
    for name in filter(None, (args.data_table, args.metadata_table)):
        TableName.parse(name)
    Columns(id=args.id_col, label=args.label_col, data=args.data_col)
    recode(args)
    if args.source is not None:
        source_plan(args)
    elif args.root or args.split_subdir or args.split_name or args.labels or args.masks or args.arrays or args.layout:
        raise ValueError("Wanted a SOURCE for the options that say how to read it. Found: none.")


class _Source(NamedTuple):
    """A source that has been listed."""

    plan: IngestPlan
    listing: Listing
    entries: DataFrame
    survey: Survey


def run(spark: SparkSession, *, plan: VerifyPlan) -> VerifyReport:
    """Compare, and repair if the plan says so. Raises the errors of `etl` if something cannot be read."""
    started = time.monotonic()
    with ExitStack() as stack:
        control = stack.enter_context(Control.from_spark(spark))
        stack.enter_context(plain_inside(spark))
        metadata = kept(_metadata(spark, control, plan=plan), stack=stack)
        source = None if plan.ingest is None else _list(spark, control, plan=plan, ingest=plan.ingest, stack=stack)
        sums = metadata.agg(F.count("*").alias("rows"), F.avg("bytes").alias("mean"), F.max("bytes").alias("largest"))
        images = sums.collect()[0]
        rows = page_rows(mean=images["mean"] or 0, largest=images.largest or 0)
        log.info("read the pictures of %s, %d a page", plan.data_table, rows)
        data = read_table(spark, plan.data_table, columns=(plan.columns.id, plan.columns.data), page_rows=rows)
        blobs = kept(data.transform(blob_facts, columns=plan.columns, check=plan.check), stack=stack)
        read = blobs.agg(F.count("*").alias("rows"), F.sum("length").alias("bytes")).collect()[0]
        problems = metadata.transform(table_problems, blobs=blobs)
        if source is not None:
            problems = problems.union(_compare(spark, control, metadata, source=source, plan=plan, stack=stack))
        problems = kept(problems, stack=stack)
        counts = {row["kind"]: row["rows"] for row in problems.transform(count_problems).collect()}
        counts = {kind: counts[kind] for kind in KINDS if kind in counts}
        examples = describe(problems.transform(first_problems, examples=EXAMPLES).collect()) if counts else {}
        repaired = Repaired({})
        if plan.repair and counts:
            log.info("mend %s problems", f"{sum(counts.values()):,}")
            if source is None:
                repaired = delete_halves(control, problems, plan=plan)
            else:
                repaired = rewrite(control, problems, metadata=metadata, **source._asdict())
    return VerifyReport(
        data_table=str(plan.data_table),
        metadata_table=str(plan.metadata_table),
        source=None if plan.ingest is None else plan.ingest.source_name,
        check=plan.check,
        images=images["rows"],
        blobs=read["rows"],
        bytes=read["bytes"] or 0,
        files=None if source is None else source.survey.files,
        problems=counts,
        examples=examples,
        mended=repaired.mended,
        left=sum(counts.values()) - sum(repaired.mended.values()),
        unchanged=repaired.unchanged,
        sequence=None if repaired.run is None else repaired.run.sequence,
        seconds=round(time.monotonic() - started, 3),
    )


def _metadata(spark: SparkSession, control: Control, *, plan: VerifyPlan) -> DataFrame:
    """The rows of `facts`; of tables that others made, as far as they have such columns."""
    needed = [plan.columns.id, "bytes", *(["sha256"] if plan.check == "hashes" else [])]
    check_columns(control, plan.metadata_table, columns=needed)
    check_columns(control, plan.data_table, columns=[plan.columns.id, plan.columns.data])
    check_pair(control, data_table=plan.data_table, metadata_table=plan.metadata_table)
    found = control.columns(plan.metadata_table) or {}
    more = [name for name in ("or_split", "path", "source", "group_id") if name in found]
    return read_table(spark, plan.metadata_table, columns=[*needed, *more]).transform(facts, columns=plan.columns)


def _list(spark: SparkSession, control: Control, *, plan: VerifyPlan, ingest: IngestPlan, stack: ExitStack) -> _Source:
    if plan.repair:
        create_records(control, tables=ingest.tables)
        check_tables(control, plan=ingest)
        check_fits_early(control, plan=ingest)
    stack.enter_context(secrets_on_executors(spark))
    log.info("list %s", ingest.source.name)
    found = list_source(spark, ingest.source, dataset=ingest.dataset, keep=partial(kept, stack=stack))
    listing = found.listing
    if listing.has_data:
        stack.enter_context(pictures_in_rows(spark))
    entries = kept(listing.names, stack=stack)
    survey = Survey.of(entries.transform(count_entries).collect(), classes=listing.classes)
    if not survey.files:
        raise SourceError(f"Wanted images in {ingest.source.address}. Found: no file at all.")
    found.check(entries)
    return _Source(ingest, listing, entries, survey)


def _compare(
    spark: SparkSession, control: Control, metadata: DataFrame, *, source: _Source, plan: VerifyPlan, stack: ExitStack
) -> DataFrame:
    rejected = source.entries.where(F.lit(False))
    if control.columns(plan.quarantine) is not None:
        told = read_table(spark, plan.quarantine, columns=["path", "stage", "bytes"])
        before = kept(source.entries.transform(rejected_before, metadata=metadata, told=told), stack=stack)
        if count := before.count():
            log.info("look again at %s files that were rejected", f"{count:,}")
            rejected = kept(before.transform(still_rejected, plan=source.plan, listing=source.listing), stack=stack)
    kept_as_they_are = not source.plan.recode.changes and not source.listing.has_data
    names = [split for split in (source.plan.source.splits or (source.plan.source.or_split,)) if split]
    return metadata.transform(
        source_problems,
        entries=source.entries,
        rejected=rejected,
        source=source.plan.source_name,
        splits=names,
        sizes=kept_as_they_are,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, as_json = parse_args(argv)
    reports: list[VerifyReport] = []

    def verify(spark: SparkSession) -> VerifyReport:
        reports.append(run(spark, plan=plan))
        return reports[-1]

    code = execute("verify.py", verify, as_json=as_json)
    if code == 0 and reports[0].left:
        hint = "" if plan.repair else " Say --repair to mend what can be mended."
        print(
            f"verify.py: Wanted {plan.metadata_table} and {plan.data_table} to hold what they say. "
            f"Found: {reports[0].told()}.{hint}",
            file=sys.stderr,
            flush=True,
        )
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
