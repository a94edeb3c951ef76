"""The values of features beside a split, by position.

::

    splits/imagenette/
      _features/embedding@v1/split=0/part-*.parquet    position, and the fields of the view

Vectors are little-endian float32 numbers in fixed-size bytes. Numbers, booleans and vectors have no nulls; texts and
blobs may have some.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.errors import DamagedError
from formats.splits.cache import cached_arrays
from formats.splits.columns import BATCH_ROWS, ColumnFiles
from formats.splits.fingerprint import digest_of, row_sums
from formats.splits.opened import OpenSplit
from formats.stores.storage import Storage
from schemas import SplitPart
from schemas.features import vector_length
from schemas.manifest import StoredFeature

FORMAT = 1
FOLDER = "_features"  # its name begins with ``_``, so that readers of the split's Parquet files do not see it

_NUMBERS: dict[str, Any] = {
    "boolean": np.bool_,
    "int": np.int32,
    "bigint": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_BATCH_BYTES = 16 << 20


def is_numeric(kind: str) -> bool:
    """Whether arrays can hold values of a field type: numbers, booleans and vectors."""
    return kind in _NUMBERS or vector_length(kind) is not None


def array_of(kind: str, rows: int) -> tuple[tuple[int, ...], Any]:
    """The shape and dtype of the values of a numeric field type: ``(n,)``, or ``(n, N)`` for ``float[N]``."""
    length = vector_length(kind)
    return ((rows,), _NUMBERS[kind]) if length is None else ((rows, length), np.dtype("<f4"))


def field_fingerprint(*, split: str, view: str, field: str, kind: str, rows: int, sums: Sequence[int]) -> str:
    """The fingerprint of the values of a field. ``split`` is the fingerprint of the split, ``view`` has its version,
    and the sums are those of `formats.splits.fingerprint` over ``(position, value)``.
    """
    return digest_of("feature", FORMAT, split, view, field, kind, rows, sums=sums)


def value_sums(positions: NDArray[np.int64], values: NDArray[Any]) -> tuple[int, int]:
    """The two sums, modulo 2**64, of hashes of ``(position, value)``, as Spark computes them. Values are ``(n,)``, or
    float32 ``(n, N)``.
    """
    if values.ndim == 2:
        column = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 4 * values.shape[1])
    elif values.dtype.kind == "f":
        column = (values + values.dtype.type(0)).view(f"i{values.itemsize}")  # Spark hashes -0.0 as 0.0
    else:
        column = values.astype(np.int32) if values.dtype == np.bool_ else values
    return row_sums(positions, column)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFiles:
    """The files that have the values of one numeric field of a split."""

    storage: Storage
    part: SplitPart
    stored: StoredFeature
    field: str

    @property
    def kind(self) -> str:
        """The type of the field."""
        return self.stored.fields[self.field]

    def values(self, *, cache: str | os.PathLike[str] | None) -> NDArray[Any]:
        """The values by position, read-only and memory-mapped, as `array_of` describes them. They are read and compared
        with their fingerprint once on a host. Raises `DamagedError` if files and manifest disagree, `StorageError` if
        the storage does not answer or the cache cannot be written.
        """
        fingerprint = self.stored.splits[self.part.index].fingerprints[self.field]
        layout = {"values": array_of(self.kind, self.part.rows)}
        found = cached_arrays(
            cache, fingerprint=fingerprint, layout=layout, fill=lambda arrays: self._fill(arrays["values"], fingerprint)
        )
        return found["values"]

    def _fill(self, values: NDArray[Any], fingerprint: str) -> None:
        files = ColumnFiles(self.storage, self.stored.splits[self.part.index].files, self._damaged)
        width = values.itemsize * math.prod(values.shape[1:])

        def put(positions: NDArray[np.int64], some: NDArray[Any]) -> tuple[int, int]:
            files.check_places(positions, len(values))
            values[positions] = some
            return value_sums(positions, some)

        rows, *sums = files.put(
            {"position": (np.int64, ()), self.field: (values.dtype, values.shape[1:])},
            put,
            rows=max(1, min(BATCH_ROWS, _BATCH_BYTES // width)),
        )
        found = field_fingerprint(
            split=self.part.fingerprint, view=self.stored.view, field=self.field, kind=self.kind, rows=rows, sums=sums
        )
        if rows != self.part.rows or found != fingerprint:
            raise self._damaged(f"{rows:,} rows of fingerprint {found}")

    def _damaged(self, found: str) -> DamagedError:
        return DamagedError(
            f"Wanted {self.part.rows:,} values of {self.field} ({self.stored.view}) for split {self.part.index} of "
            f"{self.storage.address}. Found: {found}. The files of the feature have changed since the split was made. "
            "Make the split again."
        )


def field_files(split: OpenSplit, index: int, name: str) -> FieldFiles | None:
    """The files of a field of a feature for one split; None if the split was made without this field. Raises IndexError
    if there is no such split.
    """
    part = split.part(index)
    stored = next((one for one in split.manifest.stored_features if name in one.fields), None)
    if stored is None or split.storage is None:
        return None
    return FieldFiles(storage=split.storage, part=part, stored=stored, field=name)
