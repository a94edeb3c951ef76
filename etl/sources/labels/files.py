"""Label files: a table with a row for each image, or one number per line in the order of the images' names."""

import codecs
import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from etl.batches import arrow_schema, batch_of
from etl.errors import SourceError, one_line
from etl.secrets import driver_storage, executor_storage
from etl.sources.entries import text
from etl.sources.labels.values import LabelError, class_label_names, is_label_type, label_texts
from etl.workers import map_items
from formats.errors import StorageError
from formats.image_names import EXTENSIONS
from formats.sizes import counted
from formats.stores.storage import Storage
from schemas.tables import ClassNames

LABELS = "path BINARY, label STRING, group STRING"
LINES = "line BIGINT, label STRING"

_BATCH_ROWS = 10_000
_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_LINE = re.compile(rb"[+-]?[0-9]{1,18}")
_LINE_BYTES = 100
_NAME_BYTES = 4096
_BOM = b"\xef\xbb\xbf"
_LONG = 100
_DELIMITERS = {",": "a comma", "\t": "a tab", " ": "a space"}
# The columns of Kaggle's label files for ImageNet: a name without extension, and words that begin with the class.
_KAGGLE = ("ImageId", "PredictionString")


class LabelTable(NamedTuple):
    """A label file with a row for each image."""

    rows: DataFrame  # of `LABELS`
    order: tuple[str, ...]  # the class names in the schema of a .parquet file, by their numbers
    by_stem: bool  # whether the names in its first rows have no extensions of images


def read_labels(
    spark: SparkSession,
    address: str,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    class_names: ClassNames | None = None,
) -> LabelTable:
    """Open a .csv, .tsv or .parquet file, whose rows one task reads; ``group`` may be null. Raises `SourceError` if the
    file or a column is missing or has other values; the task does for damage further down.
    """
    storage_at = partial(driver_storage, spark)
    if not address.lower().endswith(".parquet"):
        with opened(address, storage_at) as file:
            check_rows(file, address)
    with opened(address, storage_at) as file:
        schema = _schema(file, address)
    is_kaggle = {*_KAGGLE} <= {*schema.names}
    path, label = _KAGGLE if is_kaggle else ("path", "label")
    wanted = [path_column or path, label_column or label, *([] if group_column is None else [group_column])]
    missing = [column for column in wanted if schema.names.count(column) != 1]
    if missing:
        raise SourceError(
            f"Wanted the column {missing[0]!r} once in {address}. Found: {', '.join(schema.names)}. "
            "Set --path-column, --label-column and --group-column."
        )
    for column, kind in zip(schema.names, schema.types, strict=True):
        if column in wanted and not (is_label_type(kind) if column == wanted[1] else _is_readable(kind)):
            what = "text or whole numbers" if column == wanted[1] else "text or integers"
            raise SourceError(f"Wanted {what} in the column {column!r} of {address}. Found: {kind}.")
    order = () if class_names == "number" else class_label_names(schema, wanted[1])
    with opened(address, storage_at) as file:
        first = next(_read(file, address, wanted[:1]), None)
    names = [] if first is None else _as_bytes(first.column(0)).to_pylist()
    rows = map_items(spark, [address], task=partial(_label_batches, wanted=wanted, order=order), schema=LABELS)
    return LabelTable(rows, order, by_stem=bool(names) and not any(map(has_extension, names)))


def check_rows(file: IO[bytes], address: str) -> None:
    """Raise `SourceError` unless a text file has rows of equal length, in UTF-8, and both quotes around values."""
    _check_encoding(file.read(_NAME_BYTES), address)
    file.seek(0)
    lines = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(lines, delimiter=_delimiter(address), strict=True)
    line, columns = 1, 0
    try:
        for row in reader:
            columns = columns or len(row)
            if row and len(row) != columns:
                raise _uneven(row, columns, line, address)
            line = reader.line_num + 1
    except csv.Error as error:  # a quote that never closes would make one value of all rows after it
        what = {"unexpected end of data": "a quote that is never closed"}.get(str(error), str(error))
        raise SourceError(
            f"Wanted quotes around whole values in {address}. Found: {what}, in the row that begins on line {line:,}. "
            "Write a quote inside of a value twice."
        ) from None
    finally:
        lines.detach()
    if not columns:
        raise SourceError(
            f"Wanted a label file with a row for each image at {address}. Found: an empty file. "
            "Write the names of the columns first, such as path and label."
        )


def _check_encoding(head: bytes, address: str) -> None:
    """Raise `SourceError` if the first bytes of a text file are of UTF-16, or have zero bytes as it has."""
    is_marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if is_marked or b"\0" in head:
        found = "UTF-16" if is_marked else "zero bytes, as in UTF-16"
        raise SourceError(f"Wanted a label file in UTF-8 at {address}. Found: {found}. Save it as UTF-8.")


