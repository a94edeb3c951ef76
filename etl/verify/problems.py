"""Problems between two tables, and between the tables and a source, as rows.

A metadata row means that its image is complete in the data table. Rows of both tables are joined with the rows that the
source determines; `comparison` decides about each image.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.batches import arrow_schema, batch_of, rows_of
from etl.cassandra.tables import uuid_bytes
from etl.frames import joined_by_id
from etl.ingest.writing.image_rows import METADATA_COLUMNS, ImageRow
from etl.tables.metadata_table import full_path
from etl.verify.comparison import FOREIGN, MASKS, NO_METADATA, Expected, Rules, Stored, problems_of
from etl.verify.plan import Check
from etl.workers import map_batches
from schemas import Columns
from schemas.tables import LabelType

PROBLEMS = "kind STRING, id BINARY, name STRING, detail STRING, is_rewritable BOOLEAN"
"""The schema of problems. ``name`` is the path with the split folder."""

_ROW = {
    **dict.fromkeys(("label", "width", "height"), "INT"),
    **dict.fromkeys(("or_label", "or_split", "path", "source", "group_id", "format", "data_label"), "STRING"),
    **{"bytes": "BIGINT", "sha256": "BINARY", "xxhash64": "BIGINT", "labels": "ARRAY<INT>"},
}
_METADATA = {"has_metadata": "BOOLEAN", "ingest_id": "STRING", **{name: _ROW[name] for name in METADATA_COLUMNS}}
_BLOB = {"length": "BIGINT", "digest": "BINARY", "checksum": "BIGINT", "data_label": "STRING"}
_EXPECTED = {f"right_{name}": _ROW[name] for name in ImageRow._fields}
_EXPECTED |= {"rejected": "STRING", "unreadable": "STRING"}
EXPECTED = "id BINARY, " + ", ".join(f"{name} {kind}" for name, kind in _EXPECTED.items())
"""The rows that a source determines, one for each image that it lists; ``right_data_label`` is a `mark`."""
STORED = "id BINARY, " + ", ".join(f"{name} {kind}" for name, kind in {**_METADATA, **_BLOB}.items())
"""The rows of both tables, one for each image. ``has_metadata`` is null without a metadata row."""

_UNKNOWN_PAGE_ROWS = 4  # for images of unknown size
_PAGE_ROWS = 100  # the server keeps whole pages in memory; larger ones have killed nodes
_PAGE_BYTES = 16 << 20
_LARGEST_PAGE = 256 << 20


def page_rows(*, mean: float, largest: int) -> int:
    """The number of blobs per page, 1 to 100, for this mean and largest size in bytes."""
    if mean <= 0:  # no metadata rows have sizes
        return _UNKNOWN_PAGE_ROWS
    return int(max(1, min(_PAGE_ROWS, _PAGE_BYTES // max(mean, 1), _LARGEST_PAGE // max(largest, 1))))


def stored_metadata(metadata: DataFrame, /, *, columns: Columns) -> DataFrame:
    """Metadata rows as id (16 bytes) and the columns of `STORED` that are about them; null if the table lacks one."""
    names = {columns.label if name == "label" else name: name for name in _METADATA}
    known = {name: F.col(column) for column, name in names.items() if column in metadata.columns}
    known["has_metadata"] = F.lit(True)
    fields = ((known.get(name, F.lit(None)).cast(kind), name) for name, kind in _METADATA.items())
    return metadata.select(uuid_bytes(columns.id).alias("id"), *(column.alias(name) for column, name in fields))


def _text(column: str) -> Column:
    """Bytes as text, with U+FFFD for what is not UTF-8. `decode` raises on such bytes in Spark 4."""
    return F.regexp_replace(F.col(column).cast("string"), "\ufffd", "\ufffd")  # goes through the JVM's strings


def blob_digests(data: DataFrame, /, *, columns: Columns, check: Check, label_type: LabelType | None) -> DataFrame:
    """Rows of the data table as id (16 bytes) and the columns of `STORED` that are about them. Digest and checksum are
    null for a null blob or without hash checks, the label if ``label_type`` is None.
    """
    # This runs in the JVM, row by row, so that blobs are not passed on.
    blob, label = F.col(columns.data), F.lit(None).cast("string")
    digest = F.unhex(F.sha2(blob, 256)) if check == "hashes" else F.lit(None).cast("binary")
    if label_type == "int":
        label = F.col(columns.label).cast("string")
    elif label_type in MASKS:
        label = F.sha2(F.col(columns.label), 256)
    hashed = [columns.data, *([columns.label] if label_type in MASKS else [])]  # as `formats.checksums` does
    checksum = F.when(blob.isNotNull() & F.lit(check == "hashes"), F.xxhash64(*hashed))
    return data.select(
        uuid_bytes(columns.id).alias("id"),
        F.octet_length(blob).cast("long").alias("length"),
        digest.alias("digest"),
        checksum.alias("checksum"),
        label.alias("data_label"),
    )


def without_removed(blobs: DataFrame, /, *, removed: DataFrame, metadata: DataFrame) -> DataFrame:
    """Leave out what remains of removed images: rows of `blob_digests` without an image and without metadata.
    ``removed`` has the ids of removed images, and ``metadata`` rows of `stored_metadata`.
    """
    gone = removed.select("id").join(metadata.select("id"), on="id", how="left_anti")
    remains = blobs.where(F.col("length").isNull()).select("id").join(gone, on="id", how="left_semi")
    return blobs.join(remains, on="id", how="left_anti")


def compared(stored: DataFrame, /, *, expected: DataFrame | None, excused: DataFrame | None, rules: Rules) -> DataFrame:
    """Compare rows of `STORED` with those of `EXPECTED`, if there is a source: rows of `PROBLEMS`. ``excused`` has the
    ids of images that need not be in the tables. Rows with the kind `FOREIGN` are not problems.
    """
    if expected is None:
        fields = [F.lit(None).cast(kind).alias(name) for name, kind in _EXPECTED.items()]
        both = stored.select("*", F.lit(True).alias("is_there"), *fields)
        both = both.withColumns({"is_listed": F.lit(False), "is_excused": F.lit(False)})
    else:
        listed = expected.withColumn("is_listed", F.lit(True))
        if excused is not None:
            known = excused.select("id").distinct().withColumn("is_excused", F.lit(True))
            listed = listed.join(known, on="id", how="left")
        else:
            listed = listed.withColumn("is_excused", F.lit(False))
        both = stored.withColumn("is_there", F.lit(True)).join(listed, on="id", how="full")
    flags = [F.coalesce(name, F.lit(False)).alias(name) for name in ("is_there", "is_listed", "is_excused")]
    both = both.select(*flags, "id", *_METADATA, *_BLOB, *_EXPECTED)
    return map_batches(both, task=partial(_compare_batches, rules=rules), schema=PROBLEMS)


def _compare_batches(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [row for values in rows_of([batch]) for row in _compare(*values, rules=rules)]
        yield batch_of(found, arrow_schema(PROBLEMS))


def _compare(
    is_there: bool, is_listed: bool, is_excused: bool, image: bytes, *values: Any, rules: Rules
) -> Iterator[tuple[object, ...]]:
    """The rows of `PROBLEMS` of an image, from the values of `STORED` and of `EXPECTED`."""
    has_metadata, ingest_id, *of_metadata, length, digest, checksum, data_label = values[: -len(_EXPECTED)]
    *of_source, rejected, unreadable = values[-len(_EXPECTED) :]
    row, right = ImageRow._make([*of_metadata, data_label]), ImageRow._make(of_source)
    stored = Stored(bool(has_metadata), ingest_id, length, digest, checksum, row) if is_there else None
    expected = Expected(right, rejected, unreadable, is_excused) if is_listed else None
    named = row if stored is not None and stored.has_metadata else right
    name = f"{named.or_split}/{named.path}" if named.or_split and named.path else named.path
    for problem in problems_of(image, stored, expected, rules=rules):
        known = None if problem.kind == NO_METADATA else name  # the tables do not have it
        yield problem.kind, image, known, problem.detail, problem.is_rewritable


def rejected_before(entries: DataFrame, /, *, metadata: DataFrame, quarantined: DataFrame) -> DataFrame:
    """The entries without a row of `stored_metadata` that were ever in the quarantine (``path, stage, bytes``).
    ``by_server`` is whether the server rejected a file of this size; all others can be checked again.
    """
    name = full_path(_text("or_split"), _text("path"))
    refused = F.collect_set(F.when(F.col("stage") == "write", F.col("bytes")))
    names = quarantined.groupBy(_comparable("path").alias("full_name")).agg(refused.alias("refused"))
    missing = entries.where(F.col("reason").isNull()).join(metadata.select("id"), on="id", how="left_anti")
    found = missing.join(names, on=_comparable(name) == F.col("full_name"), how="inner")
    return found.withColumn("by_server", F.array_contains("refused", F.col("bytes"))).drop("full_name", "refused")


def _comparable(name: str | Column) -> Column:
    r"""A name with one form of bytes that are not UTF-8: the JVM makes them U+FFFD, the quarantine ``\xff``."""
    return F.regexp_replace(name, r"(\uFFFD|\\x[0-9a-f]{2})+", "\ufffd")


def count_problems(problems: DataFrame, /) -> DataFrame:
    """Count problems by kind: ``kind, rows``."""
    return problems.groupBy("kind").agg(F.count("*").alias("rows"))


def first_problems(problems: DataFrame, /, *, examples: int) -> DataFrame:
    """The first few of each kind by name, then by id: ``kind, rank, id, name, detail``."""
    order = Window.partitionBy("kind").orderBy(F.col("name").asc_nulls_last(), "id", "detail")
    ranked = (
        problems.where(F.col("kind") != FOREIGN)
        .withColumn("rank", F.row_number().over(order))
        .where(F.col("rank") <= examples)
    )
    return ranked.select("kind", "rank", "id", "name", "detail")


def to_rewrite(entries: DataFrame, /, *, problems: DataFrame, metadata: DataFrame, has_groups: bool) -> DataFrame:
    """The entries that correct a problem if they are written again, with the groups of their rows. ``has_groups`` says
    that the source determines the groups. Otherwise those of rows of `stored_metadata` are kept.
    """
    wanted = problems.where("is_rewritable").select("id").distinct()
    groups = metadata.where(F.col("group_id").isNotNull()).select("id", F.col("group_id").alias("known_group"))
    wanted = wanted.join(groups, on="id", how="left")
    group = F.col("group_id" if has_groups else "known_group").alias("group_id")
    chosen = joined_by_id(entries.where(F.col("reason").isNull()), wanted, how="inner")
    return chosen.select(*(group if name == "group_id" else F.col(name) for name in entries.columns))
