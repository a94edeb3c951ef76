"""The check of a target folder before an ingest, and the list of rejected files after it."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import OutputExistsError
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.folder_rows import REJECTED, files_there, folder_target
from etl.ingest.writing.outcomes import THERE, WRITTEN
from etl.secrets import driver_storage
from formats.spreadsheets import csv_text


def files_done(spark: SparkSession, entries: DataFrame, *, plan: IngestPlan) -> DataFrame | None:
    """Find files in the target folder, which are refused, or skipped with --resume."""
    storage = driver_storage(spark, str(plan.target))
    if not storage.is_folder() or not storage.names():
        return None
    if not plan.overwrite and not plan.resume:
        raise OutputExistsError(
            f"Wanted an empty or missing folder at {plan.target}. Found: files. Set --resume to continue, "
            "or --overwrite to replace them."
        )
    return entries.transform(files_there, target=folder_target(plan)) if plan.resume else None


def publish_rejected(spark: SparkSession, outcomes: DataFrame, *, plan: IngestPlan) -> None:
    """Write the list of rejected files into the target folder. Removes an older list."""
    storage = driver_storage(spark, str(plan.target))
    rejected = outcomes.where(~F.col("stage").isin(WRITTEN, THERE)).select(
        "or_split", "path", "stage", "reason", "bytes"
    )
    rows = list(rejected.orderBy("or_split", "path").toLocalIterator())
    storage.remove(REJECTED)
    if rows:
        storage.publish_text(REJECTED, csv_text(rejected.columns, rows))
