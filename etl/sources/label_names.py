"""The likely reason why no name in a label file matches an image."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.errors import SourceError
from etl.sources.entries import text
from etl.sources.labels import full_name
from formats.image_names import EXTENSIONS

_ROW_FOUND = ("no label: empty in", "no label: images of the same name", "two labels", "two groups")
_ENDING = rf"(?i)\.({'|'.join(map(bytes.decode, EXTENSIONS))})$"


def check_names(entries: DataFrame, *, labels: DataFrame, name: str, by_stem: bool = False) -> None:
    """Raise `SourceError`, with the likely cause, if no row of ``labels`` matches an image. Runs Spark.

    ``entries`` is the result of `labels.label_by_file`, persisted. ``name`` is the name of the file, and ``by_stem`` is
    as in that function.
    """
    found = F.col("reason").isNull()
    for start in _ROW_FOUND:
        found |= F.col("reason").startswith(start)
    if entries.where(found).limit(1).count():
        return
    images = entries.select(full_name(F.col("path")).alias("image"), _bare("path").alias("bare"))
    rows = labels.select(F.col("path").alias("row"), _bare("path").alias("bare"))
    pairs = images.join(rows, on="bare", how="inner").orderBy("image", "row").select("row", "image").limit(2).collect()
    row = pairs[0].row if pairs else labels.agg(F.min("path")).collect()[0][0]
    image = pairs[0].image if pairs else images.agg(F.min("image")).collect()[0][0]
    if pairs:
        cause = likely_cause([(text(bytes(one.row)), text(bytes(one.image))) for one in pairs], by_stem=by_stem)
    else:
        cause = "The names differ even without folders and extensions. Is it the file of another split folder?"
    first, other = ("no name" if one is None else repr(text(bytes(one))) for one in (row, image))
    raise SourceError(
        f"Wanted rows in {name} for the images, by their paths. Found: {labels.count():,} rows and "
        f"{entries.count():,} files with no common names: {first} in {name}, {other} in the source. {cause}"
    )


def likely_cause(pairs: list[tuple[str, str]], *, by_stem: bool = False) -> str:
    """The reason why names differ, from one or two pairs of a row's name and a similar image name.

    Extensions do not matter if names are compared ``by_stem``.
    """
    (row_folder, _, row_name), (folder, _, image_name) = (one.rpartition("/") for one in pairs[0])
    causes = ["The extensions differ."] if row_name != image_name and not by_stem else []
    if row_folder != folder:
        if len({image.rpartition("/")[0] for _, image in pairs}) > 1:
            cause = (
                "The images are in folders that are not in the names. Leave out --labels if these folders are the "
                "classes; otherwise write full paths into the file."
            )
        elif not row_folder:
            cause = f"The images are in {folder}/, which is not in the names. Set --root {folder}."
        elif not folder:
            cause = f"The names begin with {row_folder}/. Use the parent folder as SOURCE, or set --split-subdir."
        else:
            cause = f"The names begin with {row_folder}/, but the images are in {folder}/."
        causes.append(cause)
    return " ".join(causes)


def _bare(column: str) -> Column:
    """The last part of a path, without the extension of an image."""
    return F.regexp_replace(F.substring_index(F.col(column).cast("string"), "/", -1), _ENDING, "")
