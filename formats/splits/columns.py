"""Columns of the Parquet files of a split: read side by side, a batch at a time, and put at their positions."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from formats.errors import DamagedError, StorageError
from formats.stores.storage import Storage
from schemas import SplitFile

BATCH_ROWS = 65_536
# Files that are read at the same time. Each takes memory for a row group.
THREADS = min(4, os.cpu_count() or 1)

Put: TypeAlias = Callable[..., tuple[int, int] | None]
Kinds: TypeAlias = Mapping[str, tuple[Any, tuple[int, ...]]]  # columns: the dtype and the shape of a value


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """Files with the same columns. ``damaged`` makes the error for what is wrong with one."""

    storage: Storage
    files: Sequence[SplitFile]
    damaged: Callable[[str], DamagedError]

    def put(self, kinds: Kinds, put: Put, *, rows: int = BATCH_ROWS) -> tuple[int, int, int]:
        """Call ``put`` with the columns of each batch of ``rows``, in several threads. It may return the sums of the
        batch's fingerprint; this returns the number of all rows, and their sums.
        """

        def of_file(file: SplitFile) -> tuple[int, int, int]:
            count, first, second = 0, 0, 0
            for columns in self.batches(file, kinds, rows=rows):
                more = put(*columns) or (0, 0)
                count, first, second = count + len(columns[0]), first + more[0], second + more[1]
            return count, first, second

        with ThreadPoolExecutor(THREADS) as pool:
            count, first, second = map(sum, zip((0, 0, 0), *pool.map(of_file, self.files), strict=True))
        return count, first, second

    def batches(self, file: SplitFile, kinds: Kinds, *, rows: int = BATCH_ROWS) -> Iterator[list[NDArray[Any]]]:
        """Some rows of a file at a time: one array for each column."""
        try:
            with self.storage.open(file.path) as stream, pq.ParquetFile(stream) as parquet:
                for batch in parquet.iter_batches(rows, columns=list(kinds), use_threads=False):
                    yield [_array(batch.column(name), *kind) for name, kind in kinds.items()]
        except FileNotFoundError:
            raise self.damaged(f"no file {file.path}") from None
        except StorageError:
            raise
        except (pa.ArrowException, KeyError, OSError, UnicodeDecodeError) as error:
            raise self.damaged(f"{file.path} cannot be read ({error})") from error

    def check_places(self, places: NDArray[np.int64], rows: int) -> None:
        """Raise the error for places outside an array of so many rows."""
        if places.size and (places.min() < 0 or places.max() >= rows):
            raise self.damaged(f"a position outside 0..{rows - 1}")


def _array(column: pa.Array, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A column as an array; raises pyarrow's errors for another kind, other lengths, and nulls. A value that is no
    number is fixed-size bytes.
    """
    kept = np.dtype(dtype)
    width = kept.itemsize * math.prod(shape)
    is_boolean = kept == np.bool_
    if is_boolean != pa.types.is_boolean(column.type):
        raise pa.ArrowInvalid(f"{column.type} instead of {kept}")
    plain = column.cast(pa.binary(width) if shape else pa.uint8() if is_boolean else pa.from_numpy_dtype(kept))
    if plain.null_count:
        raise pa.ArrowInvalid("there are nulls in it")
    # From the buffers: pyarrow's own conversion to NumPy imports pandas, which takes longer than the rows.
    data = np.frombuffer(plain.buffers()[1], np.uint8, count=width * len(plain), offset=width * plain.offset)
    found: NDArray[Any] = data.view(kept).reshape(len(plain), *shape)
    return found
