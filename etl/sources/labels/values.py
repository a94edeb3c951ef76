"""What the label of an image means: the name of a class, its number, or that there is no label.

Each source turns its labels into text with `label_text` or `label_texts`. `LabelMeaning` then decides for all texts of
a source together, so that a label means the same in a Parquet column, a label file and a shard.
"""

import json
import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DoubleType, FloatType

from etl.errors import SourceError
from etl.frames import small_table
from etl.sources.entries import replaced
from etl.sources.plan import SourcePlan

log = logging.getLogger(__name__)

MAX_NUMBER = (1 << 31) - 1  # the largest class number

_SHOWN = 5
_DIGITS = 10
_LONG = 80
_AROUND = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
_WHOLE = re.compile(r"([+-]?)0*([0-9]+)(?:\.0*)?")
_NUMERIC = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity)", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)


class LabelError(ValueError):
    """A value is not a label. ``row`` is its place in its column, from 0; ``mend`` is what to do."""

    def __init__(self, found: str, *, mend: str = "", row: int = 0) -> None:
        super().__init__(found)
        self.mend, self.row = mend, row


def label_text(value: object) -> str | None:
    """The text of a label of any type, or None for no label (null, NaN). Raises `LabelError`."""
    match value:
        case bool() | int():  # True and False, as in Python and in its CSV files
            return str(value)
        case float() | Decimal():
            if math.isnan(value):
                return None
            # whole numbers have no decimal point
            return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
        case bytes():
            try:
                return label_text(value.decode())
            except UnicodeDecodeError:
                raise LabelError(f"{value[:_LONG]!r}, which is not UTF-8", mend="Save labels as UTF-8.") from None
        case str():
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise LabelError(f"{value[:_LONG]!a}, which is not Unicode", mend="Save labels as UTF-8.")
            if "\n" in bare(value) or "\r" in bare(value):
                raise LabelError(f"{value[:_LONG]!r}, which has several lines", mend="Is a quote missing?")
            return value
        case None:
            return None
    raise LabelError(f"a {type(value).__name__}")


def is_label_type(kind: Any) -> bool:
    """Whether the values of an Arrow type can be labels."""
    of = pa.types
    if of.is_dictionary(kind):
        kind = kind.value_type
    is_text = of.is_string(kind) or of.is_large_string(kind) or of.is_binary(kind) or of.is_large_binary(kind)
    is_number = of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)
    return bool(is_text or is_number or of.is_boolean(kind) or of.is_null(kind))


def label_texts(column: Any, *, names: Sequence[str] = ()) -> Any:
    """Make text of an Arrow array of labels, of a type that `is_label_type` accepts. Numbers become ``names`` of
    classes, if there are such. Raises `LabelError` if a label is not UTF-8, or has no name.
    """
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts: list[str | None] = []
    for place, value in enumerate(column.dictionary.to_pylist()):
        try:
            texts.append(_named(value, names))
        except LabelError as error:
            raise LabelError(str(error), mend=error.mend, row=column.indices.to_pylist().index(place)) from None
    return pa.array(texts, pa.string()).take(column.indices)


def _named(value: object, names: Sequence[str]) -> str | None:
    if not names or not isinstance(value, int) or value < 0:  # a negative number often means no label
        return label_text(value)
    if value >= len(names):
        raise LabelError(f"{value}, and {len(names):,} class names in the schema", mend="Set --class-names number.")
    return names[value]


def spark_label_text(column: Column, kind: DataType) -> Column:
    """`label_text` of a Spark column of this type."""
    shown = column.cast("string")
    if isinstance(kind, BooleanType):
        return F.initcap(shown)
    if isinstance(kind, (FloatType, DoubleType)):
        whole = F.floor(column)
        shown = F.when(column == whole, whole.cast("string")).otherwise(shown)
        return F.when(~F.isnan(column), shown)
    return shown


