"""The options of a split: checked when they are made, written into the manifest as they are."""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from schemas import Columns, TableName

BALANCES = ("original", "random", "uniform")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}")


def parse_numbers(text: str, *, what: str) -> tuple[Fraction, ...]:
    """Read ``8,2`` or ``0.7,0.2,0.1`` exactly; raises ValueError for anything that is no list of plain numbers >= 0."""
    items = [item.strip() for item in text.split(",")]
    if not all(_NUMBER.fullmatch(item) for item in items):
        raise ValueError(f"Wanted {what} as numbers of 0 or more with commas between them, as in 8,2. Found: {text!r}")
    return tuple(Fraction(item) for item in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """What a split is made from, how, and where to.

    ``ratios``: one positive number a split. ``balance``: ``original`` keeps the classes' proportions, ``uniform`` takes
    equally many of each, ``random`` draws a weight for each class from the seed; or one weight a class, in the order of
    class numbers. ``dataset`` names the class list; None means the metadata table's keyspace. Raises ValueError for
    values that make no split.
    """

    data_table: TableName
    metadata_table: TableName
    out: str
    ratios: tuple[Fraction, ...] = (Fraction(8), Fraction(2))
    balance: str | tuple[Fraction, ...] = "original"
    seed: int = 0
    overwrite: bool = False
    dataset: str | None = None
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if self.data_table == self.metadata_table:
            raise ValueError(f"Wanted two different tables for data and metadata. Found: {self.data_table} for both")
        if not self.out:
            raise ValueError("Wanted a folder for the split. Found: an empty name")
        if not self.ratios or not all(ratio > 0 for ratio in self.ratios):
            raise ValueError(f"Wanted split ratios above 0. Found: {_listed(self.ratios)}")
        if isinstance(self.balance, str):
            if self.balance not in BALANCES:
                raise ValueError(f"Wanted a balance of {', '.join(BALANCES)} or numbers. Found: {self.balance!r}")
        elif not any(self.balance) or any(weight < 0 for weight in self.balance):
            raise ValueError(f"Wanted class weights of 0 or more, one above 0. Found: {_listed(self.balance)}")
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise ValueError(f"Wanted a seed of 64 bits. Found: {self.seed}")

    @property
    def dataset_name(self) -> str:
        """The dataset whose class list names the classes."""
        return self.dataset or self.metadata_table.keyspace

    def as_options(self) -> dict[str, Any]:
        """The options as the manifest keeps them: by their command-line names, numbers as they would be typed."""
        return {
            "data-table": str(self.data_table),
            "metadata-table": str(self.metadata_table),
            "split-ofn": self.out,
            "split-ratio": _listed(self.ratios),
            "balance": self.balance if isinstance(self.balance, str) else _listed(self.balance),
            "seed": self.seed,
            "overwrite": self.overwrite,
            "dataset": self.dataset_name,
            "id-col": self.columns.id,
            "label-col": self.columns.label,
            "data-col": self.columns.data,
        }


def _listed(numbers: tuple[Fraction, ...]) -> str:
    return ",".join(str(int(n)) if n.denominator == 1 else f"{float(n):.9f}".rstrip("0") for n in numbers)
