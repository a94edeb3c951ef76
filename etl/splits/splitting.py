"""The steps of a split: read, choose, order, write, check, publish."""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.columns import exact_names
from etl.errors import TableError
from etl.frames import fetched, files_side_by_side, kept
from etl.splits.candidates import NAN, label_set
from etl.splits.dealing.groups import deal_groups
from etl.splits.dealing.methods import MOST_ONE_BY_ONE, Dealt, deal_one_by_one, deal_strata, shared_only
from etl.splits.dealing.near_duplicates import LOOK_ALIKES, PHASH, group_near_duplicates
from etl.splits.dealing.shares import Shares, Stratum, check_sizes, share
from etl.splits.dealing.steps import order_rows
from etl.splits.dealing.survey import survey
from etl.splits.leaks import WATCHED, count_leaks
from etl.splits.metadata import CHECKSUM, Metadata, count_replaced, first_expiry
from etl.splits.metadata_reading import check_sample, checked, open_metadata
from etl.splits.output import SplitOutput, check_parts, parts
from etl.splits.page.document import render
from etl.splits.plan import LABELS, MOST_SPLITS, USUAL_RATIOS, SplitPlan, parse_ratios
from etl.splits.positions import summarise
from etl.splits.report import SplitReport, page_facts, report
from etl.splits.stored_features import by_position, stored_feature, write_values
from etl.splits.taking_part import (
    candidates,
    dealing_seed,
    group_kind,
    is_plain,
    of_others,
    open_folder,
    strata_columns,
)
from formats.checksums import COLUMN, UNKNOWN
from formats.sizes import counted
from formats.splits.dictionary import MAX_ROWS
from formats.splits.features import FOLDER as FEATURES
from formats.splits.opened import is_dictionary
from schemas import SplitManifest, SplitPart
from schemas.features import ViewName
from schemas.manifest import NEWER, StoredFeature, StoredGroups

log = logging.getLogger("imagestrata.split")

Number = TypeVar("Number", int, float)


def run(spark: SparkSession, *, plan: SplitPlan) -> SplitReport:
    """Make a split.

    Args:
        spark: The session.
        plan: The options.

    Returns:
        The report.

    Raises:
        EtlError: The split is not possible, and nothing was published.
        FormatsError: Another split cannot be read, or the output cannot be written; nothing was published.
    """
    if plan.out is None:
        raise ValueError("Wanted an output for the split (-o). Found: none")
    started = time.monotonic()
    ratios = _ratios(plan)
    with ExitStack() as stack:
        stack.enter_context(exact_names(spark))
        output = stack.enter_context(SplitOutput(plan.out, overwrite=plan.overwrite))
        metadata = open_metadata(spark, plan=plan, aside=output.aside("metadata"))
        dealt = share_out(spark, metadata, plan=plan, ratios=ratios, stack=stack)
        _check_size(plan.out, sum(dealt.sizes))
        leaks = _leaks(dealt.rows) if plan.has_leak_check else {}
        if plan.folds:
            dealt = as_folds(dealt)
        rows = dealt.rows.transform(_columns_of_files)
        with files_side_by_side(spark, len(dealt.sizes)):
            ordered = order_rows(rows, sizes=dealt.sizes, seed=plan.seed) if plan.has_position else rows
            written = output.write(spark, ordered)
            summary = fetched(written.transform(summarise)).to_dict("records")
        found = parts(
            summary, files=output.files(), counts=dealt.counts, splits=len(dealt.sizes),
            plan=plan, label_type=metadata.label_type,
        )  # fmt: skip
        stored = _write_features(spark, output, written, metadata=metadata, parts=found)
        groups = None if is_dictionary(plan.out) else _write_groups(output, dealt, plan=plan, metadata=metadata)
        check_parts(found, sizes=dealt.sizes, counts=dealt.counts)
        unchecked = check_sample(
            spark, written, metadata=metadata, sizes=dealt.sizes, is_cached=plan.metadata_in is not None
        )
        expiring, expires = first_expiry(written, metadata=metadata)
        metadata = replace(metadata, expires=expires, replaced=count_replaced(written, metadata=metadata))
        warnings = [*dealt.warnings, *_of_leaks(leaks), *unchecked, *_of_expiry(expiring, expires)]
        warnings += _of_replaced(metadata)
        facts = page_facts(plan, dealt, metadata=metadata, ratios=ratios, parts=found, leaks=leaks, warnings=warnings)
        published = output.publish(
            found, plan=plan, metadata=metadata, warnings=warnings, page=render(facts), stored=stored, groups=groups
        )
        return report(
            dealt,
            metadata=metadata,
            out=output.address,
            fingerprints=[part.fingerprint for part in published.splits],
            leaks=leaks,
            warnings=warnings,
            seconds=time.monotonic() - started,
            copies=plan.folds or 1,
        )


