"""The usual way to make a split without Spark, with everything in one DataFrame, in a separate process.

Both functions write a pickled dictionary of the ids and one array of positions per split. The answer: {"ended",
"seconds", "counts", "id_sum"}: when (``time.monotonic``) and after how long the dictionary was written, rows by split
and class, and the sum of the ids as 128-bit numbers. Imports are not timed.
"""

import pickle
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

RATIOS = (8, 1, 1)
SEED = 7
_PAGE_ROWS = 5_000


def split_frame(frame: pd.DataFrame, *, ratios: Sequence[int], seed: int) -> dict[str, Any]:
    """The ids (``row_keys``) and the positions of each split's rows (``split``): every class is shuffled and cut."""
    random = np.random.default_rng(seed)
    parts: list[list[Any]] = [[] for _ in ratios]
    for places in frame.groupby("label").indices.values():
        shuffled = random.permutation(places)
        ends = np.cumsum(ratios)[:-1] * len(places) // sum(ratios)
        for part, some in zip(parts, np.split(shuffled, ends), strict=True):
            part.append(some)
    return {"row_keys": frame["id"].to_numpy(), "split": [np.concatenate(part) for part in parts]}


def read_table(host: str, port: int, keyspace: str) -> pd.DataFrame:
    """The ids and labels of a metadata table, page by page."""
    from cassandra.cluster import Cluster
    from cassandra.query import tuple_factory

    with Cluster([host], port=port) as cluster, cluster.connect(keyspace) as session:
        session.row_factory = tuple_factory
        session.default_fetch_size = _PAGE_ROWS
        rows = list(session.execute("SELECT id, label FROM metadata", timeout=None))
    return pd.DataFrame(rows, columns=["id", "label"])


def read_cache(folder: Path, *, as_uuids: bool) -> pd.DataFrame:
    """The ids, as Python objects, and labels of a metadata cache."""
    ids: list[Any] = []
    labels = []
    for file in sorted((folder / "rows").glob("*.parquet")):
        table = pq.read_table(file, columns=["id", "label"])
        found = table["id"].to_pylist()
        ids += [uuid.UUID(bytes=one) for one in found] if as_uuids else found
        labels.append(table["label"].to_numpy())
    return pd.DataFrame({"id": ids, "label": np.concatenate(labels)})


def id_number(one: uuid.UUID | bytes) -> int:
    """An id as a 128-bit number."""
    return one.int if isinstance(one, uuid.UUID) else int.from_bytes(one, "big")


def make(out: str, cache: str, kind: str) -> dict[str, float]:
    """Pickle a metadata cache with its ids as objects of a ``kind``, uuid or bytes."""
    started = time.monotonic()
    with open(out, "wb") as file:
        pickle.dump(read_cache(Path(cache), as_uuids=kind == "uuid"), file)
    return {"ended": time.monotonic(), "seconds": time.monotonic() - started}


def split_table(out: str, host: str, port: int, keyspace: str) -> dict[str, Any]:
    """Split the rows in Cassandra."""
    started = time.monotonic()
    return _split(read_table(host, port, keyspace), out, started=started)


def split_pickle(out: str, given: str) -> dict[str, Any]:
    """Split a pickled DataFrame."""
    started = time.monotonic()
    with open(given, "rb") as file:
        return _split(pickle.load(file), out, started=started)


def _split(frame: pd.DataFrame, out: str, *, started: float) -> dict[str, Any]:
    """Split and write; then report what was written."""
    split = split_frame(frame, ratios=RATIOS, seed=SEED)
    with open(out, "wb") as file:
        pickle.dump(split, file)
    ended = time.monotonic()
    labels = frame["label"].to_numpy()
    counts = [np.bincount(labels[places]).tolist() for places in split["split"]]
    id_sum = sum(map(id_number, split["row_keys"])) % (1 << 128)
    return {"ended": ended, "seconds": ended - started, "counts": counts, "id_sum": id_sum}
