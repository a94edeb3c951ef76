"""Split folders: reading one, and turning it once into files that every rank of a host maps into memory.

::

    splits/imagenette/
      manifest.json               what readers trust, written last
      split=0/part-*.parquet      id, label, position
      split=1/part-*.parquet
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock
from numpy.typing import NDArray

from formats.errors import DamagedError, NotASplitError
from formats.fingerprint import row_sums, split_fingerprint
from formats.hashing import xxhash64
from formats.storage import Storage
from schemas import SchemaError, SplitManifest, SplitPart
from schemas.manifest import NAME as MANIFEST
from schemas.splits import ID_BYTES

_BATCH_ROWS = 65_536

Arrays: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """The rows of one split in the order of ``position``: ids uint8 ``(n, 16)`` and labels int32 ``(n,)``.

    Both are read-only and mapped from the cache, so that opening costs no memory and the ranks of a host share pages.
    """

    ids: NDArray[np.uint8]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


class SplitFolder:
    """A split folder that has been published: its manifest, and the rows of each of its splits."""

    def __init__(self, storage: Storage, manifest: SplitManifest) -> None:
        self._storage = storage
        self.manifest = manifest

    @classmethod
    def open(cls, address: str | os.PathLike[str]) -> "SplitFolder":
        """Read the manifest at a local path or address.

        Raises `NotASplitError` where there is none, `schemas.FormatVersionError` for a newer format.
        """
        storage = Storage(address)
        try:
            text = storage.read_text(MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            raise NotASplitError(
                f"Wanted a split folder at {storage.address}. Found: no {MANIFEST} there. Make one with jobs/split.py."
            ) from None
        except UnicodeDecodeError as error:
            raise SchemaError(f"Wanted a split manifest in {storage.address}. Found: {error}") from None
        return cls(storage, SplitManifest.from_json(text, place=f"{storage.address}/{MANIFEST}"))

    @property
    def address(self) -> str:
        """Where the folder is, as messages name it."""
        return self._storage.address

    def part(self, index: int) -> SplitPart:
        """The manifest's entry for one split. Raises IndexError."""
        splits = self.manifest.splits
        if not 0 <= index < len(splits):
            raise IndexError(f"Wanted a split from 0 to {len(splits) - 1} of {self.address}. Found: {index}")
        return splits[index]

    def rows(self, index: int, *, cache: str | os.PathLike[str] | None = None) -> SplitRows:
        """The rows of one split, checked against its fingerprint when they are first read on this host.

        Raises IndexError for a split that is not there, `DamagedError` if files and manifest disagree.
        """
        part = self.part(index)
        folder = Path(cache or cache_folder()) / part.fingerprint
        if not _is_whole(folder, part.rows):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not _is_whole(folder, part.rows):
                    self._build(part, folder)
        return _map(folder, part.rows)

    def _build(self, part: SplitPart, folder: Path) -> None:
        """Scatter the rows of a split to their positions in raw files, written aside and renamed."""
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            ids = _create(aside / "ids", (part.rows, ID_BYTES), np.uint8)
            labels = _create(aside / "labels", (part.rows,), np.int32)
            seed, rows, sums = self.manifest.seed, 0, (0, 0)
            places = None if self.manifest.has_position else self._places(part)
            for new_ids, new_labels, positions in self._batches(part):
                more = row_sums(new_ids, new_labels, positions)
                if places is not None:
                    positions = places[rows : rows + len(positions)]
                if positions.size and (positions.min() < 0 or positions.max() >= part.rows):
                    raise DamagedError(self._disagree(part, f"a position outside 0..{part.rows - 1}"))
                ids[positions], labels[positions] = new_ids, new_labels
                rows, sums = rows + len(positions), (sums[0] + more[0], sums[1] + more[1])
            found = split_fingerprint(seed=seed, index=part.index, rows=rows, sums=sums)
            if rows != part.rows or found != part.fingerprint:
                raise DamagedError(self._disagree(part, f"{rows} rows of fingerprint {found}"))
            del ids, labels  # flushes the maps
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _places(self, part: SplitPart) -> NDArray[np.int64]:
        """The positions of rows without any, in the order of the files: their ranks by (seeded hash of the id, id)."""
        ids = np.concatenate([np.empty((0, ID_BYTES), np.uint8), *(found for found, _, _ in self._batches(part))])
        hashes = xxhash64([np.full(len(ids), self.manifest.seed, dtype=np.int64), ids])
        order = np.argsort(hashes, kind="stable")
        ties = np.flatnonzero(np.diff(hashes[order]) == 0)
        if ties.size:
            halves = ids.view(">u8").reshape(-1, 2)
            order = np.lexsort((halves[:, 1], halves[:, 0], hashes))
        places = np.empty(len(ids), dtype=np.int64)
        places[order] = np.arange(len(ids))
        return places

    def _batches(self, part: SplitPart) -> Iterator[Arrays]:
        has_position = self.manifest.has_position
        columns = ["id", "label", "position"] if has_position else ["id", "label"]
        for file in part.files:
            try:
                with self._storage.open(file.path) as stream, pq.ParquetFile(stream) as parquet:
                    for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
                        yield _arrays(batch if has_position else _unplaced(batch))
            except FileNotFoundError:
                raise DamagedError(self._disagree(part, f"no file {file.path}")) from None
            except (pa.ArrowException, KeyError, OSError) as error:
                raise DamagedError(self._disagree(part, f"{file.path} cannot be read ({error})")) from error

    def _disagree(self, part: SplitPart, found: str) -> str:
        return (
            f"Wanted {part.rows} rows of fingerprint {part.fingerprint} in split {part.index} of {self.address}. "
            f"Found: {found}. Its files were changed after it was made: make the split again."
        )


