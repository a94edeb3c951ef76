"""Writes split folders of any size in bounded memory, without Spark, in files of a million rows as the job does."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import loader
from benchmarks.harness.pictures import TABLE_CLASSES, Images
from formats.checksums import COLUMN, checksum
from formats.splits.features import FOLDER as FEATURES
from formats.splits.features import field_fingerprint, value_sums
from formats.splits.fingerprint import checksums_fingerprint, row_sums, split_fingerprint
from schemas import Columns, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAME, FeaturePart, StoredFeature
from schemas.splits import ARROW_SCHEMA, ID_BYTES

_ROWS_A_FILE = 1_000_000
_SEED = 7
_THREADS = 2


def write_split(
    folder: Path,
    images: Images,
    *,
    rows: int,
    distinct: int | None = None,
    checksums: NDArray[np.int64] | None = None,
) -> SplitPart:
    """Write a split folder in which position n is image n; return the entry of its only split.

    With ``distinct``, images 0 to distinct-1 repeat: an epoch of any length over a small table. ``checksums`` has those
    of these images.
    """
    distinct = distinct or rows

    def write(start: int) -> tuple[SplitFile, tuple[int, int], tuple[int, int], NDArray[np.int64]]:
        positions = np.arange(start, min(start + _ROWS_A_FILE, rows), dtype=np.int64)
        numbers = positions % distinct
        ids, labels = images.ids(numbers), images.labels(numbers)
        known = None if checksums is None else checksums[numbers]
        file = _write_file(folder, start // _ROWS_A_FILE, ids, labels, positions, known)
        of_checksums = (0, 0) if known is None else row_sums(ids, known)
        return file, row_sums(ids, labels, positions), of_checksums, np.bincount(labels, minlength=TABLE_CLASSES)

    with ThreadPoolExecutor(_THREADS) as threads:
        files, sums, of_checksums, counts = zip(*threads.map(write, range(0, rows, _ROWS_A_FILE)), strict=True)
    fingerprint = split_fingerprint(seed=_SEED, index=0, rows=rows, sums=_added(sums))
    by_class = {label: count for label, count in enumerate(sum(counts).tolist()) if count}
    part = SplitPart(0, rows, by_class, fingerprint, files)
    if checksums is not None:
        printed = checksums_fingerprint(split=fingerprint, rows=rows, sums=_added(of_checksums))
        part = replace(part, checksums=printed)
    _publish(folder, part, data_table=images.table, num_classes=TABLE_CLASSES, seed=_SEED)
    return part


def checksums(images: Images, distinct: int) -> NDArray[np.int64]:
    """The checksums of images 0 to distinct-1."""
    rows = images.rows(np.arange(distinct, dtype=np.int64))
    return np.array([checksum(data) for _, _, data in rows], dtype=np.int64)


def _added(sums: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, second = zip(*sums, strict=True)
    return sum(first), sum(second)


def add_vectors(folder: Path, *, name: str, length: int) -> None:
    """Add a feature to a split folder: a vector that repeats the number of the position."""
    manifest = SplitManifest.from_json((folder / NAME).read_text(encoding="utf-8"), place=str(folder))
    (part,) = manifest.splits
    positions = np.arange(part.rows, dtype=np.int64)
    values = np.repeat(positions.astype("<f4")[:, None], length, axis=1)
    view, kind = f"{name}@v1", f"float[{length}]"
    path = f"{FEATURES}/{view}/split=0/part-00000.parquet"
    (folder / path).parent.mkdir(parents=True)
    packed = pa.Array.from_buffers(pa.binary(4 * length), part.rows, [None, pa.py_buffer(values)]).cast(pa.binary())
    pq.write_table(pa.table({"position": positions, name: packed}), folder / path, compression="zstd")
    printed = field_fingerprint(
        split=part.fingerprint, view=view, field=name, kind=kind, rows=part.rows, sums=value_sums(positions, values)
    )
    of_part = FeaturePart(fingerprints={name: printed}, files=(SplitFile(path, part.rows),))
    stored = StoredFeature(view=view, fields={name: kind}, splits=(of_part,))
    (folder / NAME).write_text(replace(manifest, stored_features=(stored,)).to_json(), encoding="utf-8")


def write_folder(folder: Path, found: loader.Folder, *, data_table: str) -> None:
    """Write a split folder with the rows of a tree of class folders, in their order."""
    assert found.labels is not None
    positions = np.arange(len(found), dtype=np.int64)
    file = _write_file(folder, 0, np.ascontiguousarray(found.ids), found.labels, positions)
    part = SplitPart(0, len(found), found.counts, found.fingerprint, (file,))
    _publish(folder, part, data_table=data_table, num_classes=found.num_classes, seed=0)


def _write_file(
    folder: Path,
    number: int,
    ids: NDArray[np.uint8],
    labels: NDArray[np.int32],
    positions: NDArray[np.int64],
    checksums: NDArray[np.int64] | None = None,
) -> SplitFile:
    path = f"split=0/part-{number:05d}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    packed = pa.Array.from_buffers(pa.binary(ID_BYTES), len(ids), [None, pa.py_buffer(ids)]).cast(pa.binary())
    table = pa.table([packed, labels, positions], schema=ARROW_SCHEMA)
    if checksums is not None:
        table = table.append_column(COLUMN, pa.array(checksums))
    pq.write_table(table, folder / path, compression="zstd", use_dictionary=["label"])
    return SplitFile(path, len(positions))


def _publish(folder: Path, part: SplitPart, *, data_table: str, num_classes: int, seed: int) -> None:
    manifest = SplitManifest(
        data_table=data_table,
        metadata_table=f"{data_table}_metadata",
        columns=Columns(),
        label_type="int",
        num_classes=num_classes,
        class_names={},
        seed=seed,
        options={},
        splits=(part,),
        created="2026-01-01T00:00:00+00:00",
        code_version="benchmark",
    )
    (folder / NAME).write_text(manifest.to_json(), encoding="utf-8")
