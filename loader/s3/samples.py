"""The samples of class folders in a bucket by index, and the labels of their classes."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from loader.errors import SplitError
from loader.options import index_in
from loader.s3.listing_cache import Listing

ClassNames: TypeAlias = Literal["name", "number"]

_NUMBER = re.compile("[0-9]{1,10}")
_SHOWN = 5


class Samples(Sequence[tuple[str, int]]):
    """``(key, label)`` by index, from a listing: classes in the order of their labels, their files in its order."""

    def __init__(self, listing: Listing, class_to_idx: dict[str, int], prefix: str) -> None:
        self._listing, self._prefix = listing, f"{prefix}/" if prefix else ""
        first_rows = dict(zip(listing.counts, accumulate(listing.counts.values(), initial=0), strict=False))
        names = sorted(class_to_idx, key=lambda name: class_to_idx[name])
        self._counts = [listing.counts[name] for name in names]
        self._starts = list(accumulate(self._counts, initial=0))[:-1]
        self._rows = [first_rows[name] for name in names]
        self._labels = [class_to_idx[name] for name in names]

    def __len__(self) -> int:
        return len(self._listing)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return self._prefix + self.name(index), self.label(index)

    def __repr__(self) -> str:
        return f"Samples({len(self):,}, the first {self[0]!r})"

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """int64 ``(n,)``, read-only."""
        labels = np.repeat(np.array(self._labels, dtype=np.int64), self._counts)
        labels.flags.writeable = False
        return labels

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "labels"}

    def name(self, index: int, /) -> str:
        """The object's name with its class, relative to the folder. Raises IndexError."""
        place, index = self._place(index)
        return self._listing.name(self._rows[place] + index - self._starts[place])

    def size(self, index: int, /) -> int:
        """The bytes of an object when it was listed. Raises IndexError."""
        place, index = self._place(index)
        return self._listing.size(self._rows[place] + index - self._starts[place])

    def label(self, index: int, /) -> int:
        """The label of a sample. Raises IndexError."""
        return self._labels[self._place(index)[0]]

    def _place(self, index: int) -> tuple[int, int]:
        """The class's place among the classes, and the index counted from the front."""
        found = index_in(len(self), index)
        return bisect_right(self._starts, found) - 1, found


def numbered(names: list[str], class_names: ClassNames, address: str) -> dict[str, int]:
    """The labels of class folders, in the order of labels. Raises `SplitError` for names that are not numbers."""
    if class_names == "name":
        return {name: label for label, name in enumerate(names)}
    others = [name for name in names if not _NUMBER.fullmatch(name) or int(name) >= 1 << 31]
    if others:
        shown = ", ".join(map(repr, others[:_SHOWN])) + (", ..." if len(others) > _SHOWN else "")
        raise SplitError(
            f"Wanted class folders in {address} whose names are numbers from 0 to {(1 << 31) - 1}. Found: {shown}. "
            "Use class_names='name' to number the names."
        )
    by_number: dict[int, str] = {}
    for name in names:
        if (other := by_number.setdefault(int(name), name)) != name:
            raise SplitError(f"Wanted one class folder for each number in {address}. Found: {other!r} and {name!r}")
    return {by_number[number]: number for number in sorted(by_number)}
