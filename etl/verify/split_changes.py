"""What has changed of a split since it was made: its files, its images, their labels and their bytes.

A split records the newest run when it was made. Metadata rows say since which run an image has its label and bytes, and
the history has what was replaced or removed. So nothing but the metadata is read.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from etl.cassandra.control import Control, check_columns
from etl.cassandra.tables import uuid_text
from etl.errors import TableError
from etl.frames import kept, small_table
from etl.labels.versions import known_state, newest_label_views, versions_of, with_labels
from etl.splits.positions import added_up, fingerprint_sums
from etl.splits.taking_part import open_folder
from etl.tables.earlier import THEN, metadata_as_of
from etl.tables.metadata_table import MetadataTable, full_path
from etl.tables.states import kept_bytes, last_removals, states_at
from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN
from formats.sizes import counted
from formats.splits.fingerprint import checksums_fingerprint, split_fingerprint
from formats.splits.opened import OpenSplit
from schemas import Columns, SchemaError, SplitManifest, SplitPart, TableName
from schemas.features import ViewName
from schemas.manifest import NEWER

log = logging.getLogger("imagestrata.verify")

FILES, CORRECTED = "other files", "corrected label"
KINDS = {
    FILES: "the files of a split differ from its fingerprint",
    "deleted": "the image was deleted",
    "pruned": "the image was removed because its file was not found",
    "missing": "the image has no row, and the history does not say why",
    "other label": "the label differs from that of the split",
    CORRECTED: "a later version of a label view has another label",
    "other bytes": "the image was replaced",
    "other mask": "the mask was replaced, or written again without a checksum",
    "unknown bytes": "the image was written again, and the history does not have its bytes of then",
}
"""The kinds of changes, in the order of the report; `CORRECTED` only if it is asked for."""

_SHOWN = 20
_LISTED = 1_000
_ROWS = f"id BINARY, label INT, position BIGINT, {CHECKSUM} BIGINT"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an image: its kind, id and path, the run that made it and when, and details."""

    kind: str
    id: str | None
    path: str | None
    run: int | None
    when: str | None
    detail: str | None

    def __str__(self) -> str:
        run = f"run {self.run}" if self.run else None
        made = ", ".join(filter(None, (self.detail, run, self.when)))
        return " ".join(filter(None, (self.id, self.path))) + (f" ({made})" if made else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChanges:
    """The changes of a split."""

    split: str
    metadata_table: str
    images: int
    sequence: int | None  # the newest run when the split was made
    as_of: int | None  # the run whose images and labels it has
    counts: dict[str, int]  # by kind
    changes: list[Change]  # the first 1,000
    unchecked: list[str]  # what could not be verified
    seconds: float = field(compare=False)

    @property
    def left(self) -> int:
        """The number of changes."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        lines = [f"warning: not verified: {text}" for text in self.unchecked]
        for kind, count in self.counts.items():
            lines.append(f"{count:,} x {kind}: {KINDS[kind]}")
            shown = [change for change in self.changes if change.kind == kind][:_SHOWN]
            lines += [f"    {change}" for change in shown] + (["    ..."] if count > len(shown) else [])
        made = "" if self.sequence is None else f" since run {self.sequence}"
        lines.append(
            f"compared {counted(self.images, 'image')} of {self.split} with {self.metadata_table}{made}, in "
            f"{self.seconds:,.1f} s: {self.summary() or 'nothing has changed'}"
        )
        return "\n".join(lines)

    def summary(self) -> str:
        """The changes in one line; empty if there are none."""
        return ", ".join(f"{count:,} x {kind}" for kind, count in self.counts.items())


def run(spark: SparkSession, *, address: str) -> SplitChanges:
    """Find out what has changed of the split in a folder since it was made. Writes nothing. Raises `EtlError` if the
    tables of the split cannot be read, and `FormatsError` if there is no split.
    """
    try:
        split = open_folder(address, purpose="for --split")
    except SchemaError as error:
        raise TableError(str(error)) from None
    return changes_of(spark, split)


def changes_of(
    spark: SparkSession, split: OpenSplit, *, index: int | None = None, has_corrections: bool = False
) -> SplitChanges:
    """Find out what has changed of the split in a folder, or of one of its splits, since it was made; with corrections
    of labels that later versions of its label view made, or without one, those of any label view. Raises `EtlError`.
    """
    started, manifest = time.monotonic(), split.manifest
    with ExitStack() as stack:
        control = stack.enter_context(Control.from_spark(spark))
        damaged, images = _read_split(spark, split, index=index)
        images = kept(images, stack=stack)
        table = MetadataTable.open(spark, control, TableName.parse(manifest.metadata_table), columns=manifest.columns)
        changed, unchecked = _compare(table, images, manifest=manifest)
        if has_corrections:
            corrected = kept(_corrected(table, images, manifest=manifest), stack=stack)
            is_known = (F.col("kind") == "other label") & F.col("corrected").isNotNull()
            told = changed.join(corrected.select("id", F.lit(True).alias("corrected")), on="id", how="left")
            changed = told.where(~is_known).drop("corrected").unionByName(corrected)
        changed = kept(changed, stack=stack)
        counted = {row["kind"]: row["count"] for row in changed.groupBy("kind").count().collect()}
        # some of each kind, whatever their numbers
        place = F.row_number().over(Window.partitionBy("kind").orderBy("id"))
        first = (
            changed.withColumn("place", place).orderBy(F.col("place") > _SHOWN, "kind", "id").limit(_LISTED).collect()
        )
        first = sorted(first, key=lambda row: (row["kind"], row["id"]))
        times = {run.sequence: run.started for run in table.runs}
        changes = [Change(FILES, None, None, None, None, text) for text in damaged]
        changes += [_change(row, times.get(row["run"]), names=manifest.class_names) for row in first]
        counts = {**counted, **({FILES: len(damaged)} if damaged else {})}
        return SplitChanges(
            split=split.address,
            metadata_table=manifest.metadata_table,
            images=images.count(),
            sequence=manifest.sequence,
            as_of=manifest.as_of,
            counts={kind: counts[kind] for kind in KINDS if kind in counts},
            changes=changes[:_LISTED],
            unchecked=unchecked,
            seconds=time.monotonic() - started,
        )


def _read_split(spark: SparkSession, split: OpenSplit, *, index: int | None) -> tuple[list[str], DataFrame]:
    """Compare files with fingerprints; returns what is wrong, and the images: ``id, label``, checksum,
    each once.
    """
    assert split.storage is not None
    storage, manifest, damaged = split.storage, split.manifest, []
    found = small_table(spark, {"id": [], "label": [], CHECKSUM: []}, f"id BINARY, label INT, {CHECKSUM} BIGINT")
    for part in manifest.splits if index is None else [split.part(index)]:
        if missing := [file.path for file in part.files if not storage.exists(file.path)]:
            damaged.append(f"split {part.index}: no {missing[0]}")
            continue
        if not part.files:
            continue
        rows = spark.read.schema(_ROWS).parquet(*(storage.url(file.path) for file in part.files))
        damaged += [f"split {part.index}: {text}" for text in _differences(rows, part, seed=manifest.seed)]
        found = found.union(rows.select("id", "label", CHECKSUM))
    return damaged, found.dropDuplicates(["id", "label"])


def _differences(rows: DataFrame, part: SplitPart, *, seed: int) -> list[str]:
    """The fingerprints of the rows of a split that its manifest does not have."""
    rows = rows.withColumn("position", F.coalesce("position", F.lit(-1).cast("bigint")))
    sums = {"rows": fingerprint_sums("id", "label", "position"), "checksums": fingerprint_sums("id", CHECKSUM)}
    each = [F.struct(*columns).alias(name) for name, columns in sums.items()]
    (summed,) = rows.agg(F.count("*").alias("count"), *each).collect()
    count, of_rows, of_checksums = summed["count"], added_up([summed["rows"]]), added_up([summed["checksums"]])
    found = split_fingerprint(seed=seed, index=part.index, rows=count, sums=of_rows)
    compared = [("fingerprint", found, part.fingerprint)]
    if part.checksums is not None:
        found = checksums_fingerprint(split=part.fingerprint, rows=count, sums=of_checksums)
        compared.append(("fingerprint of checksums", found, part.checksums))
    return [f"{name} {found[:12]} instead of {wanted[:12]}" for name, found, wanted in compared if found != wanted]


def _compare(table: MetadataTable, images: DataFrame, *, manifest: SplitManifest) -> tuple[DataFrame, list[str]]:
    """The changes (``kind, id, path, run, reason, at, was, is``), and what cannot be verified."""
    check_columns(table.control, table.name, columns=[table.columns.id])
    unchecked = []
    if manifest.sequence is None or "sha256" not in table.fields:
        why = "it records no run: an earlier version made it, or the tables of another tool have no runs"
        unchecked.append(f"whether the bytes of {manifest.metadata_table} are those of the split ({why})")
    sequence = -1 if manifest.sequence is None else manifest.sequence
    read = ["label", "labels", "or_split", "path", "sha256", CHECKSUM, "since"]
    rows, _ = table.without_half_deleted(table.rows(read))
    rows = rows.withColumn("id", uuid_text("id"))
    history = table.replaced()
    labels = _labels(table, rows, history, manifest=manifest)
    states = history.transform(states_at, sequence=sequence)
    removed = history.transform(last_removals)
    doubtful = history.where(F.col("until").isin(list(manifest.unfinished)))
    doubtful = doubtful.groupBy("id").agg(F.max_by(F.struct("until", "sha256"), "until").alias("doubt"))

    named = F.expr(f"nullif({CHECKSUM}, {UNKNOWN})").alias("named")
    split = images.select(uuid_text("id").alias("id"), F.col("label").alias("was"), named)
    now = rows.select("id", F.struct("since", "sha256", CHECKSUM, "labels", "or_split", "path").alias("now"))
    then = states.select("id", F.struct("sha256", CHECKSUM, "labels").alias("then"))
    joined = split.join(now, on="id", how="left").join(labels, on="id", how="left").join(then, on="id", how="left")
    joined = joined.join(removed, on="id", how="left").join(doubtful, on="id", how="left")
    copies = history.transform(kept_bytes).select("id", F.col(CHECKSUM).alias("named"), F.lit(True).alias("is_kept"))
    joined = joined.join(copies, on=["id", "named"], how="left")
    kind = _kind(manifest.label_type, sequence=sequence)
    is_gone = F.col("now").isNull()
    changed = joined.withColumn("kind", F.explode(F.array_compact(kind)))
    return changed.select(
        "kind",
        "id",
        full_path(F.col("now.or_split"), F.col("now.path")).alias("path"),
        F.when(is_gone, F.col("removed.until")).otherwise(F.col("now.since")).alias("run"),
        F.when(is_gone, F.col("removed.reason")).alias("reason"),
        F.when(is_gone, F.unix_millis("removed.at")).alias("at"),
        "was",
        "is",
    ), unchecked


def _kind(label_type: str, *, sequence: int) -> Column:
    """The changes of an image, an array with nulls."""
    is_there = F.col("now").isNotNull()
    is_written = is_there & (F.col("now.since") > sequence) & F.lit(sequence >= 0)
    is_known = F.col("then").isNotNull()
    is_other = ~F.col("now.sha256").eqNullSafe(F.col("then.sha256"))
    is_doubtful = is_there & (F.col("doubt.until") == F.col("now.since"))
    is_doubtful = is_doubtful & ~F.col("doubt.sha256").eqNullSafe(F.col("now.sha256"))
    # Also of a split as of an earlier run, whose bytes were not kept, or forgotten since.
    is_lost = is_there & (F.col(f"now.{CHECKSUM}") != F.col("named")) & F.col("is_kept").isNull()
    is_same_image = is_written & is_known & ~is_other  # then its mask was replaced
    bytes_ = F.when((is_written & is_known & is_other) | (is_lost & ~is_same_image), "other bytes")
    kinds = [
        F.when(~is_there, F.coalesce("removed.kind", F.lit("missing"))),
        bytes_.when((is_written & ~is_known) | is_doubtful, "unknown bytes"),
    ]
    if label_type == "int":
        kinds.append(F.when(is_there & ~F.col("is").eqNullSafe(F.col("was")), "other label"))
    elif label_type == "multi":
        is_other_array = ~F.col("now.labels").eqNullSafe(F.col("then.labels"))
        kinds.append(F.when(is_written & is_known & is_other_array, "other label"))
    elif label_type == "blob":
        is_same = F.coalesce(F.col(f"now.{CHECKSUM}") == F.col(f"then.{CHECKSUM}"), F.lit(False))
        kinds.append(F.when(is_written & is_known & ~is_other & ~is_same, "other mask"))
    return F.array(*kinds)


def _labels(table: MetadataTable, rows: DataFrame, history: DataFrame, *, manifest: SplitManifest) -> DataFrame:
    """``id, is``: the labels of images as the split takes them, from its run and its label view."""
    columns = Columns()  # those of `MetadataTable.rows`
    if manifest.label_type != "int":
        return rows.select("id", F.lit(None).cast("int").alias("is"))
    if manifest.as_of is not None:
        states = history.transform(states_at, sequence=manifest.as_of)
        rows = rows.transform(
            metadata_as_of, states=states, sequence=manifest.as_of, columns=columns, label_type=manifest.label_type
        ).drop(THEN)
    if manifest.label_view is not None:
        versions = versions_of(table, ViewName.parse(manifest.label_view))
        uses_replaced = manifest.labels_of_replaced != NEWER
        rows = rows.transform(with_labels, versions=versions, columns=columns, uses_replaced=uses_replaced)
    return rows.select("id", F.col("label").alias("is"))


def _corrected(table: MetadataTable, images: DataFrame, *, manifest: SplitManifest) -> DataFrame:
    """The images of a split whose label a later version corrected, as `_compare` has changes."""
    point = manifest.sequence if manifest.as_of is None else manifest.as_of
    rows, _ = table.without_half_deleted(table.rows(["label", "or_split", "path", "sha256", "since"]))
    rows = rows.withColumn("id", uuid_text("id"))
    joined = images.select(uuid_text("id").alias("id"), F.col("label").alias("was")).join(rows, on="id", how="inner")
    now = known_state(since=F.col("since"), sha256=F.col("sha256"), label=F.col("label"))
    each = [F.lit(None).cast("struct<label: int, run: bigint>")]
    named = None if manifest.label_view is None else ViewName.parse(manifest.label_view).name
    for view in newest_label_views(table.control, table.name) if manifest.label_type == "int" else ():
        versions = versions_of(table, ViewName(view.name))
        later = tuple(one for one in versions.views if (one.sequence or 0) > (point or 0)) if versions else ()
        if versions is not None and later and named in (None, view.name):
            versions = replace(versions, views=later)
            joined = joined.join(versions.read(table.spark), on="id", how="left")
            found = versions.correction(now=now)
            each.append(F.when(found["label"] != F.col("was"), found))
    corrected = joined.withColumn("correction", F.coalesce(*each)).where(F.col("correction").isNotNull())
    return corrected.select(
        F.lit(CORRECTED).alias("kind"),
        "id",
        full_path(F.col("or_split"), F.col("path")).alias("path"),
        F.col("correction.run").alias("run"),
        F.lit(None).cast("string").alias("reason"),
        F.lit(None).cast("bigint").alias("at"),
        "was",
        F.col("correction.label").alias("is"),
    )


def _change(row: Row, started: datetime | None, *, names: Mapping[int, str]) -> Change:
    when = started if row["at"] is None else datetime(1970, 1, 1) + timedelta(milliseconds=row["at"])
    text = None if when is None else f"{when:%Y-%m-%d %H:%M:%S} UTC"
    detail = row["reason"]
    if row["kind"] in ("other label", CORRECTED) and row["was"] >= 0:
        now, was = (names.get(label, str(label)) for label in (row["is"], row["was"]))
        detail = f"{'no label' if row['is'] is None else now} instead of {was}"
    return Change(row["kind"], row["id"], row["path"], row["run"], text, detail)
