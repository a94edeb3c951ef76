"""Split folders: their manifest, and their rows by position, compared with the fingerprint.

::

    splits/imagenette/
      _manifest.json              the file that readers trust, written last
      _report.html                the report, for people
      split=0/part-*.parquet      id, label, position, xxhash64
      split=1/part-*.parquet
      _features/                  values of features by position; see formats.splits.features
      _groups/                    the groups of the images of each split

Version 0.1 wrote ``manifest.json`` and ``report.html``. Such folders can be read. If a folder has both manifests,
because a run that replaced it was killed, ``_manifest.json`` counts.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats import checksums
from formats.errors import DamagedError, NotASplitError
from formats.splits.cache import Arrays, Layout, cached_arrays, cached_rows
from formats.splits.columns import THREADS, ColumnFiles, Kinds
from formats.splits.fingerprint import checksums_fingerprint, row_sums, split_fingerprint
from formats.splits.opened import OpenSplit, SplitRows
from formats.splits.seeded_order import SeededOrder
from formats.stores.storage import Storage
from schemas import SchemaError, SplitManifest, SplitPart
from schemas.manifest import NAMES as MANIFESTS
from schemas.splits import ID_BYTES

_IDS: Kinds = {"id": (np.uint8, (ID_BYTES,))}
_ROWS: Kinds = {**_IDS, "label": (np.int32, ())}
_PIECE_ROWS = 1 << 20  # 40 MB of positions and what is worked out for them
_PLACED: Kinds = {**_ROWS, "position": (np.int64, ())}


class FolderRows:
    """The rows in the files of a split folder."""

    def __init__(self, storage: Storage, manifest: SplitManifest) -> None:
        self._storage = storage
        self._manifest = manifest

    def rows(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> SplitRows:
        """The rows of one split, from the cache."""
        return cached_rows(cache, fingerprint=part.fingerprint, rows=part.rows, fill=partial(self._fill, part))

    def checksums(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> NDArray[np.int64] | None:
        """The checksums of one split, from the cache."""
        if part.checksums is None:
            return None
        layout: Layout = {checksums.COLUMN: ((part.rows,), np.int64)}
        if not self._manifest.has_position:  # the order follows from the ids, which then take part in the sorting
            layout = {**layout, "ids": ((part.rows, ID_BYTES), np.uint8)}
        fill = partial(self._fill_checksums, part)
        return cached_arrays(cache, fingerprint=part.checksums, layout=layout, fill=fill)[checksums.COLUMN]

    def by_class(self, part: SplitPart, *, cache: str | os.PathLike[str] | None) -> NDArray[Any]:
        """The positions of one split in the order of their labels, then ascending, from the cache."""
        labels = self.rows(part, cache=cache).numbers
        layout: Layout = {"by_class": ((part.rows,), np.uint32 if part.rows < 1 << 32 else np.int64)}

        def fill(arrays: Arrays) -> None:
            if not put_by_class(labels, part.counts, arrays["by_class"]):
                raise self._files(part).damaged("other numbers of images by class than its manifest has")

        return cached_arrays(cache, fingerprint=f"{part.fingerprint}.by_class", layout=layout, fill=fill)["by_class"]

    def find(self, part: SplitPart, image_id: bytes) -> tuple[int | None, int | None] | None:
        """The label and position of an image in the files of one split."""
        wanted = np.frombuffer(image_id, dtype=np.uint64)
        kinds = _PLACED if self._manifest.has_position else _ROWS
        for file in part.files:
            for ids, labels, *positions in self._files(part).batches(file, kinds):
                halves = ids.view(np.uint64)
                rows = np.flatnonzero((halves[:, 0] == wanted[0]) & (halves[:, 1] == wanted[1]))
                if len(rows):
                    row = int(rows[0])
                    return int(labels[row]), int(positions[0][row]) if positions else None
        return None

    def _fill(self, part: SplitPart, ids: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
        """Put the rows of a split at their positions, with memory for one batch of each file that is being read."""
        files = self._files(part)
        order = self._order(part, files)

        def put(some_ids: NDArray[np.uint8], some: NDArray[np.int32], *placed: NDArray[np.int64]) -> tuple[int, int]:
            # The fingerprint has -1 for rows without a position.
            positions = placed[0] if placed else np.full(len(some_ids), -1, dtype=np.int64)
            places = positions if order is None else order.places(some_ids)
            files.check_places(places, part.rows)
            ids[places], labels[places] = some_ids, some
            return row_sums(some_ids, some, positions)

        rows, *sums = files.put(_PLACED if order is None else _ROWS, put)
        found = split_fingerprint(seed=self._manifest.seed, index=part.index, rows=rows, sums=sums)
        if rows != part.rows or found != part.fingerprint:
            raise files.damaged(f"{rows} rows of fingerprint {found}")
        if order is not None:
            _sort(order, ids, labels)

    def _fill_checksums(self, part: SplitPart, arrays: Arrays) -> None:
        """Put the checksums of a split at the positions of their rows."""
        files, found = self._files(part), arrays[checksums.COLUMN]
        order = self._order(part, files)

        def put(ids: NDArray[np.uint8], some: NDArray[np.int64], *placed: NDArray[np.int64]) -> tuple[int, int]:
            places = placed[0] if order is None else order.places(ids)
            files.check_places(places, part.rows)
            found[places] = some
            if order is not None:
                arrays["ids"][places] = ids
            return row_sums(ids, some)

        kinds: Kinds = {**_IDS, checksums.COLUMN: (np.int64, ())}
        rows, *sums = files.put(kinds if order is not None else {**kinds, "position": (np.int64, ())}, put)
        if checksums_fingerprint(split=part.fingerprint, rows=rows, sums=sums) != part.checksums:
            raise files.damaged(f"{rows} rows with other checksums")
        if order is not None:
            _sort(order, arrays["ids"], found)

    def _order(self, part: SplitPart, files: ColumnFiles) -> SeededOrder | None:
        """The order of a split without positions, with its rows counted."""
        if self._manifest.has_position:
            return None
        order = SeededOrder(part.rows, seed=self._manifest.seed)
        files.put(_IDS, order.count)
        if len(order) != part.rows:
            raise files.damaged(f"{len(order)} rows")
        return order

    def _files(self, part: SplitPart) -> ColumnFiles:
        def damaged(found: str) -> DamagedError:
            return DamagedError(
                f"Wanted {part.rows} rows of fingerprint {part.fingerprint} in split {part.index} of "
                f"{self._storage.address}. Found: {found}. Its files have changed since it was made. "
                "Make the split again."
            )

        return ColumnFiles(self._storage, part.files, damaged)


def put_by_class(labels: NDArray[np.int32], counts: Mapping[int, int], found: NDArray[Any]) -> bool:
    """Put positions in the order of their labels, then ascending, with memory for one piece of them. Returns whether
    these are the counts of the labels.
    """
    numbers = np.array(sorted(counts), dtype=np.int32)
    ends = np.cumsum([counts[number] for number in numbers.tolist()])
    nexts = ends - [counts[number] for number in numbers.tolist()]
    if len(labels) != (ends[-1] if len(ends) else 0):
        return False
    for start in range(0, len(labels), _PIECE_ROWS):
        some = labels[start : start + _PIECE_ROWS]
        piece = np.minimum(np.searchsorted(numbers, some), len(numbers) - 1)
        order = np.argsort(piece, kind="stable")
        many = np.bincount(piece, minlength=len(numbers))
        begins = np.cumsum(many) - many
        places = np.repeat(nexts - begins, many) + np.arange(len(piece))
        if (numbers[piece] != some).any() or (nexts + many > ends).any():
            return False
        found[places] = start + order
        nexts += many
    return True


def _sort(order: SeededOrder, ids: NDArray[np.uint8], values: NDArray[Any]) -> None:
    """Sort all rows, which are in their buckets already."""
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda piece: order.sort(ids[piece], values[piece]), order.pieces()):
            pass


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
