"""A target folder before and after an ingest: the image options of its files, and the list of rejected files."""

import json
from itertools import chain

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import OutputExistsError
from etl.frames import in_order
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.folder_rows import REJECTED, files_there, folder_target
from etl.ingest.writing.outcomes import THERE, WRITTEN
from etl.secrets import driver_storage
from etl.spreadsheets import csv_pieces
from formats.image_names import OPTIONS_RECORD
from formats.stores.storage import Storage

FORMAT = 1


def files_done(entries: DataFrame, *, plan: IngestPlan) -> DataFrame | None:
    """Find files in the target folder, which are refused, or skipped with --resume."""
    storage = driver_storage(entries.sparkSession, str(plan.target))
    if not storage.is_folder() or not storage.names():
        return None
    if not plan.overwrite and not plan.resume:
        raise OutputExistsError(
            f"Wanted an empty or missing folder at {plan.target}. Found: files. Set --resume to continue, "
            "or --overwrite to replace them."
        )
    if not plan.resume or (plan.overwrite and _options(storage) != [str(plan.recode)]):
        return None
    _check_options(_options(storage), plan=plan)
    return entries.transform(files_there, target=folder_target(plan))


def _check_options(found: list[str], *, plan: IngestPlan) -> None:
    """Raise `OutputExistsError` if the files of a folder have other image options than this ingest."""
    if found == [str(plan.recode)]:
        return
    shown = " or ".join(_shown(options) for options in found)
    raise OutputExistsError(
        f"Wanted --resume with the image options of the files in {plan.target}, which are {shown}. Found: "
        f"{_shown(str(plan.recode))}. Set the same options, --overwrite to write all images again, or another folder."
    )


def _shown(options: str) -> str:
    return " ".join(f"--{option.replace('=', ' ')}" for option in options.split("&")) if options else "none"


def record_options(spark: SparkSession, *, plan: IngestPlan, is_done: bool) -> None:
    """Record the image options of the files in the target folder: of both kinds while files are replaced."""
    storage = driver_storage(spark, str(plan.target))
    before = _options(storage) if storage.is_folder() and storage.names() else []
    options = [str(plan.recode)] if is_done else [*dict.fromkeys([*before, str(plan.recode)])]
    if options == before:
        return
    if options == [""]:  # a folder whose files have no options has no record
        storage.remove(OPTIONS_RECORD)
    else:
        storage.publish_text(OPTIONS_RECORD, json.dumps({"format": FORMAT, "options": options}) + "\n")


def _options(storage: Storage) -> list[str]:
    """The image options of the files in a folder; several if an ingest that replaces files was interrupted."""
    if not storage.exists(OPTIONS_RECORD):
        return [""]
    try:
        options: list[str] = json.loads(storage.read_text(OPTIONS_RECORD))["options"]
    except (ValueError, KeyError, TypeError):
        return ["unknown"]
    return options


def publish_rejected(outcomes: DataFrame, *, plan: IngestPlan) -> None:
    """Write the list of rejected files into the target folder, a part at a time. Replaces or removes an older list."""
    storage = driver_storage(outcomes.sparkSession, str(plan.target))
    rejected = outcomes.where(~F.col("stage").isin(WRITTEN, THERE)).select(
        "or_split", "path", "stage", "reason", "bytes"
    )
    rows = in_order(rejected, "or_split", "path")
    first = next(rows, None)
    if first is None:
        storage.remove(REJECTED)
        return
    with storage.create(REJECTED) as write:
        for piece in csv_pieces(rejected.columns, chain([first], rows)):
            write(piece.encode())
