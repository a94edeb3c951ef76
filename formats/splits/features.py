"""The values of features beside a split, by position.

::

    splits/imagenette/
      _features/embedding@v1/split=0/part-*.parquet    position, and the fields of the view

Vectors are little-endian float32 numbers in fixed-size bytes. Numbers, booleans and vectors have no nulls; texts and
blobs may have some.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from formats.errors import DamagedError, StorageError
from formats.hashing import xxhash64
from formats.splits.cache import cached_arrays
from formats.splits.fingerprint import AFTER_SEEDS
from formats.splits.opened import OpenSplit
from formats.stores.storage import Storage
from schemas import SplitFile, SplitPart
from schemas.features import vector_length
from schemas.manifest import StoredFeature

FORMAT = 1
FOLDER = "_features"  # its name begins with ``_``, so that readers of the split's Parquet files do not see it

_NUMBERS: dict[str, tuple[Any, pa.DataType]] = {
    "boolean": (np.bool_, pa.uint8()),
    "int": (np.int32, pa.int32()),
    "bigint": (np.int64, pa.int64()),
    "float": (np.float32, pa.float32()),
    "double": (np.float64, pa.float64()),
}
_BATCH_ROWS, _BATCH_BYTES = 65_536, 16 << 20
_THREADS = min(4, os.cpu_count() or 1)


def is_numeric(kind: str) -> bool:
    """Whether arrays can hold values of a field type: numbers, booleans and vectors."""
    return kind in _NUMBERS or vector_length(kind) is not None


def array_of(kind: str, rows: int) -> tuple[tuple[int, ...], Any]:
    """The shape and dtype of the values of a numeric field type: ``(n,)``, or ``(n, N)`` for ``float[N]``."""
    length = vector_length(kind)
    return ((rows,), _NUMBERS[kind][0]) if length is None else ((rows, length), np.dtype("<f4"))


def field_fingerprint(*, split: str, view: str, field: str, kind: str, rows: int, sums: tuple[int, int]) -> str:
    """The fingerprint of the values of a field. ``split`` is the fingerprint of the split, ``view`` has its version,
    and the sums are those of `formats.splits.fingerprint` over ``(position, value)``.
    """
    text = dumps(["feature", FORMAT, split, view, field, kind, rows, *(value % (1 << 64) for value in sums)])
    return sha256(text.encode()).hexdigest()


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
    first, second = (xxhash64([positions, column], seed=seed).view(np.uint64) for seed in AFTER_SEEDS)
    return int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64))


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
        rows, first, second = 0, 0, 0
        with ThreadPoolExecutor(_THREADS) as pool:
            for more in pool.map(lambda file: self._put(values, file), self.stored.splits[self.part.index].files):
                rows, first, second = rows + more[0], first + more[1], second + more[2]
        found = field_fingerprint(
            split=self.part.fingerprint, view=self.stored.view, field=self.field, kind=self.kind,
            rows=rows, sums=(first, second),
        )  # fmt: skip
        if rows != self.part.rows or found != fingerprint:
            raise self._damaged(f"{rows:,} rows of fingerprint {found}")

    def _put(self, values: NDArray[Any], file: SplitFile) -> tuple[int, int, int]:
        """Put the values of one file at their positions; returns the number of rows and the sums of their hashes."""
        width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // width))
        rows, first, second = 0, 0, 0
        try:
            with self.storage.open(file.path) as stream, pq.ParquetFile(stream) as parquet:
                for batch in parquet.iter_batches(size, columns=["position", self.field], use_threads=False):
                    positions = _numbers(batch.column("position"), "bigint")
                    some = _array(batch.column(self.field), self.kind)
                    if positions.size and (positions.min() < 0 or positions.max() >= len(values)):
                        raise self._damaged(f"a position outside 0..{len(values) - 1}")
                    values[positions] = some
                    more = value_sums(positions, some)
                    rows, first, second = rows + len(positions), first + more[0], second + more[1]
        except FileNotFoundError:
            raise self._damaged(f"no file {file.path}") from None
        except StorageError:
            raise
        except (pa.ArrowException, KeyError, OSError) as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error
        return rows, first, second

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


def _array(column: pa.Array, kind: str) -> NDArray[Any]:
    """A column of a batch as an array. Raises pyarrow's errors for another type, other lengths, and nulls."""
    length = vector_length(kind)
    if length is None:
        return _numbers(column, kind)
    packed = _without_nulls(column.cast(pa.binary(4 * length)))
    data = np.frombuffer(
        packed.buffers()[1], np.uint8, count=4 * length * len(packed), offset=4 * length * packed.offset
    )
    return data.view("<f4").reshape(len(packed), length)


def _numbers(column: pa.Array, kind: str) -> NDArray[Any]:
    dtype, arrow = _NUMBERS[kind]
    if (kind == "boolean") != pa.types.is_boolean(column.type):
        raise pa.ArrowInvalid(f"{column.type} instead of {kind}")
    plain = _without_nulls(column.cast(arrow))
    kept = np.dtype(dtype)
    return np.frombuffer(plain.buffers()[1], kept, count=len(plain), offset=kept.itemsize * plain.offset)


def _without_nulls(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise pa.ArrowInvalid("there are nulls in it")
    return column
