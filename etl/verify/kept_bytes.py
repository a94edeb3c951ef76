"""The bytes that ingests have kept, compared with the states of images that need them."""

import uuid

from pyspark.sql import Window
from pyspark.sql import functions as F

from etl.cassandra.tables import read_table, uuid_bytes
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import kept_in
from etl.verify.comparison import MASKS
from etl.verify.plan import Check
from formats.checksums import COLUMN as CHECKSUM
from schemas import TableName
from schemas.tables import LabelType

KEPT_MISSING, KEPT_DAMAGED = "missing replaced bytes", "damaged replaced bytes"
"""The kinds of problems of replaced bytes. Nothing can mend them: an ingest keeps what a table has."""


def kept_problems(
    table: MetadataTable, data: TableName, *, check: Check, label_type: LabelType | None, page_rows: int, examples: int
) -> dict[str, tuple[int, list[str]]]:
    """The problems of a data table's replaced bytes by kind: how many copies have it, and the first of them. Reads all
    copies with ``check`` "hashes".
    """
    if (stored := kept_in(table.control, data)) is None:
        return {}
    hashed = ["data", *(["label"] if label_type in MASKS else [])]
    columns = ["id", CHECKSUM, *(hashed if check == "hashes" else ["bytes"])]
    copies = read_table(table.spark, stored, columns=columns, page_rows=page_rows)
    is_same = F.col(CHECKSUM) == F.xxhash64(*hashed) if check == "hashes" else F.lit(True)
    found = copies.select(uuid_bytes("id").alias("id"), CHECKSUM, is_same.alias("is_same"))
    joined = table.copies().select("id", CHECKSUM).join(found, on=["id", CHECKSUM], how="left")
    kind = F.when(F.col("is_same").isNull(), KEPT_MISSING).when(~F.col("is_same"), KEPT_DAMAGED)
    of_kind = Window.partitionBy("kind")
    place = F.row_number().over(of_kind.orderBy("id", CHECKSUM)).alias("place")
    problems = joined.select("id", CHECKSUM, kind.alias("kind")).where("kind IS NOT NULL")
    problems = problems.select("*", F.count("*").over(of_kind).alias("count"), place).where(F.col("place") <= examples)
    problems_of: dict[str, tuple[int, list[str]]] = {}
    for row in sorted(problems.collect(), key=lambda row: (row["kind"] == KEPT_DAMAGED, row["place"])):
        _, lines = problems_of.setdefault(row["kind"], (row["count"], []))
        lines.append(f"{uuid.UUID(bytes=bytes(row['id']))}, checksum {row[CHECKSUM]}")
    return problems_of
