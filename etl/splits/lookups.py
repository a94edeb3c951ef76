"""Whether the data table has the pictures of a metadata table: a sample of ids is looked up before publication."""

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.cassandra.table_records import record_of
from etl.errors import TableError
from schemas import Columns, TableName
from schemas.tables import check_column

_DRAW = 0x6C6F6F6B  # "look", so that this order is none of the others
_DRAW_BITS = 62
_OF_A_SPLIT, _IN_ALL, _LEAST = 200, 4_000, 20


def draw_ids(rows: DataFrame, /, *, sizes: Sequence[int]) -> DataFrame:
    """A sample of the ids of ``split, id``, about 200 of each split, one column: ``id``, each once.

    ``sizes`` are the rows by split. The sample follows from the ids alone. Hashes of ids spread it over all partitions.
    """
    wanted = max(_LEAST, min(_OF_A_SPLIT, _IN_ALL // max(1, len(sizes))))
    bounds = [round(min(1.0, wanted / size) * (1 << _DRAW_BITS)) if size else 0 for size in sizes]
    draw = F.shiftrightunsigned(F.xxhash64(F.lit(_DRAW).cast("long"), F.col("id")), 2)
    bound = F.element_at(F.array(*(F.lit(bound).cast("long") for bound in bounds)), F.col("split").cast("int") + 1)
    return rows.where(draw < bound).select("id").distinct()


def check_pictures(
    control: Control, ids: Sequence[bytes], *, data: TableName, metadata: TableName, columns: Columns
) -> None:
    """Look ids of a metadata table up in its data table, by key and without reading a picture.

    Args:
        control: A connected session.
        ids: 16 bytes each.
        data: The table that must have them.
        metadata: The table that they come from.
        columns: The names of the columns of both.

    Raises:
        TableError: If one of the ids is not there; the message names the likely cause.
        UnreachableError: If Cassandra does not answer.
    """
    check_columns(control, data, columns=[columns.id, columns.data])
    missing = _missing(control, data, key=columns.id, ids=sorted(ids))
    if not missing:
        return
    wanted = f"Wanted the pictures of {metadata} in {data}."
    found = f"{len(missing):,} of {len(ids):,} ids that were looked up are not there, such as"
    gone = set(_missing(control, metadata, key=columns.id, ids=missing))
    if listed := [one for one in missing if one not in gone]:
        if len(missing) == len(ids):
            record = record_of(control, metadata)
            known = "" if record is None else f" {metadata} was filled together with {record.data_table}."
            raise TableError(
                f"{wanted} Found: none of the {len(ids):,} ids that were looked up, such as {_name(listed[0])}. "
                f"Do {data} and {metadata} belong together?{known} Name the two tables of one ingest, not as in "
                "-d data_train -m metadata_val."
            )
        raise TableError(
            f"{wanted} Found: {found} {_name(listed[0])}, though {metadata} lists them. Pictures are lost, or part of "
            f"{metadata} belongs to another data table. Run jobs/verify.py -d {data} -m {metadata}, and mend the "
            "tables with --repair and the source of the ingest."
        )
    raise TableError(
        f"{wanted} Found: {found} {_name(missing[0])}; {metadata} does not list them any more. They were deleted after "
        "the metadata were read: run this again, and make a metadata cache anew with --metadata-ofn."
    )


def _missing(control: Control, table: TableName, *, key: str, ids: Sequence[bytes]) -> list[bytes]:
    """The ids that have no row, looked up by key."""
    name = check_column(key)
    as_key = _name if "uuid" in (control.columns(table) or {}).get(key, "") else lambda one: str(_name(one))
    answers = control.execute_all(
        f'SELECT "{name}" FROM {table.quoted} WHERE "{name}" = ?', [(as_key(one),) for one in ids]
    )
    return [one for one, rows in zip(ids, answers, strict=True) if not rows]


def _name(one: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=one)
