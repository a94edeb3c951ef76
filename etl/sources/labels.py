"""Labels from a file: a table with a row for each image, or one number per line in the order of the images' names.

Paths are compared byte by byte, as they are on disk and in the file.
"""

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from etl.errors import SourceError, one_line
from etl.secrets import driver_storage, executor_storage
from etl.sources.entries import text
from etl.workers import map_batches
from formats.errors import StorageError
from formats.image_names import EXTENSIONS

log = logging.getLogger(__name__)

LABELS = "path BINARY, label STRING, group STRING"
LINES = "line BIGINT, label STRING"

_BATCH_ROWS = 10_000
_SHOWN = 5
_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_NO_FILE = ("not a regular file", "broken link", "link loop", "unreadable folder", "unsafe name")
_NUMBER = re.compile(r"\s*0*([0-9]+)\s*")
_LINE = re.compile(rb"[+-]?[0-9]{1,18}")
_LINE_BYTES = 100
_NAME_BYTES = 4096
_BOM = b"\xef\xbb\xbf"
_KAGGLE = ("ImageId", "PredictionString")
"""The columns of Kaggle's label files for ImageNet: a name without extension, and words; the first is the class."""


def read_labels(
    spark: SparkSession,
    address: str,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
) -> DataFrame:
    """Read a .csv, .tsv or .parquet file as rows of `LABELS`, in one task. ``group`` may be null.

    The default columns are ``path`` and ``label``, or those of Kaggle's files for ImageNet (``ImageId``, and
    ``PredictionString``, whose first word is the class). Raises `SourceError` if the file or a column is missing, or if
    a column has neither text nor integers; the task raises it if the file is damaged further down.
    """
    folder, name = _parted(address)
    with _read_errors(address), driver_storage(spark, folder).open(name) as file:
        kinds = _columns(file, name)
    wanted = _wanted(kinds, path_column, label_column, group_column)
    missing = [column for column in wanted if [found for found, _ in kinds].count(column) != 1]
    if missing:
        there = ", ".join(found for found, _ in kinds)
        raise SourceError(
            f"Wanted the column {missing[0]!r} once in {address}. Found: {there}. "
            "Set --path-column, --label-column and --group-column."
        )
    for column, kind in kinds:
        if column in wanted and not _is_readable(kind):
            raise SourceError(f"Wanted text or integers in the column {column!r} of {address}. Found: {kind}.")
    return map_batches(_task(spark), task=partial(_label_batches, address=address, wanted=wanted), schema=LABELS)


def has_names(spark: SparkSession, address: str) -> bool:
    """Whether the first line of a .txt file has an image name and a number, as in Caffe's files for ImageNet.

    `read_labels` reads such a file, and `read_label_lines` reads others.
    """
    folder, name = _parted(address)
    with _read_errors(address), driver_storage(spark, folder).open(name) as file:
        words = file.readline(_NAME_BYTES).removeprefix(_BOM).split()
    return len(words) == 2 and has_extension(words[0]) and _LINE.fullmatch(words[1]) is not None


def lack_extensions(spark: SparkSession, address: str, *, path_column: str | None = None) -> bool:
    """Whether the names in the first rows of a file for `read_labels` have no extensions of images."""
    folder, name = _parted(address)
    with _read_errors(address), driver_storage(spark, folder).open(name) as file:
        column = _wanted(_columns(file, name), path_column, None, None)[0]
    with _read_errors(address), driver_storage(spark, folder).open(name) as file:
        batch = next(_read(file, name, [column]), None)
    names = [] if batch is None else _as_bytes(batch.column(column)).to_pylist()
    return bool(names) and not any(has_extension(one) for one in names)


def has_extension(name: bytes) -> bool:
    """Whether a name has the extension of an image."""
    return name.rpartition(b"/")[2].rpartition(b".")[2].lower() in EXTENSIONS and b"." in name.rpartition(b"/")[2]


def read_label_lines(spark: SparkSession, address: str) -> DataFrame:
    """Read the lines of a .txt file, one integer each, as rows of `LINES`, counted from 1. It may end with blank lines.

    Raises `SourceError` if the file is missing or has a line that is not an integer.
    """
    folder, name = _parted(address)
    with _read_errors(address), driver_storage(spark, folder).open(name) as file:
        for _ in _numbers(file, address):
            pass
    return map_batches(_task(spark), task=partial(_line_batches, address=address), schema=LINES)


