"""Problems between two tables, and between the tables and a source, as rows.

A metadata row means that its image is complete in the data table. Each violation is a problem of one kind with one id;
an id may have several problems.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.cassandra.tables import uuid_bytes
from etl.verify.plan import Check
from schemas import Columns

MISSING_BLOB = "missing blob"
NO_METADATA = "blob without metadata"
WRONG_SIZE = "wrong size"
WRONG_HASH = "wrong hash"
MISSING_IMAGE = "missing image"
GONE = "no longer in the source"
CHANGED = "changed in the source"
KINDS = (MISSING_BLOB, NO_METADATA, WRONG_SIZE, WRONG_HASH, MISSING_IMAGE, CHANGED, GONE)
REWRITABLE = (MISSING_BLOB, NO_METADATA, WRONG_SIZE, WRONG_HASH, MISSING_IMAGE, CHANGED)
"""The kinds of problems that are fixed by writing the image again from its source."""

PROBLEMS = "kind STRING, id BINARY, name STRING, source STRING, detail STRING"
"""The schema of problems. ``name`` is the path with the split folder, and ``source`` its source, if known."""

SAMPLE_METADATA = ("name", "or_split", "bytes", "sha256", "source", "group_id")

_UNKNOWN_PAGE_ROWS = 4  # for images of unknown size
_PAGE_ROWS = 100  # the server keeps whole pages in memory; larger ones have killed nodes
_PAGE_BYTES = 16 << 20
_LARGEST_PAGE = 256 << 20


def page_rows(*, mean: float, largest: int) -> int:
    """The number of blobs per page, 1 to 100, for this mean and largest size in bytes."""
    if mean <= 0:  # no metadata rows have sizes
        return _UNKNOWN_PAGE_ROWS
    return int(max(1, min(_PAGE_ROWS, _PAGE_BYTES // max(mean, 1), _LARGEST_PAGE // max(largest, 1))))


def sample_metadata(metadata: DataFrame, /, *, columns: Columns) -> DataFrame:
    """Metadata rows as id (16 bytes) and `SAMPLE_METADATA`, null if the table has no such column."""
    has = set(metadata.columns)
    known = {name: F.col(name) if name in has else F.lit(None).cast("string") for name in (*SAMPLE_METADATA, "path")}
    known["bytes"] = known["bytes"].cast("long")
    known["sha256"] = known["sha256"].cast("binary")
    known["name"] = full_name(known["or_split"], known["path"])
    return metadata.select(uuid_bytes(columns.id).alias("id"), *(known[name].alias(name) for name in SAMPLE_METADATA))


def full_name(or_split: Column, path: Column) -> Column:
    """A path with its split folder, as in the quarantine table."""
    return F.when(F.coalesce(or_split, F.lit("")) == "", path).otherwise(F.concat_ws("/", or_split, path))


def _text(column: str) -> Column:
    """Bytes as text, with U+FFFD for what is not UTF-8. `decode` raises on such bytes in Spark 4."""
    return F.regexp_replace(F.col(column).cast("string"), "\ufffd", "\ufffd")  # goes through the JVM's strings


def blob_digests(data: DataFrame, /, *, columns: Columns, check: Check) -> DataFrame:
    """Rows of the data table as id (16 bytes), ``length`` and ``digest`` (null for a null blob or without hash checks).

    This runs in the JVM, row by row, so blobs are not passed on.
    """
    blob = F.col(columns.data)
    digest = F.unhex(F.sha2(blob, 256)) if check == "hashes" else F.lit(None).cast("binary")
    return data.select(
        uuid_bytes(columns.id).alias("id"), F.octet_length(blob).cast("long").alias("length"), digest.alias("digest")
    )


def without_removed(blobs: DataFrame, /, *, removed: DataFrame, metadata: DataFrame) -> DataFrame:
    """Leave out what remains of removed images: rows of `blob_digests` without an image and without metadata.

    ``removed`` has the ids of removed images, and ``metadata`` rows of `sample_metadata`.
    """
    gone = removed.select("id").join(metadata.select("id"), on="id", how="left_anti")
    remains = blobs.where(F.col("length").isNull()).select("id").join(gone, on="id", how="left_semi")
    return blobs.join(remains, on="id", how="left_anti")


def table_problems(metadata: DataFrame, /, *, blobs: DataFrame) -> DataFrame:
    """Find the problems between rows of `sample_metadata` and of `blob_digests`: rows of `PROBLEMS`, one per id.

    Sizes and hashes that a metadata row lacks are not compared.
    """
    known = metadata.withColumn("is_known", F.lit(True))
    both = known.join(blobs, on="id", how="full")
    kind = (
        F.when(F.col("is_known").isNull(), NO_METADATA)
        .when(F.col("length").isNull(), MISSING_BLOB)
        .when(F.col("length") != F.col("bytes"), WRONG_SIZE)
        .when(F.col("digest") != F.col("sha256"), WRONG_HASH)
    )
    sizes = F.concat(F.col("length"), F.lit(" bytes instead of "), F.col("bytes"))
    return both.withColumn("kind", kind).where(F.col("kind").isNotNull()).select(
        "kind", "id", "name", "source", F.when(F.col("kind") == WRONG_SIZE, sizes).alias("detail")
    )  # fmt: skip


def source_problems(
    metadata: DataFrame,
    /,
    *,
    entries: DataFrame,
    rejected: DataFrame,
    source: str,
    splits: Sequence[str],
    sizes: bool,
) -> DataFrame:
    """Find the problems between rows of `sample_metadata` and the listing of a source (`ENTRIES`): rows of `PROBLEMS`.

    Entries with a reason, and entries whose ids are in ``rejected``, do not count as missing. Rows of this ``source``
    count as no longer in the source if it does not list their ids; with ``splits``, only rows of these splits are
    checked. ``sizes`` also compares sizes, which makes sense if images are stored unchanged.
    """
    listed = entries.select(
        "id",
        full_name(_text("or_split"), _text("path")).alias("name"),
        F.col("bytes").alias("size"),
        "reason",
    )
    readable = listed.where(F.col("reason").isNull())
    missing = readable.join(metadata.select("id"), on="id", how="left_anti")
    missing = missing.join(rejected.select("id"), on="id", how="left_anti")
    own = metadata.where(F.col("source") == source)
    looked_at = own.where(F.col("or_split").isin(list(splits))) if splits else own
    gone = looked_at.join(listed.select("id"), on="id", how="left_anti")
    text = F.lit(None).cast("string")
    found = missing.select(F.lit(MISSING_IMAGE).alias("kind"), "id", "name", F.lit(source).alias("source"),
                           text.alias("detail"))  # fmt: skip
    found = found.union(gone.select(F.lit(GONE), "id", "name", "source", text))
    if not sizes:
        return found
    compared = own.join(readable.select("id", "size"), on="id", how="inner").where(F.col("size") != F.col("bytes"))
    detail = F.concat(F.col("size"), F.lit(" bytes in the source instead of "), F.col("bytes"))
    return found.union(compared.select(F.lit(CHANGED), "id", "name", "source", detail))


def rejected_before(entries: DataFrame, /, *, metadata: DataFrame, quarantined: DataFrame) -> DataFrame:
    """The entries without a row of `sample_metadata` that were ever in the quarantine (``path, stage, bytes``).

    ``by_server`` is whether the server rejected a file of this size; all others can be checked again.
    """
    name = full_name(_text("or_split"), _text("path"))
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
    order = Window.partitionBy("kind").orderBy(F.col("name").asc_nulls_last(), "id")
    ranked = problems.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= examples)
    return ranked.select("kind", "rank", "id", "name", "detail")


def to_rewrite(entries: DataFrame, /, *, problems: DataFrame, metadata: DataFrame, source: str) -> DataFrame:
    """The entries that fix a problem if they are written again, with the groups of their rows.

    Rows of another source are excluded, because their images are different.
    """
    others = metadata.where(~F.col("source").eqNullSafe(source)).select("id")
    wrong = problems.where(F.col("kind").isin(list(REWRITABLE))).select("id").distinct()
    groups = metadata.where(F.col("group_id").isNotNull()).select("id", F.col("group_id").alias("known_group"))
    wanted = wrong.join(others, on="id", how="left_anti").join(groups, on="id", how="left")
    if "data" in entries.columns:  # avoid a shuffle of rows that contain images
        wanted = F.broadcast(wanted)
    group = F.coalesce("group_id", "known_group").alias("group_id")
    chosen = entries.where(F.col("reason").isNull()).join(wanted, on="id", how="inner")
    return chosen.select(*(group if name == "group_id" else F.col(name) for name in entries.columns))