def _unplaced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with -1 as their position, as their fingerprint has it."""
    return batch.append_column("position", pa.array(np.full(len(batch), -1, dtype=np.int64)))


def _arrays(batch: pa.RecordBatch) -> Arrays:
    """Ids, labels and positions of some rows; raises pyarrow's errors and KeyError for columns of other kinds."""
    ids, labels, positions = (
        batch.column(name).cast(kind)
        for name, kind in (("id", pa.binary(ID_BYTES)), ("label", pa.int32()), ("position", pa.int64()))
    )
    if ids.null_count or labels.null_count or positions.null_count:
        raise pa.ArrowInvalid("there are nulls in it")
    packed = np.frombuffer(ids.buffers()[1], dtype=np.uint8, offset=ID_BYTES * ids.offset, count=ID_BYTES * len(ids))
    return packed.reshape(-1, ID_BYTES), labels.to_numpy(), positions.to_numpy()


def cache_folder() -> Path:
    """Where opened splits are kept: ``$IMAGESTRATA_CACHE``, or ``imagestrata/splits`` in the user's cache folder."""
    if own := os.environ.get("IMAGESTRATA_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "imagestrata" / "splits"


def _create(path: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[np.generic]:
    """A new file as a writable array; an empty file cannot be mapped."""
    if 0 in shape:
        path.touch()
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="w+", shape=shape)


def _is_whole(folder: Path, rows: int) -> bool:
    try:
        sizes = (folder / "ids").stat().st_size, (folder / "labels").stat().st_size
    except FileNotFoundError:
        return False
    return sizes == (ID_BYTES * rows, 4 * rows)


def _map(folder: Path, rows: int) -> SplitRows:
    if not rows:
        return SplitRows(np.empty((0, ID_BYTES), np.uint8), np.empty(0, np.int32))
    ids = np.memmap(folder / "ids", dtype=np.uint8, mode="r", shape=(rows, ID_BYTES))
    return SplitRows(ids, np.memmap(folder / "labels", dtype=np.int32, mode="r", shape=(rows,)))
