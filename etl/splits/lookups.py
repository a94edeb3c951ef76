"""The check that the data table has the images of a metadata table: a sample of ids is looked up before publication."""

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.errors import TableError
from etl.tables.table_records import record_of
from schemas import Columns, TableName
from schemas.tables import check_column

_DRAW = 0x6C6F6F6B  # "look", so that this order differs from the others
_DRAW_BITS = 62
_OF_A_SPLIT, _IN_ALL, _LEAST = 200, 4_000, 20


def draw_ids(rows: DataFrame, /, *, sizes: Sequence[int]) -> DataFrame:
    """Sample the ids of ``split, id``, about 200 of each split; the result has the column ``id``, each id once.
    ``sizes`` has the number of rows of each split. The sample depends only on the ids.
    """
    wanted = max(_LEAST, min(_OF_A_SPLIT, _IN_ALL // max(1, len(sizes))))
    bounds = [round(min(1.0, wanted / size) * (1 << _DRAW_BITS)) if size else 0 for size in sizes]
    # By a hash of the id, so that the sample is spread over all partitions.
    draw = F.shiftrightunsigned(F.xxhash64(F.lit(_DRAW).cast("long"), F.col("id")), 2)
    bound = F.element_at(F.array(*(F.lit(bound).cast("long") for bound in bounds)), F.col("split").cast("int") + 1)
    return rows.where(draw < bound).select("id").distinct()


def check_pictures(
    control: Control, ids: Sequence[bytes], *, data: TableName, metadata: TableName, columns: Columns
) -> None:
    """Look up ids of a metadata table, 16 bytes each, in its data table, by key and without reading images. Raises
    `TableError`, with the likely cause, if an id is missing.
    """
    check_columns(control, data, columns=[columns.id, columns.data])
    missing = _missing(control, data, key=columns.id, ids=sorted(ids), value=columns.data)
    if not missing:
        return
    wanted = f"Wanted the images of {metadata} in {data}."
    found = f"{len(missing):,} of {len(ids):,} ids that were looked up are missing, such as"
    gone = set(_missing(control, metadata, key=columns.id, ids=missing))
    if listed := [one for one in missing if one not in gone]:
        if len(missing) == len(ids):
            record = record_of(control, metadata)
            known = "" if record is None else f" {metadata} was filled together with {record.data_table}."
            raise TableError(
                f"{wanted} Found: none of the {len(ids):,} ids that were looked up, such as {_name(listed[0])}. "
                f"Do {data} and {metadata} belong together?{known} Use the two tables of one ingest, not "
                "-d data_train -m metadata_val."
            )
        raise TableError(
            f"{wanted} Found: {found} {_name(listed[0])}, though {metadata} lists them. Images are lost, or part of "
            f"{metadata} belongs to another data table. Run jobs/verify.py -d {data} -m {metadata}, and repair the "
            "tables with --repair and the source of the ingest."
        )
    raise TableError(
        f"{wanted} Found: {found} {_name(missing[0])}; {metadata} no longer lists them. They were deleted after "
        "the metadata was read: run this again, and make a new metadata cache with --metadata-ofn."
    )


def _missing(
    control: Control, table: TableName, *, key: str, ids: Sequence[bytes], value: str | None = None
) -> list[bytes]:
    """The ids that have no row, or one without a value in a column, looked up by key."""
    name = check_column(key)
    wanted = f'"{name}"' if value is None else f'WRITETIME("{check_column(value)}")'
    as_key = _name if "uuid" in (control.columns(table) or {}).get(key, "") else lambda one: str(_name(one))
    answers = control.execute_all(
        f'SELECT {wanted} AS found FROM {table.quoted} WHERE "{name}" = ?', [(as_key(one),) for one in ids]
    )
    return [one for one, rows in zip(ids, answers, strict=True) if not any(row.found is not None for row in rows)]


def _name(one: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=one)
