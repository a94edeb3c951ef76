"""The check that the topmost folders of a tree are its classes, from the number of images in each folder."""

import logging
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from etl.errors import SourceError
from etl.sources.entries import Listing
from etl.sources.plan import SourcePlan
from formats.class_level import Doubt, Reading, doubt_of, is_possible
from formats.image_names import EXTENSIONS

log = logging.getLogger(__name__)

_PICTURES = rf"\.({'|'.join(map(bytes.decode, EXTENSIONS))})$"
_DEPTHS = (6, 4, 3, 2)
_MOST_FOLDERS = 100_000
_NO_CLASSES = "and --labels FILE for the classes, or --label-type none for no labels"


def check_class_level(
    entries: DataFrame, *, tops: Mapping[str, tuple[int, int]], listing: Listing, plan: SourcePlan
) -> None:
    """Raise `SourceError`, with the most likely interpretations, if the topmost folders are probably not the classes;
    ``tops`` has the files of each, and how many of them are deeper.
    """
    if not plan.by_folder or plan.class_level == "top" or not is_possible(tops):
        return
    counts = _counted(entries)  # a job of Spark, only if `tops` gives a reason
    merged: Counter[str] = Counter()
    for (_, folder), count in counts.items():
        merged[folder] += count
    doubt = doubt_of(merged)
    if doubt is None and all("/" in folder for folder in merged):
        below = {tuple(folder.split("/")[:2]) for folder in merged}
        log.warning(
            "All images are in deeper folders. The classes are the topmost folders, %s, not the %s folders in them.",
            f"{len(tops):,}",
            f"{len(below):,}",
        )
    if doubt is not None:
        tell = _of_archives if listing.has_archives else _of_folders
        raise SourceError(
            f"Wanted the topmost folders of {plan.base} to be the classes. Found: {doubt.top.counted()}, but "
            f"{doubt.why}. Choose one of:{tell(doubt, plan, counts)}"
            f"\n  {'--class-level top':<60} {doubt.top.counted()}: the folders as they are"
        )


def count_folders(entries: DataFrame, *, depth: int) -> DataFrame:
    """Count files and images by or_split and folder. Deeper folders than ``depth`` are cut to their first names."""
    path = F.col("path").cast("string")
    names = F.length(path) - F.length(F.replace(path, F.lit("/"), F.lit("")))
    folder = F.call_function("substring_index", path, F.lit("/"), F.least(F.lit(depth), names))
    return (
        entries.where(F.col("reason").isNull())
        .groupBy(F.col("or_split").cast("string").alias("or_split"), folder.alias("folder"))
        .agg(F.count("*").alias("files"), F.count_if(F.lower(path).rlike(_PICTURES)).alias("pictures"))
    )


def _counted(entries: DataFrame) -> dict[tuple[str, str], int]:
    """Images by split and folder, as deep as the number of folders allows; files if few have extensions of images."""
    for depth in _DEPTHS:
        rows = entries.transform(count_folders, depth=depth).limit(_MOST_FOLDERS + 1).collect()
        if len(rows) <= _MOST_FOLDERS:
            break
    what = "pictures" if 10 * sum(row.pictures for row in rows) >= sum(row.files for row in rows) else "files"
    return {(row.or_split, row.folder): row[what] for row in rows if row[what]}


def _of_folders(doubt: Doubt, plan: SourcePlan, folders: Collection[tuple[str, str]]) -> str:
    """A line for each interpretation, with its options."""
    lines = []
    for reading in doubt.readings:
        options = " ".join(f"{name} {shlex.quote(value)}" for name, value in _options(reading, plan, folders))
        more = "" if reading.classes else f"; {_NO_CLASSES}"
        if plan.or_split and "--split-subdir" in options:
            more += f"; instead of --split-name {plan.or_split}"
        lines.append(f"\n  {options:<60} {reading.counted()}{more}")
    return "".join(lines)


def _options(reading: Reading, plan: SourcePlan, folders: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    root, splits = reading.root, reading.splits
    if plan.splits:
        there = {
            f"{split}/{inner}"
            for split, folder in folders
            for inner in reading.folders
            if f"{folder}/".startswith(f"{inner}/")
        }
        root, splits = "", tuple(sorted(there))
    root = "/".join(filter(None, (plan.root, root)))
    return [*([("--root", root)] if root else []), *(("--split-subdir", split) for split in splits)]


def _of_archives(doubt: Doubt, plan: SourcePlan, folders: Collection[tuple[str, str]]) -> str:
    """A line for each inner archive of a tar of tars that seems to be a split: options cannot select it."""
    names = dict.fromkeys(folder.partition("/")[0] for reading in doubt.readings for folder in reading.folders)
    return "".join(
        f"\n  {f'extract {name}.tar and read that file':<60} with --split-name {shlex.quote(name)}" for name in names
    )
