"""Counts the rows of Parquet files with pyarrow and numpy alone, and checks whether they are an exact split.

It uses no code of the split job.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

_BATCH_ROWS = 1 << 20
_ODD = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))
_WORD = 1 << 64


@dataclass(frozen=True)
class Contents:
    """The rows of some files by class number (int64), and two checksums of these rows.

    ``digest`` sums mixed ids and labels, ``id_sum`` the ids as 128-bit numbers.
    """

    counts: tuple[int, ...]
    digest: int
    id_sum: int

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return sum(self.counts)

    def __add__(self, other: "Contents") -> "Contents":
        counts = _matrix([self.counts, other.counts]).sum(axis=1)
        digest = (self.digest + other.digest) % _WORD
        return Contents(tuple(counts.tolist()), digest, (self.id_sum + other.id_sum) % _WORD**2)


def contents(files: Iterable[Path]) -> Contents:
    """Read ids and labels of some files."""
    counts = np.zeros(1, dtype=np.int64)
    digest = id_sum = 0
    for ids, labels in _batches(files):
        found = np.bincount(labels, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
        mixed = (ids[:, 0] * _ODD[0]) ^ ((ids[:, 1] + labels.astype(np.uint64) * _ODD[1]) * _ODD[2])
        mixed ^= mixed >> np.uint64(29)
        digest += int((mixed * _ODD[0]).sum(dtype=np.uint64))
        for half, weight in ((0, _WORD), (1, 1)):
            for part, shift in ((ids[:, half] >> np.uint64(32), 1 << 32), (ids[:, half] & np.uint64(0xFFFFFFFF), 1)):
                id_sum += int(part.sum(dtype=np.uint64)) * shift * weight
    return Contents(tuple(counts.tolist()), digest % _WORD, id_sum % _WORD**2)


def split_files(folder: Path, split: int) -> list[Path]:
    """The files of one split whose names readers accept."""
    return sorted((folder / f"split={split}").glob("part-*.parquet"))


def split_contents(folder: Path, splits: int, *, known: Contents) -> list[Contents]:
    """Read each split of a folder. Raises RuntimeError unless together they have exactly the known rows."""
    parts = [contents(split_files(folder, number)) for number in range(splits)]
    if (found := sum(parts[1:], start=parts[0])) != known:
        raise RuntimeError(f"Wanted the {known.rows:,} rows of the input in {folder}. Found: others, {found.rows:,}.")
    return parts


def footer_rows(folder: Path) -> int:
    """The number of rows below a folder, from the footers of its files, without the names of groups."""
    files = (file for file in folder.rglob("part-*.parquet") if "_groups" not in file.parts)
    return sum(pq.read_metadata(file).num_rows for file in files)


def cells_off(totals: Sequence[int], splits: Sequence[Sequence[int]], ratios: Sequence[int]) -> int:
    """Count the cells (class, split) that are not the ideal ``n_c * r_s / R`` rounded down or up, and the classes whose
    rows do not add up.

    ``totals`` are rows by class, ``splits`` the same for each split.
    """
    matrix = _matrix([totals, *splits])
    wanted, cells = matrix[:, 0], matrix[:, 1:]
    ideal = wanted[:, None] * np.asarray(ratios, dtype=np.int64)
    floors, rests = np.divmod(ideal, sum(ratios))
    rounded = (cells == floors) | ((cells == floors + 1) & (rests > 0))
    return int((~rounded).sum() + (cells.sum(axis=1) != wanted).sum())


def largest_distance(rows: int, splits: Sequence[int], ratios: Sequence[int]) -> float:
    """The largest distance between the rows of a split and its ideal ``rows * r_s / R``."""
    ideals = (Fraction(rows * ratio, sum(ratios)) for ratio in ratios)
    return float(max(abs(found - ideal) for found, ideal in zip(splits, ideals, strict=True)))


def leaked_groups(files: Iterable[Path], splits: Sequence[Iterable[Path]]) -> int:
    """Count the groups of the rows in ``files`` (``id, group_id``) that are in more than one split.

    Raises ValueError for ids whose first halves are not unique, or that are not in ``files``.
    """
    table = pa.concat_tables(pq.read_table(file, columns=["id", "group_id"]) for file in files).combine_chunks()
    names = pc.dictionary_encode(table["group_id"].combine_chunks())
    groups = names.indices.to_numpy(zero_copy_only=False)
    keys = _words(table["id"].combine_chunks())[:, 0].copy()
    order = np.argsort(keys)
    keys, groups = keys[order], groups[order]
    if (keys[1:] == keys[:-1]).any():
        raise ValueError("Wanted ids that their first 8 bytes tell apart. Found: two that are the same.")
    held = np.zeros(len(names.dictionary), dtype=np.int64)
    for of_split in splits:
        here = np.zeros(len(held), dtype=np.bool_)
        for ids, _ in _batches(of_split):
            places = np.minimum(np.searchsorted(keys, ids[:, 0]), len(keys) - 1)
            if (keys[places] != ids[:, 0]).any():
                raise ValueError("Wanted ids that are among the metadata. Found: others.")
            here[groups[places]] = True
        held += here
    return int((held > 1).sum())


def _batches(files: Iterable[Path]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int32]]]:
    """Ids as two big-endian words, uint64 ``(n, 2)``, and labels, int32 ``(n,)``."""
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=["id", "label"]):
                yield _words(batch.column("id")), batch.column("label").to_numpy()


def _words(ids: Any) -> NDArray[np.uint64]:
    fixed = ids.cast(pa.binary(16))
    raw = np.frombuffer(fixed.buffers()[1], dtype=">u8", offset=16 * fixed.offset, count=2 * len(fixed))
    return raw.reshape(-1, 2).astype(np.uint64)


def _matrix(columns: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Counts by class as columns of equal length."""
    matrix = np.zeros((max(map(len, columns)), len(columns)), dtype=np.int64)
    for number, column in enumerate(columns):
        matrix[: len(column), number] = column
    return matrix
