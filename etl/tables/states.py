"""What the history of an image says: whether it is deleted, which state it had after a run, and whether its bytes of
then are kept.

Each fact is here twice, as a function of the rows of one image and as a transform of the rows of all; a test compares
them. Rows have the columns of the table of histories. A row whose ``since`` is unknown counts as the first.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from formats.checksums import COLUMN as CHECKSUM
from schemas.tables import DELETED, PRUNED

Row: TypeAlias = Mapping[str, Any]
_REMOVED = ("until", "kind", "source", "reason", "at")


def is_deleted(since: Any, *, kind: Any, until: Any) -> Any:
    """Whether an image is deleted, by the run since which its row is there (0 without a row) and its `last_removal`:
    values, or columns.
    """
    # Not by the last run of the row's ingest: a later run may carry that ingest on, and leave the row as it is.
    return (kind == DELETED) & (since < until)


def last_removal(history: Iterable[Row]) -> Row | None:
    """The removal of an image that counts, of the rows of its history; None if it was never removed. A deletion counts
    until the image comes back, also if a run that pruned has removed what an interrupted deletion had left.
    """
    rows = list(history)
    lived = max((row["since"] or 0 for row in rows), default=0)
    removals = sorted((row for row in rows if row["kind"] in (DELETED, PRUNED)), key=lambda row: row["until"])
    deletions = [row for row in removals if row["kind"] == DELETED and lived < row["until"]]
    return next(reversed(deletions or removals), None)


def last_removals(history: DataFrame, /) -> DataFrame:
    """`last_removal` of each image: ``id``, and ``removed`` (``until, kind, source, reason, at``)."""
    told, is_deletion = F.struct(*_REMOVED), F.col("kind") == DELETED
    is_removal = F.col("kind").isin(DELETED, PRUNED)
    found = history.groupBy("id").agg(
        F.max(F.coalesce("since", F.lit(0))).alias("lived"),
        F.max_by(told, F.when(is_deletion, F.col("until"))).alias("deletion"),
        F.max_by(told, F.when(is_removal, F.col("until"))).alias("removal"),
    )
    counts = F.when(F.col("lived") < F.col("deletion.until"), F.col("deletion")).otherwise(F.col("removal"))
    return found.where(F.col("removal").isNotNull()).select("id", counts.alias("removed"))


def state_at(history: Iterable[Row], *, sequence: int) -> Row | None:
    """The state that an image had after a run and that a later one replaced or removed: the row of its history, whose
    ``kept`` is whether a run has kept its bytes; None if there is none, or the image was deleted then.
    """
    rows = list(history)
    known = (row for row in rows if row["sha256"] is not None)  # others only record that an image was deleted
    held = [row for row in known if (row["since"] or 0) <= sequence < row["until"]]
    # two runs at the same time may both have recorded the state that they replaced: it is the same one
    state = max(held, key=lambda row: (row["since"] or 0, -row["until"]), default=None)
    deleted = max((row["until"] for row in rows if row["kind"] == DELETED and row["until"] <= sequence), default=0)
    if state is None or (state["since"] or 0) < deleted:
        return None
    # A deletion removes all that was kept before. A state of the same bytes may have been replaced by a label first.
    erased = max((row["until"] for row in rows if row["kind"] == DELETED), default=0)
    copies = {row[CHECKSUM] for row in rows if row["kept"] and row["until"] > erased}
    return {**state, "kept": state[CHECKSUM] is not None and state[CHECKSUM] in copies}


def states_at(history: DataFrame, /, *, sequence: int) -> DataFrame:
    """`state_at` of each image that had such a state: rows of the history."""
    since, until = F.coalesce("since", F.lit(0)), F.col("until")
    state, is_held = F.struct(*history.columns), (since <= sequence) & (until > sequence) & F.col("sha256").isNotNull()
    is_deletion = F.col("kind") == DELETED
    found = history.groupBy("id").agg(
        F.max_by(state, F.when(is_held, F.struct(since, -until))).alias("state"),
        F.max(F.when(is_deletion & (until <= sequence), until).otherwise(F.lit(0))).alias("deleted"),
        F.max(F.when(is_deletion, until).otherwise(F.lit(0))).alias("erased"),
        F.collect_set(F.when(F.col("kept"), F.struct(until.alias("until"), F.col(CHECKSUM).alias("of")))).alias("kept"),
    )
    is_there = F.col("state").isNotNull() & (F.coalesce("state.since", F.lit(0)) >= F.col("deleted"))
    checksum = F.col(f"state.{CHECKSUM}")
    is_kept = F.exists("kept", lambda copy: (copy["until"] > F.col("erased")) & (copy["of"] == checksum))
    kept = F.coalesce(is_kept, F.lit(False)).alias("kept")
    return found.where(is_there).select(*(kept if name == "kept" else f"state.{name}" for name in history.columns))


def kept_bytes(history: DataFrame, /) -> DataFrame:
    """The bytes that runs have kept and no deletion has removed since, each once: ``id, xxhash64, bytes``."""
    copy = F.struct(F.col("until").alias("until"), F.col(CHECKSUM).alias(CHECKSUM), F.col("bytes").alias("bytes"))
    found = history.groupBy("id").agg(
        F.max(F.when(F.col("kind") == DELETED, F.col("until")).otherwise(F.lit(0))).alias("erased"),
        F.collect_set(F.when(F.col("kept"), copy)).alias("copies"),
    )
    each = found.select("id", "erased", F.explode("copies").alias("copy")).where("copy.until > erased")
    return each.select("id", f"copy.{CHECKSUM}", "copy.bytes").distinct()
