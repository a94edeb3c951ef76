"""Split folders for tests, written without Spark."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import UNKNOWN
from formats.splits.features import field_fingerprint, is_numeric, value_sums
from formats.splits.fingerprint import checksums_fingerprint, row_sums, split_fingerprint
from formats.splits.opened import HeldRows, SplitRows
from schemas import Columns, SplitFile, SplitManifest, SplitPart
from schemas.features import vector_length
from schemas.manifest import NAME, FeaturePart, StoredFeature
from schemas.splits import ARROW_SCHEMA

if TYPE_CHECKING:
    import loader

Rows = tuple[Sequence[uuid.UUID], Sequence[int]]
"""The ids and the labels of one split, by position."""


def image_ids(count: int, *, first: int = 0) -> list[uuid.UUID]:
    """Pseudo-random ids, the same every time."""
    return [uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(first, first + count)]


def packed(ids: Sequence[uuid.UUID]) -> NDArray[np.uint8]:
    """Ids as uint8 ``(n, 16)``."""
    return np.frombuffer(b"".join(one.bytes for one in ids), dtype=np.uint8).reshape(-1, 16)


def write_split_folder(
    folder: Path,
    splits: Sequence[Rows],
    *,
    data_table: str = "test.data",
    columns: Columns | None = None,
    class_names: Mapping[int, str] | None = None,
    seed: int = 7,
    files: int = 2,
    label_type: str = "int",
    has_position: bool = True,
    metadata_table: str = "test.metadata",
    options: Mapping[str, Any] | None = None,
    features: Mapping[str, tuple[str, Sequence[Any]]] | None = None,
    checksums: Sequence[Sequence[int]] | None = None,
) -> Path:
    """Write a split folder; its rows are distributed over some files, in a mixed order.

    ``features`` has, by name, the type and the values of each split by position, ``checksums`` those of its images.
    """
    parts = []
    for index, (ids, labels) in enumerate(splits):
        rows, numbers = len(ids), np.asarray(labels, dtype=np.int32)
        positions = np.arange(rows, dtype=np.int64)
        mixed = np.random.default_rng(index).permutation(rows)
        written = []
        for number, chunk in enumerate(np.array_split(mixed, files)):
            path = f"split={index}/part-{number:05d}.parquet"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            arrays: list[Any] = [[ids[row].bytes for row in chunk], numbers[chunk], positions[chunk]]
            table = pa.table(arrays, schema=ARROW_SCHEMA)
            if checksums is not None:
                found = np.asarray(checksums[index], dtype=np.int64)
                table = table.append_column(CHECKSUM, pa.array(found[chunk]))
            pq.write_table(table if has_position else table.drop_columns("position"), folder / path)
            written.append(SplitFile(path, len(chunk)))
        sums = row_sums(packed(ids), numbers, positions if has_position else np.full(rows, -1, dtype=np.int64))
        fingerprint = split_fingerprint(seed=seed, index=index, rows=rows, sums=sums)
        part = SplitPart(index, rows, dict(Counter(numbers.tolist())), fingerprint, tuple(written))
        if checksums is not None:
            found = np.asarray(checksums[index], dtype=np.int64)
            sums = row_sums(packed(ids), found)
            part = replace(
                part,
                checksums=checksums_fingerprint(split=fingerprint, rows=rows, sums=sums),
                without_checksum=int((found == UNKNOWN).sum()),
            )
        parts.append(part)
    manifest = SplitManifest(
        data_table=data_table,
        metadata_table=metadata_table,
        columns=columns or Columns(),
        label_type=label_type,
        num_classes=1 + max((label for _, labels in splits for label in labels), default=-1),
        class_names=class_names or {},
        seed=seed,
        options=dict(options or {}),
        splits=tuple(parts),
        created="2026-01-01T00:00:00+00:00",
        code_version="test",
        has_position=has_position,
        stored_features=tuple(
            _write_feature(folder, name, kind, values, parts=parts, files=files)
            for name, (kind, values) in (features or {}).items()
        ),
    )
    (folder / NAME).write_text(manifest.to_json(), encoding="utf-8")
    return folder


_ARROW = {"boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64()}


def without_labels(split: "loader.Split", *, label_type: str = "int") -> "loader.Split":
    """The split as another tool's dictionary, in memory: labels are read with the images."""
    rows = SplitRows(np.array(split.ids), None)
    manifest = replace(split.opened.manifest, label_type=label_type)
    opened = replace(split.opened, manifest=manifest, contents=HeldRows((rows,)), storage=None)
    return replace(split, opened=opened, rows=rows, is_opened=False)


def _write_feature(
    folder: Path, name: str, kind: str, values: Sequence[Any], *, parts: Sequence[SplitPart], files: int
) -> StoredFeature:
    view, found = f"{name}@v1", []
    for part, of_part in zip(parts, values, strict=True):
        written = []
        for number, chunk in enumerate(np.array_split(np.random.default_rng(3).permutation(part.rows), files)):
            path = f"_features/{view}/split={part.index}/part-{number:05d}.parquet"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            is_vector = vector_length(kind) is not None
            rows = [of_part[row].tobytes() if is_vector else of_part[row] for row in chunk]
            column = pa.array(rows, pa.binary() if is_vector else _ARROW.get(kind, pa.string()))
            pq.write_table(pa.table({"position": pa.array(chunk, pa.int64()), name: column}), folder / path)
            written.append(SplitFile(path, len(chunk)))
        sums = value_sums(np.arange(part.rows, dtype=np.int64), np.asarray(of_part)) if is_numeric(kind) else (0, 0)
        printed = field_fingerprint(split=part.fingerprint, view=view, field=name, kind=kind, rows=part.rows, sums=sums)
        found.append(FeaturePart(fingerprints={name: printed}, files=tuple(written)))
    return StoredFeature(view=view, fields={name: kind}, splits=tuple(found))
