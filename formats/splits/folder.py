"""Split folders: their manifest, and their rows by position, compared with the fingerprint.

::

    splits/imagenette/
      _manifest.json              the file that readers trust, written last
      _report.html                the report, for people
      split=0/part-*.parquet      id, label, position
      split=1/part-*.parquet
      _features/                  values of features by position; see formats.splits.features
      _groups/                    the groups of the images of each split

Version 0.1 wrote ``manifest.json`` and ``report.html``. Such folders can be read. If a folder has both manifests,
because a run that replaced it was killed, ``_manifest.json`` counts.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from formats.errors import DamagedError, NotASplitError, StorageError
from formats.splits.cache import cached_rows
from formats.splits.fingerprint import row_sums, split_fingerprint
from formats.splits.opened import OpenSplit, SplitRows
from formats.splits.seeded_order import SeededOrder
from formats.stores.storage import Storage
from schemas import SchemaError, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAMES as MANIFESTS
from schemas.splits import ID_BYTES

_KINDS = {"id": pa.binary(ID_BYTES), "label": pa.int32(), "position": pa.int64()}
_DTYPES = {"label": np.int32, "position": np.int64}
_BATCH_ROWS = 65_536
# Files that are read at the same time. Each takes memory for a row group.
_THREADS = min(4, os.cpu_count() or 1)


class FolderRows:
    """The rows in the files of a split folder."""

    def __init__(self, storage: Storage, manifest: SplitManifest) -> None:
        self._storage = storage
        self._manifest = manifest

    def rows(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> SplitRows:
        """The rows of one split, from the cache."""

        def fill(ids: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
            with ThreadPoolExecutor(_THREADS) as pool:
                self._fill(ids, labels, part, pool)

        return cached_rows(cache, fingerprint=part.fingerprint, rows=part.rows, fill=fill)

    def find(self, part: SplitPart, image_id: bytes) -> tuple[int | None, int | None] | None:
        """The label and position of an image in the files of one split."""
        wanted = np.frombuffer(image_id, dtype=np.uint64)
        names = ["id", "label", *(["position"] if self._manifest.has_position else [])]
        for file in part.files:
            for ids, labels, *positions in self._batches(part, file, names):
                halves = ids.view(np.uint64)
                rows = np.flatnonzero((halves[:, 0] == wanted[0]) & (halves[:, 1] == wanted[1]))
                if len(rows):
                    row = int(rows[0])
                    return int(labels[row]), int(positions[0][row]) if positions else None
        return None

    def _fill(
        self, ids: NDArray[np.uint8], labels: NDArray[np.int32], part: SplitPart, pool: ThreadPoolExecutor
    ) -> None:
        """Put the rows of a split at their positions, with memory for one batch of each file that is being read."""
        order = None if self._manifest.has_position else SeededOrder(part.rows, seed=self._manifest.seed)
        if order is not None:
            for _ in pool.map(lambda file: self._count(part, file, order), part.files):
                pass
            if len(order) != part.rows:
                raise DamagedError(self._disagree(part, f"{len(order)} rows"))
        rows, first, second = 0, 0, 0
        for more in pool.map(lambda file: self._put(ids, labels, part, file, order), part.files):
            rows, first, second = rows + more[0], first + more[1], second + more[2]
        found = split_fingerprint(seed=self._manifest.seed, index=part.index, rows=rows, sums=(first, second))
        if rows != part.rows or found != part.fingerprint:
            raise DamagedError(self._disagree(part, f"{rows} rows of fingerprint {found}"))
        if order is not None:
            for _ in pool.map(lambda piece: order.sort(ids[piece], labels[piece]), order.pieces()):
                pass

    def _count(self, part: SplitPart, file: SplitFile, order: SeededOrder) -> None:
        for (ids,) in self._batches(part, file, ["id"]):
            order.count(ids)

    def _put(
        self,
        ids: NDArray[np.uint8],
        labels: NDArray[np.int32],
        part: SplitPart,
        file: SplitFile,
        order: SeededOrder | None,
    ) -> tuple[int, int, int]:
        """Put the rows of one file at their places; returns their number, and the two sums of their fingerprint."""
        names = ["id", "label", "position"] if order is None else ["id", "label"]
        rows, first, second = 0, 0, 0
        for some_ids, some_labels, *placed in self._batches(part, file, names):
            # The fingerprint has -1 for rows without a position.
            positions = placed[0] if placed else np.full(len(some_ids), -1, dtype=np.int64)
            more = row_sums(some_ids, some_labels, positions)
            places = positions if order is None else order.places(some_ids)
            if places.size and (places.min() < 0 or places.max() >= part.rows):
                raise DamagedError(self._disagree(part, f"a position outside 0..{part.rows - 1}"))
            ids[places], labels[places] = some_ids, some_labels
            rows, first, second = rows + len(places), first + more[0], second + more[1]
        return rows, first, second

    def _batches(self, part: SplitPart, file: SplitFile, names: list[str]) -> Iterator[list[NDArray[Any]]]:
        """Some rows of a file at a time: one array for each named column."""
        try:
            with self._storage.open(file.path) as stream, pq.ParquetFile(stream) as parquet:
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
                    yield [_array(batch, name) for name in names]
        except FileNotFoundError:
            raise DamagedError(self._disagree(part, f"no file {file.path}")) from None
        except StorageError:
            raise
        except (pa.ArrowException, KeyError, OSError) as error:
            raise DamagedError(self._disagree(part, f"{file.path} cannot be read ({error})")) from error

    def _disagree(self, part: SplitPart, found: str) -> str:
        place = f"split {part.index} of {self._storage.address}"
        return (
            f"Wanted {part.rows} rows of fingerprint {part.fingerprint} in {place}. "
            f"Found: {found}. Its files have changed since it was made. Make the split again."
        )


def read_folder(address: str | os.PathLike[str]) -> OpenSplit:
    """Read the manifest of a split folder at a local path or address. Raises `NotASplitError` if there is none,
    `schemas.FormatVersionError` for a newer format.
    """
    storage = Storage(address)
    for name in MANIFESTS:
        try:
            manifest = read_manifest(storage, name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        return OpenSplit(storage.address, manifest, FolderRows(storage, manifest), storage)
    folder, _, name = storage.address.rpartition("/")
    if name in MANIFESTS and folder:
        raise NotASplitError(f"Wanted a split folder. Found: {storage.address}. Did you mean {folder}?")
    raise NotASplitError(
        f"Wanted a split folder at {storage.address}. Found: no {MANIFESTS[0]} there. Make one with jobs/split.py."
    )


def read_manifest(storage: Storage, name: str) -> SplitManifest:
    """Read a manifest by its name. Raises FileNotFoundError or NotADirectoryError if there is none, `SchemaError` if
    the file is not a manifest.
    """
    place = f"{storage.address}/{name}"
    try:
        return SplitManifest.from_json(storage.read_text(name), place=place)
    except UnicodeDecodeError as error:
        raise SchemaError(f"Wanted a split manifest in {place}. Found: {error}") from None


def _array(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """A column in the types of `schemas.splits`; raises pyarrow's errors and KeyError for another kind."""
    column = batch.column(name).cast(_KINDS[name])
    if column.null_count:
        raise pa.ArrowInvalid("there are nulls in it")
    # From the buffers: pyarrow's own conversion to NumPy imports pandas, which takes longer than the rows.
    data = column.buffers()[1]
    if name != "id":
        kind = np.dtype(_DTYPES[name])
        return np.frombuffer(data, dtype=kind, offset=kind.itemsize * column.offset, count=len(column))
    start, count = ID_BYTES * column.offset, ID_BYTES * len(column)
    return np.frombuffer(data, dtype=np.uint8, offset=start, count=count).reshape(-1, ID_BYTES)