def label_by_file(entries: DataFrame, *, labels: DataFrame, name: str, by_stem: bool = False) -> DataFrame:
    """Add to each image the label and group of its row in ``labels`` (of `LABELS`, from a file called ``name``).

    A row matches an image if its path is the image's path, or the image's split, ``/`` and path. ``by_stem`` ignores
    the extension of the image's path. An image without a row, without a label, or with two different labels is rejected
    for this reason, and so are images that differ only in an ignored extension. An image that has a reason already
    keeps it.
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
    if by_stem:
        same = F.count_if(_is_file()).over(Window.partitionBy("or_split", image_name(by_stem=True)))
        entries, columns = entries.withColumn("_same", same), entries.columns
        reason = F.when(
            F.col("_same") > 1, F.lit(f"no label: images of the same name without extension, as names are in {name}")
        ).otherwise(reason)
    else:
        columns = entries.columns
    changed = {
        "or_label": F.when(reason.isNull(), low),
        "group_id": F.when(reason.isNull(), F.coalesce(low_group, "group_id")),
        "reason": F.coalesce("reason", reason),
    }
    path = image_name(by_stem=by_stem)
    joined = entries.join(by_path, on=path == F.col("_path"), how="left").join(
        by_name, on=full_name(path) == F.col("_name"), how="left"
    )
    return joined.select([changed[c].alias(c) if c in changed else F.col(c) for c in columns])


def image_name(*, by_stem: bool) -> Column:
    """The path by which an image is looked up: its path, or the path without the extension of an image."""
    if not by_stem:
        return F.col("path")
    last = F.substring_index(F.col("path").cast("string"), "/", -1)
    ending = F.lower(F.substring_index(last, ".", -1))
    stem = F.expr("substring(path, 1, length(path) - length(substring_index(CAST(path AS STRING), '.', -1)) - 1)")
    is_told = last.contains(".") & ending.isin([one.decode() for one in EXTENSIONS])
    return F.when(is_told, stem).otherwise(F.col("path"))


def full_name(path: Column) -> Column:
    """A path with the split of the image, if it has one."""
    return F.when(F.length("or_split") == 0, path).otherwise(F.concat("or_split", F.lit(b"/"), path))


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
    """Add to the n-th file, sorted by the bytes of split and path, the label of the n-th of ``lines``.

    Only regular files count. `check_lines` checks that there are as many lines as files.
    """
    ranked = entries.withColumn("_file", _is_file())
    order = Window.partitionBy("_file").orderBy("or_split", "path")
    ranked = ranked.withColumn("_line", F.when(F.col("_file"), F.row_number().over(order)))
    numbers = lines.select(F.col("line").alias("_number"), F.col("label").alias("_label"))
    reason = F.when(F.col("_label").isNull(), F.lit(f"no label: not in {name}"))
    changed = {"or_label": F.col("_label"), "reason": F.coalesce("reason", reason)}
    joined = ranked.join(numbers, on=F.col("_line") == F.col("_number"), how="left")
    return joined.select([changed[c].alias(c) if c in changed else F.col(c) for c in entries.columns])


def check_lines(entries: DataFrame, *, lines: DataFrame, name: str) -> None:
    """Raise `SourceError` unless there is one line per file. Counts both, so persist the entries first."""
    files, wanted = entries.where(_is_file()).count(), lines.count()
    if files != wanted:
        raise SourceError(
            f"Wanted a line in {name} for each image, in the order of their names. "
            f"Found: {wanted:,} lines and {files:,} files. The source must have these images and no other files."
        )


def class_numbers_of(names: Iterable[str]) -> dict[str, int]:
    """Class names that are numbers from 0 to 2**31 - 1, with their numbers. Raises `SourceError` for others."""
    names = sorted(set(names))
    numbers = {name: int(digits[1]) for name in names if (digits := _NUMBER.fullmatch(name)) and len(digits[1]) <= 10}
    others = [name for name in names if numbers.get(name, 1 << 31) >= 1 << 31]
    if others:
        shown = ", ".join(repr(name) for name in others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
        raise SourceError(
            f"Wanted class names that are numbers from 0 to {(1 << 31) - 1}, for --class-names number. "
            f"Found: {shown}. Set --class-names name to number the classes by name."
        )
    return numbers


def all_integers(names: Iterable[str]) -> bool:
    """Whether there are names, and all are integers of 0 or more."""
    names = set(names)
    return bool(names) and all(_NUMBER.fullmatch(name) for name in names)


def warn_of_integers(names: Collection[str]) -> None:
    """Warn of class names that are integers, unless --class-names says whether they are numbers."""
    log.warning(
        "All %d class names are integers. They get numbers as names, in code-point order: 10 comes before 2. "
        "If they are class numbers, set --class-names number. Set --class-names name to silence this warning.",
        len(names),
    )


def _label_batches(
    batches: Iterable[pa.RecordBatch], *, address: str, wanted: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Run the task: it ignores its one row and yields rows of `LABELS`."""
    if not sum(batch.num_rows for batch in batches):
        return
    folder, name = _parted(address)
    with _read_errors(address), executor_storage(folder).open(name) as file:
        for batch in _read(file, name, sorted(set(wanted))):
            path, label, *group = (batch.column(column) for column in wanted)
            groups = _as_text(group[0]) if group else pa.nulls(batch.num_rows, pa.string())
            labels = _as_text(label)
            if wanted[1] == _KAGGLE[1]:
                labels = pc.list_element(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(labels)), 0)
            columns = [_as_bytes(path), labels, groups]
            yield pa.RecordBatch.from_arrays(columns, names=["path", "label", "group"])