def _check_size(out: str, images: int) -> None:
    if is_dictionary(out) and images > MAX_ROWS:
        raise TableError(
            f"Wanted at most {MAX_ROWS:,} images in a split dictionary. Found: {images:,}. "
            "Write a folder instead: -o with a name that does not end with .pckl or .pkl."
        )


def _columns_of_files(rows: DataFrame, /) -> DataFrame:
    """``id, label, split``, and the checksum if the table has it, of rows that were dealt."""
    checksum = F.coalesce(CHECKSUM, F.lit(UNKNOWN).cast("long")).alias(COLUMN)
    return rows.select("id", "label", "split", *([checksum] if CHECKSUM in rows.columns else []))


def _write_features(
    spark: SparkSession, output: SplitOutput, written: DataFrame, *, metadata: Metadata, parts: Sequence[SplitPart]
) -> list[StoredFeature]:
    """Write the values of feature views for the rows of splits."""
    stored = []
    for view in metadata.stored:
        log.info("store %s", view.title)
        place = f"{FEATURES}/{view.title}"
        rows = written.transform(by_position, values=metadata.rows, view=view)
        with files_side_by_side(spark, MOST_SPLITS):
            found = write_values(spark, rows, view=view, address=output.aside(place))
        stored.append(stored_feature(view, found, parts=parts, files=output.files(place)))
    return stored


def _write_groups(output: SplitOutput, dealt: Dealt, *, plan: SplitPlan, metadata: Metadata) -> StoredGroups | None:
    """Write the groups of each split, if there are groups whose names last."""
    if dealt.groups is None or plan.group_column is None or has_look_alikes(metadata, plan=plan):
        return None
    files = output.write_groups(dealt.groups)
    in_order = tuple(tuple(files.get(index, ())) for index in range(len(dealt.sizes)))
    return StoredGroups(plan.group_column, kind=group_kind(metadata.rows, plan=plan), splits=in_order)


def explain(spark: SparkSession, *, plan: SplitPlan) -> SplitReport:
    """Compute what a split would be, from one count of the metadata. Writes nothing. Raises `EtlError` if the split is
    not possible.
    """
    started = time.monotonic()
    ratios = _ratios(plan)
    with ExitStack() as stack:
        stack.enter_context(exact_names(spark))
        metadata = open_metadata(spark, plan=plan, aside=None)
        rows, shares, by = _shares(spark, metadata, plan=plan, ratios=ratios, stack=stack)
        dealt = shared_only(rows, shares, by=by)
        told = check_sizes(dealt.counts, dealt.sizes, plan=plan, names=metadata.class_names)
        if plan.min_per_split and not dealt.counts:
            told.append("--min-per-split is checked for classes only when the split is made")
        dealt = replace(dealt, warnings=(*dealt.warnings, *told))
    if plan.folds:
        dealt = as_folds(dealt)
    nearly = " (whole groups will be as close to this as possible)" if plan.group_column else ""
    return report(
        replace(dealt, method=dealt.method + nearly),
        metadata=metadata,
        out=None,
        fingerprints=[],
        leaks={},
        warnings=dealt.warnings,
        seconds=time.monotonic() - started,
        copies=plan.folds or 1,
    )


def share_out(
    spark: SparkSession, metadata: Metadata, *, plan: SplitPlan, ratios: tuple[Fraction, ...], stack: ExitStack
) -> Dealt:
    """Assign splits to the images that take part."""
    rows, shares, by = _shares(spark, metadata, plan=plan, ratios=ratios, stack=stack)
    images = sum(stratum.images for stratum in shares.strata)
    log.info("%s images in %s strata", f"{images:,}", f"{len(shares.strata):,}")
    keep = [name for name in rows.columns if name in (*WATCHED.values(), CHECKSUM, "group")]
    dealing = replace(plan, seed=dealing_seed(plan))
    if plan.group_column:
        dealt = deal_groups(spark, rows, shares, by=by, plan=dealing, keep=keep, stack=stack)
    elif LABELS in by.values() and "fixed" not in rows.columns and images <= MOST_ONE_BY_ONE:
        dealt = deal_one_by_one(spark, rows, shares, plan=dealing, keep=keep)
    else:
        dealt = deal_strata(spark, rows, shares, by=by, plan=dealing, keep=keep)
    if plan.folds and not all(dealt.sizes):
        what = "groups" if plan.group_column else "images"
        raise TableError(f"Wanted {plan.folds} folds with {what} in each. Found: too few {what} for that.")
    counts = _class_counts(dealt, metadata) if plan.min_per_split else dealt.counts
    sizes = check_sizes(counts, dealt.sizes, plan=plan, names=metadata.class_names)
    others = of_others(spark, rows, plan=plan, metadata=metadata)
    return replace(dealt, warnings=(*dealt.warnings, *sizes, *others))