def class_label_names(schema: Any, column: str | None) -> tuple[str, ...]:
    """The class names, by their numbers, of a column in the schema of a Parquet file that `datasets` (Hugging Face) has
    written; none if it has no such names. Raises `SourceError` if they are not different names.
    """
    if column is None or column not in schema.names or not pa.types.is_integer(schema.field(column).type):
        return ()
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][column]
        names = feature["names"] if feature["_type"] == "ClassLabel" else None
    except (KeyError, TypeError, ValueError):
        return ()
    if not names:
        return ()
    if not isinstance(names, list) or len({bare(name) for name in names if isinstance(name, str)} - {""}) < len(names):
        raise SourceError(
            f"Wanted different names of the classes of the column {column!r} in the schema. Found: "
            f"{str(names)[:200]}. Set --class-names number to use the numbers."
        )
    return tuple(map(bare, names))


def bare(text: str) -> str:
    """A text without the blanks and byte order marks around it."""
    return _AROUND.sub("", text)


def number_of(text: str) -> int | None:
    """The whole number in a text such as ``7``, ``007``, ``+7`` or ``7.0``; None if it has none, or a huge one."""
    found = _WHOLE.fullmatch(bare(text))
    if found is None or len(found[2]) > _DIGITS:
        return None
    return -int(found[2]) if found[1] == "-" else int(found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMeaning:
    """The classes that the label texts of a source mean."""

    classes: Mapping[str, str | None] = field(default_factory=dict)  # the class of each text; None for no label
    left_out: frozenset[str] = frozenset()  # the texts of images that are not ingested
    remarks: tuple[str, ...] = ()  # lines for the report

    @classmethod
    def of(
        cls, texts: Collection[str], *, plan: SourcePlan, order: Sequence[str] = (), known: Collection[str] = ()
    ) -> "LabelMeaning":
        """Decide what texts mean. If all labels of a source are numbers, they are class numbers; names of folders only
        with --class-names number. Raises `SourceError` if labels that should be class numbers are none.
        """
        if plan.label_type != "int":
            return cls(classes={text: text for text in texts})
        wanted = None if plan.no_label is None else _canonical(plan.no_label)
        left_out = frozenset(text for text in texts if wanted is not None and _canonical(text) == wanted)
        texts = sorted(set(texts) - left_out)
        if order and (others := [text for text in texts if text not in order]):
            raise SourceError(
                f"Wanted labels from 0 to {len(order) - 1}, for the class names in the schema of "
                f"{plan.labels or plan.address}. Found: {listed(others)}. {_no_label(others)}"
            )
        if _are_numbers(texts, plan):
            return cls(classes=_numbers(texts, plan), left_out=left_out)
        if plan.by_folder:
            return cls(classes={text: text for text in texts}, left_out=left_out)
        names = {text: bare(text) for text in texts}
        # A class keeps the spelling of an earlier version, which had `true` and `2.0` where this one has `True` and
        # `2`, and blanks around names.
        earlier = {_as_now(name): name for name in sorted(known) if _as_now(name) not in known} if known else {}
        earlier = {now: name for now, name in earlier.items() if name not in names.values()}
        classes = {text: earlier.get(name, name) or None for text, name in names.items()}
        return cls(classes=classes, left_out=left_out, remarks=_mixed(texts, plan))

    @property
    def names(self) -> frozenset[str]:
        """The names of the classes."""
        return frozenset(name for name in self.classes.values() if name is not None)

    @property
    def is_literal(self) -> bool:
        """Whether each text is the name of its class."""
        return not self.left_out and all(text == name for text, name in self.classes.items())

    def apply(self, entries: DataFrame) -> DataFrame:
        """Replace the label texts of a listing (`ENTRIES`) by class names, without the images that are left out."""
        columns = entries.columns
        if self.left_out:
            entries = entries.where(F.coalesce(~F.col("or_label").isin(*sorted(self.left_out)), F.lit(True)))
        changed = {text: name for text, name in self.classes.items() if text != name}
        if not changed:
            return entries
        table: dict[str, list[str | None]] = {"_text": [*changed], "_name": [*changed.values()]}
        names = F.broadcast(small_table(entries.sparkSession, table, "_text STRING, _name STRING"))
        entries = entries.join(names, on=F.col("or_label") == F.col("_text"), how="left")
        is_changed = F.col("_text").isNotNull()
        new = {
            "or_label": F.when(is_changed, F.col("_name")).otherwise(F.col("or_label")),
            "reason": F.coalesce("reason", F.when(is_changed & F.col("_name").isNull(), "no label")),
        }
        return entries.select(replaced(columns, new))


def class_numbers(names: Collection[str], *, plan: SourcePlan) -> dict[str, int] | None:
    """The number of each class (of `LabelMeaning.names`) if the names are numbers; None if names get numbers."""
    if names and _are_numbers(names, plan):  # each is written in one way: 02 and 2.0 are the class 2
        return {name: int(name) for name in sorted(names)}
    if plan.by_folder and plan.class_names is None and names and all(map(is_number, names)):
        log.warning(
            "All %d class names are integers. They get numbers as names, in code-point order: 10 comes before 2. "
            "If they are class numbers, set --class-names number. Set --class-names name to silence this warning.",
            len(names),
        )
    return {} if plan.class_names == "number" else None


def is_number(text: str) -> bool:
    """Whether a text is a class number."""
    number = number_of(text)
    return number is not None and 0 <= number <= MAX_NUMBER


def listed(texts: Sequence[str]) -> str:
    """The first few of some texts, quoted."""
    return ", ".join(repr(text[:_LONG]) for text in texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")


def _are_numbers(texts: Iterable[str], plan: SourcePlan) -> bool:
    """Whether labels are class numbers."""
    if plan.class_names is not None or plan.by_folder:
        return plan.class_names == "number"
    stripped = {bare(text) for text in texts} - {""}
    return any(map(_NUMERIC.fullmatch, stripped)) and all(
        _NUMERIC.fullmatch(text) or _NAN.fullmatch(text) for text in stripped
    )


def _numbers(texts: Iterable[str], plan: SourcePlan) -> dict[str, str | None]:
    """Class numbers as text; None for NaN and blanks. Raises `SourceError` for other texts."""
    no_label = {text for text in texts if not plan.by_folder and (not bare(text) or _NAN.fullmatch(bare(text)))}
    if others := [bare(text) for text in texts if text not in no_label and not is_number(text)]:
        why = "for --class-names number" if plan.class_names else "because all labels are numbers"
        raise SourceError(
            f"Wanted class names that are numbers from 0 to {MAX_NUMBER}, {why}. Found: {listed(others)}. "
            f"{_no_label(others)}Set --class-names name to number the classes by name."
        )
    return {text: None if text in no_label else str(number_of(text)) for text in texts}


def _no_label(texts: Sequence[str]) -> str:
    """What to do about a negative number."""
    number = next((number for text in texts if (number := number_of(text)) is not None and number < 0), None)
    return "" if number is None else f"If {number} means no label, leave these images out with --no-label {number}. "


def _mixed(texts: Sequence[str], plan: SourcePlan) -> tuple[str, ...]:
    """A remark on names of classes of which some are numbers."""
    words = [text for text in texts if not _NUMERIC.fullmatch(bare(text))]
    if plan.class_names is not None or len(words) in (0, len(texts)):
        return ()
    return (
        f"{len(texts) - len(words):,} of {len(texts):,} class names are numbers and others are not "
        f"({listed(words)}): all get numbers by name (--class-names name silences this)",
    )


def _as_now(name: str) -> str:
    """How this version writes a class name that an earlier one has made of a value."""
    name = bare(name)
    number = number_of(name) if name.endswith(".0") else None
    return {"true": "True", "false": "False"}.get(name, name) if number is None else str(number)


def _canonical(text: str) -> str:
    number = number_of(text)
    return bare(text) if number is None else str(number)
