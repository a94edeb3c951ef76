"""The options of a split, validated on construction and stored in the manifest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

from schemas import Columns, TableName
from schemas.as_of import AsOf
from schemas.features import ServiceName, ViewName
from schemas.manifest import NEWER

USUAL_RATIOS = (Fraction(8), Fraction(2))
BALANCES = ("original", "random", "uniform")
LABELS = "labels"  # the column with several labels per image, and the name for stratifying by them

_NUMBER = re.compile(r"[0-9]{1,99}(?:\.[0-9]{1,99})?|\.[0-9]{1,99}")
_RATIOS = "Wanted split ratios as numbers above 0 with commas between them, as in 8,2."
_WEIGHT = re.compile(rf"(?P<name>.+?)=(?P<weight>{_NUMBER.pattern})(?:,|$)")  # a name may contain commas
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://")
_STRANGE = re.compile(r"[\[\]{}*?:^\\]")
MAX_DISTANCE = 8  # the most bits in which the perceptual hashes of images that look alike may differ
MOST_SPLITS = 100  # each row is compared with the end of each split, in expressions that Spark compiles

LabelsOfReplaced = Literal["newer", "keep"]
Balance = str | tuple[Fraction, ...] | tuple[tuple[str, Fraction], ...]


def parse_numbers(text: str, *, what: str) -> tuple[Fraction, ...]:
    """Parse numbers of 0 or more, such as ``8,2`` or ``0.7,0.2,0.1``, exactly. Raises ValueError, which calls them
    ``what``.
    """
    items = [item.strip() for item in text.split(",")]
    if not all(_NUMBER.fullmatch(item) for item in items):
        raise ValueError(f"Wanted {what} as numbers of 0 or more with commas between them, as in 8,2. Found: {text!r}")
    return tuple(Fraction(item) for item in items)


def parse_ratios(text: str) -> tuple[Fraction, ...]:
    """Parse the proportions of splits, such as ``8,2``. Raises ValueError unless all are numbers above 0."""
    items = [item.strip() for item in text.split(",")]
    if not all(_NUMBER.fullmatch(item) and Fraction(item) > 0 for item in items):
        raise ValueError(f"{_RATIOS} Found: {text!r}")
    return tuple(Fraction(item) for item in items)


def parse_balance(text: str) -> Balance:
    """Parse ``original``, ``random``, ``uniform``, ``2,1,0.5`` or ``cat=2,dog=1``. Raises ValueError."""
    if text in BALANCES:
        return text
    if "=" not in text:
        return parse_numbers(text, what=f"a balance of {', '.join(BALANCES)}, or class weights (as 2,1 or cat=2,dog=1)")
    items = list(_WEIGHT.finditer(text))
    weights = {item["name"]: Fraction(item["weight"]) for item in items}
    is_whole = "".join(item[0] for item in items) == text and not text.endswith(",")
    if not is_whole or any(not name.strip() or name.lstrip()[0] in ",=" for name in weights):
        raise ValueError(f"Wanted class weights as NAME=NUMBER with commas between them. Found: {text!r}")
    if len(weights) < len(items):
        raise ValueError(f"Wanted one weight per class. Found: a class twice in {text!r}")
    return tuple(weights.items())


def _check_place(address: str) -> None:
    """Raise ValueError for the address of a folder or file that Spark would take for a pattern, or cannot read."""
    if not address.strip():
        raise ValueError("Wanted a folder. Found: an empty name")
    if strange := _STRANGE.search(_SCHEME.sub("", address)):
        raise ValueError(
            f"Wanted a folder or file without {strange[0]} in its name: Spark reads [ ] {{ }} * ? : ^ and \\ "
            f"in its own way. Found: {address}"
        )


def _named(column: str) -> str:
    """The name of a column unchanged. Raises ValueError for an empty one."""
    if not column.strip():
        raise ValueError(f"Wanted the name of a column. Found: {column!r}")
    return column


@dataclass(frozen=True, slots=True)
class Pin:
    """Rows with ``value`` in ``column`` go to split ``split``."""

    column: str
    value: str
    split: int

    @classmethod
    def parse(cls, text: str) -> "Pin":
        """Parse ``or_split=val:1``. Raises ValueError."""
        column, is_equal, rest = text.partition("=")
        value, colon, split = rest.rpartition(":")
        if not (is_equal and colon and split.isdecimal() and len(split) < 5):
            raise ValueError(f"Wanted a pin as COLUMN=VALUE:SPLIT, such as or_split=val:1. Found: {text!r}")
        return cls(_named(column), value, int(split))

    def __str__(self) -> str:
        return f"{self.column}={self.value}:{self.split}"


@dataclass(frozen=True, slots=True)
class Top:
    """The images of each class with the highest values in ``column``: a share of them, or a number."""

    column: str
    share: Fraction | None = None
    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Top":
        """Parse ``sharpness=10%`` or ``sharpness=500``. Raises ValueError."""
        column, _, size = text.rpartition("=")
        percent = size.removesuffix("%")
        if size != percent and _NUMBER.fullmatch(percent) and 0 < Fraction(percent) <= 100:
            return cls(_named(column), share=Fraction(percent) / 100)
        if size == percent and size.isdecimal() and 1 <= int(size) < 1 << 31:
            return cls(_named(column), count=int(size))
        raise ValueError(f"Wanted COLUMN=SHARE% or COLUMN=N, such as sharpness=10%, for --top. Found: {text!r}")

    def __str__(self) -> str:
        return f"{self.column}={number(100 * self.share)}%" if self.share is not None else f"{self.column}={self.count}"


@dataclass(frozen=True, slots=True)
class SplitRef:
    """A split folder with one of its splits, or all of them (None)."""

    address: str
    index: int | None = None

    @classmethod
    def parse(cls, text: str) -> "SplitRef":
        """Parse ``splits/OTHER`` or ``splits/OTHER:1``. Raises ValueError."""
        address, colon, index = text.rpartition(":")
        if colon and index.isdecimal() and len(index) < 5:
            text, number = address, int(index)
        else:
            number = None
        if not text:
            raise ValueError("Wanted a split folder. Found: an empty name")
        return cls(text, number)

    def __str__(self) -> str:
        return self.address if self.index is None else f"{self.address}:{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The options of one split: its input, its method and its output.

    The input is a pair of tables, or a cache of their metadata (``metadata_in``), which has the names of its tables.
    ``ratios`` has one positive number per split; None means those of ``extend``, or 8:2. ``folds`` makes this many
    pairs of training and validation splits instead. ``balance`` ``original`` keeps the proportions of the classes,
    ``uniform`` uses the same number of images of each class, and ``random`` draws a weight for each class from the
    seed; or it has one weight per class, in the order of class numbers or by name. ``per_class`` and ``limit`` cap the
    images of each class and of all splits. ``group_column`` keeps each group in one split;
    the groups of ``phash`` are the images that look alike: at most ``look_alike_bits`` of the 64 bits of
    their hashes differ. ``stratify`` has the columns
    whose combinations are split exactly; None means the label, or the labels. ``where`` selects rows, and ``top``
    those of them with the highest values. ``features`` are feature views, or services, whose values are stored
    beside the split; conditions use these versions. ``label_view`` replaces the labels, where
    ``labels_of_replaced`` decides about images that were replaced since; ``as_of`` takes images and labels of an
    earlier run, and ``skip_replaced`` leaves out those whose bytes no longer exist, ``exclude`` leaves out the
    images of other splits, and ``pins`` and ``extend`` fix the split of some images. ``dataset`` selects the class
    list; None means the dataset of the metadata table. Raises ValueError for invalid options.
    """

    data_table: TableName | None = None
    metadata_table: TableName | None = None
    out: str | None = None
    metadata_in: str | None = None
    metadata_out: str | None = None
    ratios: tuple[Fraction, ...] | None = None
    folds: int | None = None
    balance: Balance = "original"
    per_class: int | None = None
    limit: int | None = None
    group_column: str | None = None
    look_alike_bits: int = 3
    stratify: tuple[str, ...] | None = None
    where: str | None = None
    top: Top | None = None
    features: tuple[ViewName | ServiceName, ...] = ()
    label_view: ViewName | None = None
    labels_of_replaced: LabelsOfReplaced = NEWER
    as_of: str | None = None
    skip_replaced: bool = False
    exclude: tuple[SplitRef, ...] = ()
    pins: tuple[Pin, ...] = ()
    extend: str | None = None
    min_per_split: int = 0
    has_position: bool = True
    has_leak_check: bool = True
    seed: int = 0
    overwrite: bool = False
    dataset: str | None = None
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if self.metadata_in is None and not (self.data_table and self.metadata_table):
            raise ValueError("Wanted a data table and a metadata table, or a metadata cache. Found: neither")
        if self.data_table and self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two different tables for data and metadata. Found: {self.data_table} for both")
        if self.metadata_in and self.metadata_out:
            raise ValueError(
                "Wanted a metadata cache to read or one to write. Found: --metadata-ifn and --metadata-ofn"
            )
        others = [ref.address for ref in self.exclude]
        for name in (self.out, self.metadata_in, self.metadata_out, self.extend, *others):
            if name is not None:
                _check_place(name)
        if self.metadata_in and self.dataset:
            raise ValueError("Wanted --dataset or a metadata cache, which has the list of classes. Found: both")
        if self.skip_replaced and self.as_of is None:
            raise ValueError("Wanted --skip-replaced with --as-of. Found: --skip-replaced alone")
        if self.labels_of_replaced not in get_args(LabelsOfReplaced):
            wanted = " or ".join(get_args(LabelsOfReplaced))
            raise ValueError(f"Wanted {wanted} for --labels-of-replaced. Found: {self.labels_of_replaced!r}")
        if self.labels_of_replaced != NEWER and self.label_view is None:
            raise ValueError(
                f"Wanted --labels-of-replaced with --label-view. Found: --labels-of-replaced {self.labels_of_replaced} "
                "alone"
            )
        if self.as_of is not None:
            AsOf.parse(self.as_of)
        of_table = {"--features": self.features, "--label-view": self.label_view, "--as-of": self.as_of}
        for name, given in of_table.items():
            if self.metadata_in and given:
                raise ValueError(f"Wanted {name} or a metadata cache, which has labels and columns. Found: both")
        if self.features:
            self._check_stored()
        self._check_shares()
        self._check_others()
        self._check_balance()
        self._check_columns()
        self._check_numbers()

    def _check_numbers(self) -> None:
        for number, what in ((self.per_class, "--per-class"), (self.limit, "--limit")):
            if number is not None and number < 1:
                raise ValueError(f"Wanted {what} of 1 or more. Found: {number}")
        if not 0 <= self.look_alike_bits <= MAX_DISTANCE:
            raise ValueError(f"Wanted --look-alike-bits of 0 to {MAX_DISTANCE}. Found: {self.look_alike_bits}")
        if self.min_per_split < 0:
            raise ValueError(f"Wanted --min-per-split of 0 or more. Found: {self.min_per_split}")
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise ValueError(f"Wanted a seed of 64 bits. Found: {self.seed}")

    def _check_stored(self) -> None:
        from formats import is_dictionary  # imports numpy

        if not self.has_position:
            raise ValueError("Wanted positions, by which the values of --features are stored. Found: --no-position")
        if self.out is not None and is_dictionary(self.out):
            raise ValueError(f"Wanted a folder for the split, which can store --features. Found: {self.out}")

    def _check_shares(self) -> None:
        ratios = self.ratios
        if ratios is not None and (not ratios or not all(ratio > 0 for ratio in ratios)):
            raise ValueError(f"{_RATIOS} Found: {listed(ratios)!r}")
        if ratios is not None and len(ratios) > MOST_SPLITS:
            raise ValueError(f"Wanted at most {MOST_SPLITS:,} splits. Found: {len(ratios):,} ratios")
        if self.folds is not None:
            if not 2 <= self.folds <= MOST_SPLITS:
                raise ValueError(f"Wanted from 2 to {MOST_SPLITS:,} folds. Found: {self.folds}")
            for given, name in ((ratios, "--split-ratio"), (self.pins, "--pin"), (self.extend, "--extend")):
                if given:
                    raise ValueError(f"Wanted folds, which have equal shares, or {name}. Found: both")
        splits = len(ratios or USUAL_RATIOS)
        if (ratios or not self.extend) and (beyond := [pin for pin in self.pins if pin.split >= splits]):
            raise ValueError(f"Wanted pins to splits from 0 to {splits - 1}. Found: {beyond[0]}")

    def _check_others(self) -> None:
        """Check pins, and the splits to exclude or extend."""
        split_of: dict[tuple[str, str], Pin] = {}
        for pin in self.pins:
            if split_of.setdefault((pin.column, pin.value), pin).split != pin.split:
                raise ValueError(f"Wanted one split for {pin.column}={pin.value}. Found: pins to two")
        if self.extend and self.extend.rstrip("/") in {ref.address.rstrip("/") for ref in self.exclude}:
            raise ValueError(f"Wanted a split to extend or to exclude. Found: {self.extend} for both")

    def _check_columns(self) -> None:
        by = self.stratify or ()
        for column in (*by, *([] if self.group_column is None else [self.group_column])):
            _named(column)
        if self.stratify is not None and (not by or len(set(by)) < len(by)):
            raise ValueError(f"Wanted different columns to stratify by. Found: {','.join(by) or 'none'}")
        if self.group_column in (by if self.stratify is not None else ("label",)):
            raise ValueError(f"Wanted a column to group or to stratify by. Found: {self.group_column} for both")
        if by and "label" not in by and (self.balance != "original" or self.per_class is not None):
            raise ValueError(f"Wanted label among the columns to stratify by, for a balance. Found: {','.join(by)}")

    def _check_balance(self) -> None:
        if isinstance(self.balance, str):
            if self.balance not in BALANCES:
                raise ValueError(f"Wanted a balance of {', '.join(BALANCES)} or numbers. Found: {self.balance!r}")
        elif not any(self.weights) or any(weight < 0 for weight in self.weights):
            raise ValueError(f"Wanted class weights of 0 or more, one above 0. Found: {listed(self.weights)}")
        if self.per_class is not None and self.balance != "original":
            raise ValueError(f"Wanted --per-class or a balance. Found: {self.per_class} and {self.as_balance()}")

    @property
    def named_columns(self) -> list[str]:
        """The metadata columns that options name, except those in a condition."""
        top = None if self.top is None else self.top.column
        named = (*(self.stratify or ()), self.group_column, top, *(pin.column for pin in self.pins))
        return [name for name in named if name is not None]

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The weights in the given order; none for a named balance."""
        if isinstance(self.balance, str):
            return ()
        return tuple(weight[1] if isinstance(weight, tuple) else weight for weight in self.balance)

    def as_balance(self) -> str:
        """The balance as on the command line."""
        if isinstance(self.balance, str):
            return self.balance
        return ",".join(f"{w[0]}={number(w[1])}" if isinstance(w, tuple) else number(w) for w in self.balance)

    def as_options(self) -> dict[str, Any]:
        """The options for the manifest: by their command-line names, with numbers as on the command line."""
        return {
            "data-table": self.data_table and str(self.data_table),
            "metadata-table": self.metadata_table and str(self.metadata_table),
            "metadata-ifn": self.metadata_in,
            "metadata-ofn": self.metadata_out,
            "split-ofn": self.out,
            "split-ratio": self.ratios and listed(self.ratios),
            "folds": self.folds,
            "balance": self.as_balance(),
            "per-class": self.per_class,
            "limit": self.limit,
            "group-column": self.group_column,
            "look-alike-bits": self.look_alike_bits,
            "stratify": self.stratify and ",".join(self.stratify),
            "where": self.where,
            "top": self.top and str(self.top),
            "features": [str(view) for view in self.features],
            "label-view": self.label_view and str(self.label_view),
            "labels-of-replaced": self.labels_of_replaced,
            "as-of": self.as_of,
            "skip-replaced": self.skip_replaced,
            "exclude": [str(ref) for ref in self.exclude],
            "pin": [str(pin) for pin in self.pins],
            "extend": self.extend,
            "min-per-split": self.min_per_split,
            "position": self.has_position,
            "leak-check": self.has_leak_check,
            "seed": self.seed,
            "overwrite": self.overwrite,
            "dataset": self.dataset,
            "id-col": self.columns.id,
            "label-col": self.columns.label,
            "data-col": self.columns.data,
        }


def number(value: Fraction) -> str:
    """A decimal number as on the command line, exactly."""
    decimals = next((places for places in range(200) if (value * 10**places).denominator == 1), 9)
    digits = f"{round(value * 10**decimals):0{decimals + 1}}"
    return f"{digits[: len(digits) - decimals]}.{digits[len(digits) - decimals :]}".rstrip(".")


def listed(numbers: Sequence[Fraction]) -> str:
    """Numbers with commas between them."""
    return ",".join(map(number, numbers))