def _class_counts(dealt: Dealt, metadata: Metadata) -> Mapping[int, Sequence[int]]:
    """The images by class and split, also if the classes are not among the columns to stratify by. Runs Spark."""
    if dealt.counts or metadata.label_type not in ("int", "multi"):
        return dealt.counts
    rows = dealt.rows.select("id", "label", "split").where(F.col("label").isNotNull())
    if metadata.label_type == "multi":
        of_image = metadata.rows.select("id", F.explode(label_set()).alias("label"))
        rows = rows.drop("label").join(of_image, on="id", how="inner")
    found: dict[int, list[int]] = defaultdict(lambda: [0] * len(dealt.sizes))
    for row in rows.groupBy("label", "split").agg(F.count("*").alias("images")).collect():
        found[row["label"]][row["split"]] = row["images"]
    return dict(sorted(found.items()))


def _shares(
    spark: SparkSession, metadata: Metadata, *, plan: SplitPlan, ratios: tuple[Fraction, ...], stack: ExitStack
) -> tuple[DataFrame, Shares, Mapping[str, str]]:
    metadata, plan = _with_look_alikes(metadata, plan=plan, stack=stack)
    by = strata_columns(metadata, plan=plan)
    if metadata.label_type != "int" and ("label" in by or plan.balance != "original" or plan.per_class is not None):
        what = "to stratify by" if "label" in by else "for a balance or --per-class"
        kind = "of several labels each" if metadata.label_type == "multi" else "without classes"
        raise TableError(
            f"Wanted images of one class each, {what}. Found: {metadata.metadata_table} has images {kind}. "
            "To use fewer images, set --limit."
        )
    if beyond := [pin for pin in plan.pins if pin.split >= len(ratios)]:
        raise TableError(f"Wanted pins to splits from 0 to {len(ratios) - 1}. Found: {beyond[0]}.")
    if is_plain(plan):
        rows = candidates(spark, metadata, plan=plan, by=by)
    else:
        metadata = checked(metadata)
        rows = kept(candidates(spark, metadata, plan=plan, by=by), stack=stack)
    found = survey(rows, by=by, plan=plan, metadata=metadata, splits=len(ratios))
    shares = share(found.strata, ratios=ratios, plan=plan, names=metadata.class_names, by=list(by))
    told = [*shares.warnings, *_of_classes(metadata, found.strata, by=by)]
    for number, name in enumerate(by):
        if empty := sum(one.images for one in found.strata if one.values[number] in (None, NAN)):
            told.append(f"{empty:,} images have no {name} (null or NaN): they form separate strata")
    if found.alone and plan.group_column:
        told += _of_alone(found.alone, column=plan.group_column)
    return rows, replace(shares, warnings=(*metadata.warnings, *told)), by


def has_look_alikes(metadata: Metadata, *, plan: SplitPlan) -> bool:
    """Whether groups are images that look alike. Later images can join such groups, so they have no lasting name."""
    return plan.group_column == PHASH and any(ViewName.parse(title).name == PHASH for title in metadata.features)


def _with_look_alikes(metadata: Metadata, *, plan: SplitPlan, stack: ExitStack) -> tuple[Metadata, SplitPlan]:
    """For perceptual hashes as groups, the groups of similar ones over all images, also those that take no part."""
    if not has_look_alikes(metadata, plan=plan):
        return metadata, plan
    log.info("look for near duplicates")
    hashes = kept(metadata.rows.select("id", PHASH), stack=stack)
    groups = kept(group_near_duplicates(hashes, distance=plan.look_alike_bits), stack=stack)
    log.info("%s in groups of near duplicates", counted(groups.count(), "image"))
    rows = metadata.rows.join(groups, on="id", how="left")
    return replace(metadata, rows=rows), replace(plan, group_column=LOOK_ALIKES)


def _of_alone(images: int, *, column: str) -> list[str]:
    """A warning of images without a group."""
    if column == LOOK_ALIKES:  # only a note, because most images have no near duplicates
        log.info("note: %s without near duplicates; each is a separate group", counted(images, "image"))
        return []
    return [f"{counted(images, 'image')} without {column} (null, empty or blank): each is a separate group"]


