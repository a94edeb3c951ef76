"""Rows or lines of a label file, matched with the images of a listing.

Paths are compared byte by byte, as they are on disk and in the file.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from etl.errors import SourceError
from etl.sources.entries import full_name, replaced, text
from formats.image_names import EXTENSIONS

_NO_FILE = ("not a regular file", "broken link", "link loop", "unreadable folder", "unsafe name")
_ROW_FOUND = ("no label: empty in", "no label: images of the same name", "two labels", "two groups")
_ENDING = rf"(?i)\.({'|'.join(map(bytes.decode, EXTENSIONS))})$"


def label_by_file(entries: DataFrame, *, labels: DataFrame, name: str, by_stem: bool = False) -> DataFrame:
    """Add to each image the label and group of the row in ``labels`` (of `files.LABELS`, from a file called ``name``)
    whose path is its path, or its split, ``/`` and path; ``by_stem`` ignores the extension of an image. Images without
    a row or a label, or with two, are rejected.
    """
    label = F.when(F.trim("label") != "", F.col("label"))
    rows = labels.groupBy("path").agg(
        *(F.min(label).alias("low"), F.max(label).alias("high")),
        *(F.min("group").alias("low_group"), F.max("group").alias("high_group")),
    )
    by_path = rows.select(F.col("path").alias("_path"), *_prefixed("_a_"))
    by_name = rows.select(F.col("path").alias("_name"), *_prefixed("_b_"))
    low, high = F.least("_a_low", "_b_low"), F.greatest("_a_high", "_b_high")  # both ignore nulls
    low_group, high_group = F.least("_a_low_group", "_b_low_group"), F.greatest("_a_high_group", "_b_high_group")
    reason = (
        F.when(F.col("_path").isNull() & F.col("_name").isNull(), F.lit(f"no label: not in {name}"))
        .when(low.isNull(), F.lit(f"no label: empty in {name}"))
        .when(low != high, F.concat(F.lit("two labels: "), low, F.lit(" and "), high, F.lit(f" in {name}")))
        .when(
            low_group != high_group,
            F.concat(F.lit("two groups: "), low_group, F.lit(" and "), high_group, F.lit(f" in {name}")),
        )
    )
    path, columns = image_name(by_stem=by_stem), entries.columns
    if by_stem:
        entries = entries.withColumn("_same", F.count_if(_is_file()).over(Window.partitionBy("or_split", path)))
        # Images that differ only in an ignored extension would share a row.
        reason = F.when(
            F.col("_same") > 1, F.lit(f"no label: images of the same name without extension, as names are in {name}")
        ).otherwise(reason)
    changed = {
        "or_label": F.when(reason.isNull(), low),
        "group_id": F.when(reason.isNull(), F.coalesce(low_group, "group_id")),
        "reason": F.coalesce("reason", reason),
    }
    joined = entries.join(by_path, on=path == F.col("_path"), how="left").join(
        by_name, on=full_name(path) == F.col("_name"), how="left"
    )
    return joined.select(replaced(columns, changed))


def image_name(*, by_stem: bool) -> Column:
    """The path by which an image is looked up: its path, or the path without the extension of an image."""
    if not by_stem:
        return F.col("path")
    last = F.substring_index(F.col("path").cast("string"), "/", -1)
    ending = F.lower(F.substring_index(last, ".", -1))
    stem = F.expr("substring(path, 1, length(path) - length(substring_index(CAST(path AS STRING), '.', -1)) - 1)")
    is_told = last.contains(".") & ending.isin([one.decode() for one in EXTENSIONS])
    return F.when(is_told, stem).otherwise(F.col("path"))


def unmatched_labels(entries: DataFrame, *, labels: DataFrame, by_stem: bool = False) -> DataFrame:
    """The paths in ``labels`` that match no image, each once, as ``name``; ``by_stem`` as in `label_by_file`."""
    path = image_name(by_stem=by_stem)
    names = entries.select(F.explode(F.array(path, full_name(path))).alias("path"))
    return (
        labels.select("path")
        .distinct()
        .join(names, on="path", how="left_anti")
        .select(F.col("path").cast("string").alias("name"))
    )


def label_by_line(entries: DataFrame, *, lines: DataFrame, name: str) -> DataFrame:
    """Add to the n-th file, sorted by the bytes of split and path, the label of the n-th of ``lines``."""
    ranked = entries.withColumn("_file", _is_file())  # only regular files count, as in `check_lines`
    order = Window.partitionBy("_file").orderBy("or_split", "path")
    ranked = ranked.withColumn("_line", F.when(F.col("_file"), F.row_number().over(order)))
    numbers = lines.select(F.col("line").alias("_number"), F.col("label").alias("_label"))
    reason = F.when(F.col("_label").isNull(), F.lit(f"no label: not in {name}"))
    changed = {"or_label": F.col("_label"), "reason": F.coalesce("reason", reason)}
    joined = ranked.join(numbers, on=F.col("_line") == F.col("_number"), how="left")
    return joined.select(replaced(entries.columns, changed))


def check_lines(entries: DataFrame, *, lines: DataFrame, name: str) -> None:
    """Raise `SourceError` unless there is one line per file. Counts both, so persist the entries first."""
    files, wanted = entries.where(_is_file()).count(), lines.count()
    if files != wanted:
        raise SourceError(
            f"Wanted a line in {name} for each image, in the order of their names. "
            f"Found: {wanted:,} lines and {files:,} files. The source must have these images and no other files."
        )


def check_names(entries: DataFrame, *, labels: DataFrame, name: str, by_stem: bool = False) -> None:
    """Raise `SourceError`, with the likely cause, if no row of ``labels`` matches an image, or some rows would by
    another rule. ``entries`` is the result of `label_by_file`, persisted. Runs Spark.
    """
    found = F.col("reason").isNull()
    for start in _ROW_FOUND:
        found |= F.col("reason").startswith(start)
    lost = F.col("reason").startswith("no label: not in")
    counts = entries.agg(F.count_if(found).alias("found"), F.count_if(lost).alias("lost")).collect()[0]
    if counts.found:
        if counts.lost:
            _check_extensions(entries.where(lost), entries=entries, labels=labels, name=name, by_stem=by_stem)
        return
    images = entries.select(full_name(F.col("path")).alias("image"), "path", _bare("path").alias("bare"))
    rows = labels.select(F.col("path").alias("row"), _bare("path").alias("bare"))
    # A name without a folder is meant within the split folder.
    like = F.when(F.col("row").cast("string").contains("/"), F.col("image")).otherwise(F.col("path")).alias("like")
    folder = F.regexp_replace(F.col("path").cast("string"), "[^/]*$", "").alias("folder")
    similar = images.join(rows, on="bare", how="inner").groupBy(folder)
    first_pairs = similar.agg(F.min(F.struct("image", "row", like)).alias("pair")).orderBy("folder").limit(2)
    pairs = [one.pair for one in first_pairs.collect()]
    row = pairs[0].row if pairs else labels.agg(F.min("path")).collect()[0][0]
    image = pairs[0].image if pairs else images.agg(F.min("image")).collect()[0][0]
    if pairs:
        cause = likely_cause([(text(bytes(one.row)), text(bytes(one.like))) for one in pairs], by_stem=by_stem)
    else:
        cause = "The names differ even without folders and extensions. Is it the file of another split folder?"
    first, other = ("no name" if one is None else repr(text(bytes(one))) for one in (row, image))
    raise SourceError(
        f"Wanted rows in {name} for the images, by their paths. Found: {labels.count():,} rows and "
        f"{entries.count():,} files with no common names: {first} in {name}, {other} in the source. {cause}"
    )


def _check_extensions(lost: DataFrame, *, entries: DataFrame, labels: DataFrame, name: str, by_stem: bool) -> None:
    """Raise `SourceError` if a row that matches no image is one of ``lost`` with, or without, its extension."""
    other = image_name(by_stem=not by_stem)
    images = lost.select(
        full_name(F.col("path")).alias("image"), F.explode(F.array(other, full_name(other))).alias("n")
    )
    rows = unmatched_labels(entries, labels=labels, by_stem=by_stem)
    found = images.join(rows, on=F.col("n").cast("string") == F.col("name"), how="inner").orderBy("image").limit(1)
    for one in found.collect():
        raise SourceError(
            f"Wanted names in {name} that all have the extensions of images, or that all have none. Found: "
            f"{one.name!r} for {text(bytes(one.image))}, and names {'without' if by_stem else 'with'} extensions. "
            "Write all names in one way."
        )


def likely_cause(pairs: list[tuple[str, str]], *, by_stem: bool = False) -> str:
    """The reason why names differ, from one or two pairs of a row's name and a similar image name."""
    (row_folder, _, row_name), (folder, _, image_name) = (one.rpartition("/") for one in pairs[0])
    causes = ["The extensions differ."] if row_name != image_name and not by_stem else []
    if row_folder != folder:
        if len({image.rpartition("/")[0] for _, image in pairs}) > 1:
            cause = (
                "The images are in folders that are not in the names. Leave out --labels if these folders are the "
                "classes; otherwise write full paths into the file."
            )
        elif not row_folder:
            cause = (
                f"The images are in {folder}/, which is not in the names. Set --root {folder}, or write full paths "
                "into the file."
            )
        elif not folder:
            cause = f"The names begin with {row_folder}/. Use the parent folder as SOURCE, or set --split-subdir."
        else:
            cause = f"The names begin with {row_folder}/, but the images are in {folder}/."
        causes.append(cause)
    return " ".join(causes)


def _bare(column: str) -> Column:
    """The last part of a path, without the extension of an image."""
    return F.regexp_replace(F.substring_index(F.col(column).cast("string"), "/", -1), _ENDING, "")


def _is_file() -> Column:
    kind = F.substring_index("reason", ": ", 1)
    return F.col("reason").isNull() | ~kind.isin(*_NO_FILE)


def _prefixed(prefix: str) -> list[Column]:
    return [F.col(name).alias(prefix + name) for name in ("low", "high", "low_group", "high_group")]