def _line_batches(batches: Iterable[pa.RecordBatch], *, address: str) -> Iterator[pa.RecordBatch]:
    """Run the task: it ignores its one row and yields rows of `LINES`."""
    if not sum(batch.num_rows for batch in batches):
        return
    folder, name = _parted(address)
    with _read_errors(address), executor_storage(folder).open(name) as file:
        numbered = enumerate(_numbers(file, address), start=1)
        while rows := list(islice(numbered, _BATCH_ROWS)):
            lines = pa.array([line for line, _ in rows], pa.int64())
            labels = pa.array([str(number) for _, number in rows], pa.string())
            yield pa.RecordBatch.from_arrays([lines, labels], names=["line", "label"])


def _numbers(file: IO[bytes], address: str) -> Iterator[int]:
    blank = 0
    for number, piece in enumerate(iter(partial(file.readline, _LINE_BYTES), b""), start=1):
        line = (piece.removeprefix(_BOM) if number == 1 else piece).strip()
        if not line:
            blank = blank or number
            continue
        if blank or not _LINE.fullmatch(line):
            what = f"{text(line)!r} on line {number}" if not blank else f"line {blank} is blank, and more follows"
            raise SourceError(f"Wanted one integer on each line of {address}. Found: {what}.")
        yield int(line)


def _wanted(
    kinds: Sequence[tuple[str, Any]], path_column: str | None, label_column: str | None, group_column: str | None
) -> list[str]:
    """The columns of paths, labels and, on request, groups."""
    is_kaggle = {*_KAGGLE} <= {name for name, _ in kinds}
    path, label = _KAGGLE if is_kaggle else ("path", "label")
    return [path_column or path, label_column or label, *([] if group_column is None else [group_column])]


def _read(file: IO[bytes], name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of a table of labels, piece by piece; those of text files as bytes."""
    if name.lower().endswith(".parquet"):
        yield from pq.ParquetFile(file).iter_batches(batch_size=_BATCH_ROWS, columns=list(columns))
    else:
        types = dict.fromkeys(columns, pa.binary())
        convert = pa_csv.ConvertOptions(include_columns=list(columns), column_types=types)
        yield from pa_csv.open_csv(file, _reading(name), _parsing(name), convert)


def _columns(file: IO[bytes], name: str) -> list[tuple[str, Any]]:
    """The names and types of the columns of a table of labels."""
    if name.lower().endswith(".parquet"):
        schema = pq.ParquetFile(file).schema_arrow
        return list(zip(schema.names, schema.types, strict=True))
    with pa_csv.open_csv(file, _reading(name), _parsing(name)) as reader:
        return [(column, pa.binary()) for column in reader.schema.names]


def _reading(name: str) -> Any:
    return pa_csv.ReadOptions(column_names=["path", "label"] if name.lower().endswith(".txt") else None)


def _parsing(name: str) -> Any:
    delimiter = {".tsv": "\t", ".txt": " "}.get(name[-4:].lower(), ",")
    return pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _is_readable(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in _TEXT or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)


def _as_bytes(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column if column.type in _TEXT else _as_text(column)
    return column.cast(pa.binary()).fill_null(b"")


def _as_text(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):  # integers with gaps, as pandas stores them
        column = column.cast(pa.int64())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())


def _task(spark: SparkSession) -> DataFrame:
    """One row, for one task."""
    return spark.range(1, numPartitions=1)


def _parted(address: str) -> tuple[str, str]:
    """The folder and the name of a file."""
    folder, _, name = (address if "://" in address else os.path.abspath(address)).rpartition("/")
    return folder or "/", name


@contextmanager
def _read_errors(address: str) -> Iterator[None]:
    """Translate errors of reading a file into `SourceError`."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"Wanted a label file at {address}. Found: nothing there.") from None
    except StorageError as error:
        raise SourceError(str(error)) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        line = one_line(error)[:500]
        raise SourceError(f"Wanted a readable label file at {address}. Found: {line}") from None


def _is_file() -> Column:
    kind = F.substring_index("reason", ": ", 1)
    return F.col("reason").isNull() | ~kind.isin(*_NO_FILE)


def _prefixed(prefix: str) -> list[Column]:
    return [F.col(name).alias(prefix + name) for name in ("low", "high", "low_group", "high_group")]
