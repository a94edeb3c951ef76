"""The images to delete, from ids, a source, an ingest or a condition."""

import io
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.deleting.plan import DeletePlan
from etl.errors import SourceError, TableError
from etl.frames import small_table
from etl.secrets import driver_storage
from etl.splits.conditions import meeting
from etl.splits.metadata import copy_table
from etl.splits.plan import SplitPlan
from etl.tables.metadata_table import STATE, MetadataTable
from etl.tables.removal import kept_in
from schemas.tables import DELETED

_SHOWN = 5
_ONE_BY_ONE = 10_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images to delete."""

    states: DataFrame  # ``id`` (16 bytes) and the columns of `STATE`
    # The ids (16 bytes) of chosen images that were deleted before. What an interrupted run left of them is removed.
    before: DataFrame


def choose(table: MetadataTable, *, plan: DeletePlan, half: DataFrame | None) -> Chosen:
    """Find the images of a plan. ``half`` are those of `MetadataTable.half_deleted`. Raises `SourceError` for ids that
    no image has, and `TableError` for an ingest that does not exist, or a condition that cannot be evaluated.
    """
    spark, states = table.spark, table.rows(STATE)
    nothing = small_table(spark, {"id": []}, "id BINARY")
    removals = table.removals()
    deleted = pruned = nothing.withColumn("source", F.lit(None).cast("string"))
    if removals is not None:
        removed = removals.join(states.select("id"), on="id", how="left_anti")
        deleted = removed.where(F.col("kind") == DELETED).select("id", "source")
        # their labels and records are left, and the next ingest that finds their files would bring them back
        pruned = removed.where(F.col("kind") != DELETED).select("id", "source")
    if plan.ids_file is not None or plan.ids:
        ids = plan.ids if plan.ids_file is None else read_ids(spark, plan.ids_file)
        wanted = small_table(spark, {"id": sorted({one.bytes for one in ids})}, "id BINARY")
        before = deleted.join(wanted, on="id", how="left_semi").select("id")
        pruned = pruned.join(wanted, on="id", how="left_semi")
        chosen = states.join(wanted, on="id", how="left_semi").unionByName(_without_state(pruned, states))
        unknown = wanted.join(chosen.select("id"), on="id", how="left_anti").join(before, on="id", how="left_anti")
        return Chosen(chosen.unionByName(_without_metadata(table.control, unknown, states, plan=plan)), before)
    if plan.source is not None:
        is_source = F.col("source") == plan.source
        pruned = _without_state(pruned.where(is_source), states)
        return Chosen(states.where(is_source).unionByName(pruned), deleted.where(is_source).select("id"))
    if plan.ingest is not None:
        return Chosen(states.where(F.col("ingest_id") == str(_ingest_id(table, plan=plan))), nothing)
    assert plan.where is not None
    of_rows = SplitPlan(
        data_table=plan.data_table, metadata_table=plan.metadata_table, columns=plan.columns, where=plan.where
    )
    rows = copy_table(spark, None, plan=of_rows, only=None).rows
    found = meeting(rows, plan.where).select("id")
    if half is not None:  # their values may be gone already, so that no condition finds them
        found = found.union(half)
    return Chosen(states.join(found, on="id", how="left_semi"), nothing)


def _without_metadata(control: Control, unknown: DataFrame, states: DataFrame, *, plan: DeletePlan) -> DataFrame:
    """The ids of images of which only the data table, or that of replaced bytes, has something, as rows of ``states``.
    Raises `SourceError` for others.
    """
    ids = [uuid.UUID(bytes=bytes(row["id"])) for row in unknown.limit(_ONE_BY_ONE + 1).collect()]
    name, data = plan.columns.id, plan.columns.data
    query = f'SELECT WRITETIME("{data}") AS written FROM {plan.data_table.quoted} WHERE "{name}" = ?'
    answers = control.execute_all(query, [(one,) for one in ids[:_ONE_BY_ONE]])
    there = [one for one, rows in zip(ids, answers, strict=False) if any(row.written is not None for row in rows)]
    if (kept := kept_in(control, plan.data_table)) is not None:  # a repair may have removed the rest of an image
        queries = [(one,) for one in ids[:_ONE_BY_ONE]]
        answers = control.execute_all(f"SELECT id FROM {kept.quoted} WHERE id = ? LIMIT 1", queries)
        there = sorted({*there, *(one for one, rows in zip(ids, answers, strict=False) if rows)})
    if len(there) < len(ids):
        lost = sorted(set(ids) - set(there))
        count = f"{len(lost):,}" if len(ids) <= _ONE_BY_ONE else f"more than {len(lost) - 1:,}"
        raise SourceError(
            f"Wanted ids of images in {plan.metadata_table}. Found: {count} ids that no image has or had: "
            f"{', '.join(map(str, lost[:_SHOWN]))}{', ...' if len(lost) > _SHOWN else ''}. Nothing was deleted. "
            "Check the tables, or remove these ids."
        )
    return _without_state(small_table(unknown.sparkSession, {"id": [one.bytes for one in there]}, "id BINARY"), states)


def _without_state(images: DataFrame, states: DataFrame) -> DataFrame:
    """Images that have no metadata row, with ``id`` and perhaps ``source``, as rows of ``states``."""
    others = [
        (F.col("source") if field.name in images.columns else F.lit(0 if field.name == "since" else None))
        .cast(field.dataType)
        .alias(field.name)
        for field in states.schema.fields
        if field.name != "id"
    ]
    return images.select("id", *others)


def _ingest_id(table: MetadataTable, *, plan: DeletePlan) -> uuid.UUID:
    """The id of an ingest. Raises `TableError` for one that is not recorded."""
    ingests = [run for run in table.runs if run.writes_images and run.ingest_id is not None]
    for run in ingests:
        if plan.ingest in (run.ingest_id, run.sequence):
            return uuid.UUID(str(run.ingest_id))
    known = ", ".join(f"{run.sequence} ({run.ingest_id})" for run in ingests[:_SHOWN]) or "none"
    raise TableError(f"Wanted an ingest into {plan.metadata_table}. Found: {plan.ingest}. The newest are: {known}.")


def read_ids(spark: SparkSession, address: str) -> list[uuid.UUID]:
    """The ids in a text file with an id on each line, a ``.csv`` file whose first column is ``id``, or a ``.parquet``
    file with the column ``id`` (text, or 16 bytes). Raises `SourceError` if the file cannot be read, has no ids, or
    something else than ids.
    """
    folder, _, name = address.rpartition("/")
    try:
        with driver_storage(spark, folder or ("/" if address.startswith("/") else ".")).open(name) as file:
            data = file.read()
    except FileNotFoundError:
        raise SourceError(f"Wanted a file of ids at {address}. Found: nothing there.") from None
    found = []
    values = _in_parquet(data, address) if name.lower().endswith(".parquet") else _in_text(data, address)
    for place, value in values:
        try:
            found.append(uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(value))
        except (ValueError, AttributeError, TypeError):
            raise SourceError(f"Wanted an id (UUID) in {place} of {address}. Found: {str(value)[:100]!r}") from None
    if not found:
        raise SourceError(f"Wanted ids in {address}. Found: none.")
    return found


def _in_text(data: bytes, address: str) -> Iterator[tuple[str, str]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"Wanted text in {address}. Found: bytes that are not UTF-8.") from None
    for number, line in enumerate(text.splitlines(), start=1):
        value = line.partition(",")[0].strip().strip('"')
        if value and not (number == 1 and value.lower() == "id"):
            yield f"line {number}", value


def _in_parquet(data: bytes, address: str) -> Iterator[tuple[str, bytes | str]]:
    try:
        values: Sequence[bytes | str] = pq.read_table(io.BytesIO(data), columns=["id"]).column("id").to_pylist()
    except (pa.ArrowException, LookupError, OSError, UnicodeDecodeError) as error:
        raise SourceError(f"Wanted a Parquet file with the column id at {address}. Found: {error}") from None
    for number, value in enumerate(values, start=1):
        yield f"row {number}", value