def _of_classes(metadata: Metadata, strata: Sequence[Stratum], *, by: Mapping[str, str]) -> list[str]:
    """A warning if some numbered classes have no images."""
    there = {stratum.label for stratum in strata if stratum.images}
    without = [name for label, name in sorted(metadata.class_names.items()) if label not in there]
    if "label" not in by or not without:
        return []
    more = ", ..." if len(without) > 5 else ""
    return [
        f"{len(there) + len(without):,} classes, {len(without):,} of them without images: "
        f"{', '.join(without[:5])}{more}"
    ]


def as_folds(dealt: Dealt) -> Dealt:
    """Make pairs from folds: fold k is split 2k, all images but the k-th part, and split 2k + 1, that part."""
    folds = len(dealt.sizes)
    pairs = F.expr(f"explode(transform(sequence(0, {folds - 1}), fold -> 2 * fold + if(fold = split, 1, 0)))")

    def paired(frame: DataFrame) -> DataFrame:
        if "split" not in frame.columns:  # --explain assigns no splits
            return frame
        return frame.select(*(name for name in frame.columns if name != "split"), pairs.alias("split"))

    return replace(
        dealt,
        rows=paired(dealt.rows),
        groups=None if dealt.groups is None else paired(dealt.groups),
        sizes=_pairs(dealt.sizes),
        ideal_sizes=_pairs(dealt.ideal_sizes),
        counts={label: _pairs(row) for label, row in dealt.counts.items()},
        ideals={label: _pairs(row) for label, row in dealt.ideals.items()},
    )


def _pairs(of_fold: Sequence[Number]) -> list[Number]:
    """By fold, the sum of the other folds, and its own value."""
    total = sum(of_fold)
    return [number for one in of_fold for number in (total - one, one)]


def _ratios(plan: SplitPlan) -> tuple[Fraction, ...]:
    """The ratios: as given, equal ones for folds, those of the split that is extended, or 8:2."""
    if plan.folds:
        return (Fraction(1),) * plan.folds
    if plan.extend is None:
        return plan.ratios or USUAL_RATIOS
    manifest = open_folder(plan.extend).manifest
    if manifest.options.get("folds"):
        raise TableError(f"Wanted a split to extend at {plan.extend}. Found: folds, whose splits overlap.")
    ratios = plan.ratios or _asked(manifest) or USUAL_RATIOS
    if len(ratios) != len(manifest.splits):
        raise TableError(
            f"Wanted a ratio for each of the {len(manifest.splits)} splits of {plan.extend}. "
            f"Found: {len(ratios)} ratios."
        )
    return ratios


def _asked(manifest: SplitManifest) -> tuple[Fraction, ...] | None:
    text = manifest.options.get("split-ratio")
    return parse_ratios(str(text)) if text else None


def _leaks(assigned: DataFrame) -> dict[str, dict[str, int]]:
    """Count what is in two splits, for each column that can tell; nothing for a column without values."""
    found = {}
    for name, column in {**WATCHED, "groups": "group"}.items():
        if column in assigned.columns:
            row = assigned.transform(count_leaks, column=column).collect()[0]
            if row["known"]:
                found[name] = {"values in two splits": row["leaks"], "images with these": row["images"]}
    return found


def _of_leaks(leaks: dict[str, dict[str, int]]) -> list[str]:
    """A warning for each kind of leak."""
    return [
        f"{found['images with these']:,} images have the {WATCHED[name]} of an image in another split ({name}): "
        f"--group-column {WATCHED[name]} keeps them together"
        for name, found in leaks.items()
        if found["values in two splits"] and name in WATCHED
    ]


def _of_replaced(metadata: Metadata) -> list[str]:
    """A warning about images that were replaced, or deleted and ingested again, since their label was corrected."""
    if not metadata.replaced:
        return []
    images = counted(metadata.replaced, "image")
    what = f"{images} of other bytes or another class than {metadata.label_view} corrected, or deleted since"
    if metadata.labels_of_replaced == NEWER:
        return [f"{what}: the labels are newer ones, of {metadata.metadata_table} (--labels-of-replaced newer)"]
    return [
        f"{what}: the labels are these corrections all the same, if they were not deleted (--labels-of-replaced keep)"
    ]


def _of_expiry(images: int, expires: str | None) -> list[str]:
    """A warning if images of the split expire."""
    if expires is None:
        return []
    return [
        f"{counted(images, 'image')} will expire (--ttl), the first at {expires} or a little later: then they are "
        "missing for training"
    ]
