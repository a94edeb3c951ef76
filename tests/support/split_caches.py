"""Metadata caches for tests, written without Spark in the same form, from literal rows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from formats.hashing import xxhash64
from formats.splits.fingerprint import SUM_SEEDS, rows_fingerprint
from schemas import Columns, SplitFile, image_id
from schemas.cache import CacheManifest

KINDS = {
    "id": pa.binary(),
    "label": pa.int32(),
    "labels": pa.list_(pa.int32()),
    "score": pa.float64(),
    "width": pa.int32(),
    "phash": pa.int64(),
    "sha256": pa.binary(),
    "imagestrata:checksum": pa.int64(),
    "expires": pa.timestamp("us", tz="UTC"),
}


def ids(count: int, *, name: str = "t") -> list[bytes]:
    """This many ids, always the same ones."""
    return [image_id(name, b"", str(number).encode()).bytes for number in range(count)]


def write_cache(
    folder: Path,
    columns: Mapping[str, Sequence[Any]],
    *,
    files: int = 1,
    label_type: str = "int",
    names: Mapping[int, str] | None = None,
    features: Sequence[str] = (),
) -> str:
    """Write a cache of these columns (``id``, ``label``, and others, of ``KINDS`` or text); return its address.

    ``features`` are the feature views that columns come from.
    """
    kinds = {
        name: pa.string() if str in map(type, values) else KINDS.get(name, pa.string())
        for name, values in columns.items()
    }
    table = pa.table({name: pa.array(list(values), kinds[name]) for name, values in columns.items()})
    cuts = np.linspace(0, len(table), files + 1).astype(int).tolist()
    (folder / "rows").mkdir(parents=True)
    written = []
    for number, (start, end) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(start, end - start), folder / "rows" / f"{number:05}.parquet")
        written.append(SplitFile(f"rows/{number:05}.parquet", end - start))
    packed = np.frombuffer(b"".join(columns["id"]), dtype=np.uint8).reshape(-1, 16)
    labels = np.array([-1 if label is None else label for label in columns["label"]], dtype=np.int32)
    known = np.array([label is not None or label_type != "int" for label in columns["label"]])
    sums = []
    for seed in SUM_SEEDS:
        with_label = xxhash64([np.full(len(packed), seed, dtype=np.int64), packed, labels])
        without = xxhash64([np.full(len(packed), seed, dtype=np.int64), packed])  # Spark's hash skips nulls
        sums.append(int(np.where(known, with_label, without).view(np.uint64).sum(dtype=np.uint64)))
    manifest = CacheManifest(
        data_table="ks.data",
        metadata_table="ks.metadata",
        columns=Columns(),
        label_type=label_type,
        class_names=names or {},
        rows=len(table),
        fingerprint=rows_fingerprint(rows=len(table), sums=(sums[0], sums[1])),
        files=tuple(written),
        created="2026-01-01T00:00:00+00:00",
        features=tuple(features),
    )
    (folder / "cache.json").write_text(manifest.to_json())
    return str(folder)
