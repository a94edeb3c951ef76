"""Split folders of any size, written in bounded memory and without Spark: files of a million rows, as the job's."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import loader
from benchmarks.harness.images import CLASSES, Images
from formats.splits.fingerprint import row_sums, split_fingerprint
from schemas import Columns, SplitFile, SplitManifest, SplitPart
from schemas.manifest import NAME
from schemas.splits import ARROW_SCHEMA, ID_BYTES

_ROWS_A_FILE = 1_000_000
_SEED = 7
_THREADS = 2


def write_split(folder: Path, images: Images, *, rows: int, distinct: int | None = None) -> SplitPart:
    """A split folder whose row at a position is the image of that number; returns its only split's entry.

    With ``distinct`` the images 0..distinct-1 come again and again: one epoch of any length over images that a small
    table holds.
    """
    distinct = distinct or rows
    (folder / "split=0").mkdir(parents=True)

    def write_file(start: int) -> tuple[SplitFile, tuple[int, int]]:
        positions = np.arange(start, min(start + _ROWS_A_FILE, rows), dtype=np.int64)
        numbers = positions % distinct
        ids, labels = images.ids(numbers), images.labels(numbers)
        path = f"split=0/part-{start // _ROWS_A_FILE:05d}.parquet"
        packed = pa.Array.from_buffers(pa.binary(ID_BYTES), len(ids), [None, pa.py_buffer(ids)]).cast(pa.binary())
        table = pa.table([packed, labels, positions], schema=ARROW_SCHEMA)
        pq.write_table(table, folder / path, compression="zstd", use_dictionary=["label"])
        return SplitFile(path, len(positions)), row_sums(ids, labels, positions)

    with ThreadPoolExecutor(_THREADS) as threads:
        written = list(threads.map(write_file, range(0, rows, _ROWS_A_FILE)))
    sums = sum(first for _, (first, _) in written), sum(second for _, (_, second) in written)
    counts: dict[int, int] = {}
    whole, rest = divmod(rows, distinct)
    for times, numbers in ((whole, distinct), (1, rest)):
        for label in range(min(CLASSES, numbers)):
            counts[label] = counts.get(label, 0) + times * (-(-(numbers - label) // CLASSES))
    fingerprint = split_fingerprint(seed=_SEED, index=0, rows=rows, sums=sums)
    part = SplitPart(0, rows, counts, fingerprint, tuple(file for file, _ in written))
    _publish(folder, part, data_table=images.table, num_classes=CLASSES, seed=_SEED)
    return part


def write_folder(folder: Path, found: loader.Folder, *, data_table: str) -> None:
    """A split folder of the rows of a tree of class folders, in their order."""
    path = folder / "split=0" / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    ids = pa.Array.from_buffers(pa.binary(ID_BYTES), len(found), [None, pa.py_buffer(np.ascontiguousarray(found.ids))])
    positions = np.arange(len(found), dtype=np.int64)
    pq.write_table(pa.table([ids.cast(pa.binary()), found.labels, positions], schema=ARROW_SCHEMA), path)
    part = SplitPart(0, len(found), found.counts, found.fingerprint, (SplitFile(f"split=0/{path.name}", len(found)),))
    _publish(folder, part, data_table=data_table, num_classes=found.num_classes, seed=0)


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