def _uneven(row: Sequence[str], columns: int, line: int, address: str) -> SourceError:
    delimiter = _delimiter(address)
    return SourceError(
        f"Wanted {counted(columns, 'value')} in each row of {address}, as in its first. Found: {len(row):,}, in "
        f"the row that begins on line {line:,}: {delimiter.join(row)[:_LONG]!r}. Write one value for each column, "
        f"with quotes around a value that contains {_DELIMITERS[delimiter]}."
    )


def has_names(spark: SparkSession, address: str) -> bool:
    """Whether the first line of a .txt file has an image name and a number, as in Caffe's files for ImageNet."""
    with opened(address, partial(driver_storage, spark)) as file:
        line = file.readline(_NAME_BYTES)
    _check_encoding(line, address)
    words = line.removeprefix(_BOM).split()
    return len(words) == 2 and has_extension(words[0]) and _LINE.fullmatch(words[1]) is not None


def has_extension(name: bytes) -> bool:
    """Whether a name has the extension of an image."""
    return name.rpartition(b"/")[2].rpartition(b".")[2].lower() in EXTENSIONS and b"." in name.rpartition(b"/")[2]


def read_label_lines(spark: SparkSession, address: str) -> DataFrame:
    """Read the lines of a .txt file, one integer each, as rows of `LINES`, counted from 1. It may end with blank lines.
    Raises `SourceError` for a missing file and other lines.
    """
    with opened(address, partial(driver_storage, spark)) as file:
        for _ in _numbers(file, address):
            pass
    return map_items(spark, [address], task=_line_batches, schema=LINES)


def _label_batches(
    addresses: Iterable[str], *, wanted: Sequence[str], order: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes the address and yields rows of `LABELS`."""
    for address in addresses:
        rows = 0
        with opened(address, executor_storage) as file:
            for batch in _read(file, address, sorted(set(wanted))):
                path, label, *group = (batch.column(column) for column in wanted)
                groups = _as_text(group[0]) if group else pa.nulls(batch.num_rows, pa.string())
                try:
                    labels = label_texts(label, names=order)
                except LabelError as error:
                    raise SourceError(
                        f"Wanted labels in the column {wanted[1]!r} of {address}. Found: {error}, in row "
                        f"{rows + error.row + 1:,}. {error.mend}"
                    ) from None
                rows += batch.num_rows
                if wanted[1] == _KAGGLE[1]:
                    labels = pc.list_element(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(labels)), 0)
                columns = [_as_bytes(path), labels, groups]
                yield pa.RecordBatch.from_arrays(columns, names=["path", "label", "group"])


def _line_batches(addresses: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes the address and yields rows of `LINES`."""
    for address in addresses:
        with opened(address, executor_storage) as file:
            numbered = ((line, str(number)) for line, number in enumerate(_numbers(file, address), start=1))
            while rows := list(islice(numbered, _BATCH_ROWS)):
                yield batch_of(rows, arrow_schema(LINES))


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


def _read(file: IO[bytes], address: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of a table of labels, piece by piece; those of text files as bytes."""
    if address.lower().endswith(".parquet"):
        yield from pq.ParquetFile(file).iter_batches(batch_size=_BATCH_ROWS, columns=list(columns))
    else:
        types = dict.fromkeys(columns, pa.binary())
        convert = pa_csv.ConvertOptions(include_columns=list(columns), column_types=types)
        yield from pa_csv.open_csv(file, _reading(address), _parsing(address), convert)


def _schema(file: IO[bytes], address: str) -> Any:
    """The Arrow schema of a table of labels; values of text files are bytes."""
    if address.lower().endswith(".parquet"):
        return pq.read_schema(file)
    with pa_csv.open_csv(file, _reading(address), _parsing(address)) as reader:
        return pa.schema([(column, pa.binary()) for column in reader.schema.names])


def _reading(address: str) -> Any:
    return pa_csv.ReadOptions(column_names=["path", "label"] if address.lower().endswith(".txt") else None)


def _parsing(address: str) -> Any:
    return pa_csv.ParseOptions(delimiter=_delimiter(address), newlines_in_values=True)


def _delimiter(address: str) -> str:
    return {".tsv": "\t", ".txt": " "}.get(address[-4:].lower(), ",")


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


@contextmanager
def opened(address: str, storage_at: Callable[[str], Storage]) -> Iterator[IO[bytes]]:
    """Open a file. Errors of reading it become `SourceError`."""
    folder, _, name = (address if "://" in address else os.path.abspath(address)).rpartition("/")
    try:
        with storage_at(folder or "/").open(name) as file:
            yield file
    except FileNotFoundError:
        raise SourceError(f"Wanted a label file at {address}. Found: nothing there.") from None
    except StorageError as error:
        raise SourceError(str(error)) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        line = one_line(error)[:500]
        raise SourceError(f"Wanted a readable label file at {address}. Found: {line}") from None
