"""Companion files of images: a mask with the same name in another folder, or an array of labels.

Names are compared byte by byte: as text they are decoded as Latin-1, which has a character for each byte.
"""

import io

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from etl.pictures.images import RejectedError
from etl.sources.entries import full_name, replaced

MAX_LABELS = 65_536  # the most numbers in an array of labels

_INT32 = np.iinfo(np.int32)
_SHOWN = 80


def attach(entries: DataFrame, *, companions: DataFrame, what: str) -> DataFrame:
    """Add to each image the companion (a ``mask`` or an ``array``) with the same split and name without extension; both
    are rows of `ENTRIES`. An image with none, with two, or with an unreadable one is rejected.
    """
    found = companions.groupBy(F.col("or_split").alias("_split"), _stem().alias("_stem")).agg(
        F.count("*").alias("_count"),
        F.min(F.struct("place", "offset", "bytes", "reason")).alias("_found"),
    )
    same = (F.col("or_split") == F.col("_split")) & (_stem() == F.col("_stem"))
    reason = (
        F.when(F.col("_count").isNull(), F.lit(f"no {what}: no file of the same name"))
        .when(F.col("_count") > 1, F.lit(f"two {what}s"))
        .when(F.col("_found.reason").isNotNull(), F.concat(F.lit(f"bad {what}: "), F.col("_found.reason")))
    )
    good = F.col("reason").isNull() & reason.isNull()
    changed = {
        "label_place": F.when(good, F.col("_found.place")),
        "label_offset": F.when(good, F.col("_found.offset")),
        "label_bytes": F.when(good, F.col("_found.bytes")),
        "reason": F.coalesce("reason", reason),  # an image that has a reason already keeps it
    }
    return entries.join(found, on=same, how="left").select(replaced(entries.columns, changed))


def unmatched(companions: DataFrame, *, entries: DataFrame) -> DataFrame:
    """The companions without an image, with ``name``: their split and path as text."""
    images = entries.select(F.col("or_split").alias("_split"), _stem().alias("_stem")).distinct()
    same = (F.col("or_split") == F.col("_split")) & (_stem() == F.col("_stem"))
    return companions.join(images, on=same, how="left_anti").select(
        full_name(F.col("path")).cast("string").alias("name")
    )


def split_arrays(entries: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Separate the images and arrays of a listing with arrays next to images: ``a.jpg`` and ``a.npy``."""
    is_array = F.lower(_letters("path")).endswith(".npy")
    return entries.where(~is_array), entries.where(is_array)


def read_array(data: bytes) -> list[int]:
    """Parse an ``.npy`` file: one row or column of at most `MAX_LABELS` integers, integral floats or booleans, within
    32 bits. Raises `RejectedError` for anything else. Nothing in the file is executed.
    """
    file = io.BytesIO(data)
    try:
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read[np.lib.format.read_magic(file)](file)
    except Exception:  # a malformed header may raise anything in the parser
        raise RejectedError("bad label array", "it is not an .npy file of numbers") from None
    count = 1
    for side in shape:
        count *= side
    if len(shape) not in (1, 2) or (len(shape) == 2 and 1 not in shape) or min(shape) < 0:
        raise RejectedError("bad label array", f"its shape is {str(shape)[:_SHOWN]} instead of one row")
    if dtype.kind not in "biuf":
        raise RejectedError("bad label array", f"it has {str(dtype)[:_SHOWN]} instead of numbers")
    if count > MAX_LABELS:
        raise RejectedError("bad label array", f"it has {count} numbers, more than {MAX_LABELS}")
    if len(data) - file.tell() < count * dtype.itemsize:
        raise RejectedError("bad label array", f"it is truncated: it should have {count} numbers")
    values = np.frombuffer(data, dtype, count, file.tell())
    if dtype.kind == "f" and not (np.isfinite(values) & (values == np.rint(values))).all():
        raise RejectedError("bad label array", "not all of its numbers are whole")
    if count and (int(values.min()) < _INT32.min or int(values.max()) > _INT32.max):
        raise RejectedError("bad label array", "not all of its numbers fit into 32 bits")
    return [int(value) for value in values.tolist()]


def _letters(column: str) -> Column:
    return F.decode(column, "ISO-8859-1")


def _stem() -> Column:
    """The path without its extension, as Latin-1. A name whose only dot is the first character has no extension."""
    return F.regexp_replace(_letters("path"), r"(?<=[^/])\.[^./]*\z", "")
