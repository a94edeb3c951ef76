"""The usual way to make a split without Spark: everything in one DataFrame; a process of its own.

    python -m benchmarks.splits.frames table OUT HOST PORT KEYSPACE
    python -m benchmarks.splits.frames pickle OUT IN
    python -m benchmarks.splits.frames make OUT CACHE uuid|bytes

The first reads ids and labels from Cassandra, the second a pickled DataFrame, which the third makes from a metadata
cache. Both write a pickled dictionary of the ids and one array of places a split. The last line is JSON: {"ended",
"seconds", "counts", "id_sum"}: when (``time.monotonic``) and after how long the dictionary was there, rows by split and
class, and the sum of the ids as numbers of 128 bits. Imports are not timed.
"""

import json
import pickle
import sys
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
    """The ids (``row_keys``) and the places of each split's rows (``split``): every class shuffled and cut."""
    random = np.random.default_rng(seed)
    parts: list[list[Any]] = [[] for _ in ratios]
    for places in frame.groupby("label").indices.values():
        shuffled = random.permutation(places)
        ends = np.cumsum(ratios)[:-1] * len(places) // sum(ratios)
        for part, some in zip(parts, np.split(shuffled, ends), strict=True):
            part.append(some)
    return {"row_keys": frame["id"].to_numpy(), "split": [np.concatenate(part) for part in parts]}


def read_table(host: str, port: int, keyspace: str) -> pd.DataFrame:
    """The ids and labels of a metadata table, page after page."""
    from cassandra.cluster import Cluster
    from cassandra.query import tuple_factory

    with Cluster([host], port=port) as cluster, cluster.connect(keyspace) as session:
        session.row_factory = tuple_factory
        session.default_fetch_size = _PAGE_ROWS
        rows = list(session.execute("SELECT id, label FROM metadata", timeout=None))
    return pd.DataFrame(rows, columns=["id", "label"])


def read_cache(folder: Path, *, as_uuids: bool) -> pd.DataFrame:
    """The ids, as objects of Python's, and labels of a metadata cache."""
    ids: list[Any] = []
    labels = []
    for file in sorted((folder / "rows").glob("*.parquet")):
        table = pq.read_table(file, columns=["id", "label"])
        found = table["id"].to_pylist()
        ids += [uuid.UUID(bytes=one) for one in found] if as_uuids else found
        labels.append(table["label"].to_numpy())
    return pd.DataFrame({"id": ids, "label": np.concatenate(labels)})


def id_number(one: uuid.UUID | bytes) -> int:
    """An id as a number."""
    return one.int if isinstance(one, uuid.UUID) else int.from_bytes(one, "big")


def main() -> int:
    """Read, split, write; then tell what was written."""
    kind, out = sys.argv[1], Path(sys.argv[2])
    started = time.monotonic()
    if kind == "make":
        with out.open("wb") as file:
            pickle.dump(read_cache(Path(sys.argv[3]), as_uuids=sys.argv[4] == "uuid"), file)
        print(json.dumps({"ended": time.monotonic(), "seconds": time.monotonic() - started}))
        return 0
    if kind == "table":
        frame = read_table(sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        with open(sys.argv[3], "rb") as file:
            frame = pickle.load(file)
    split = split_frame(frame, ratios=RATIOS, seed=SEED)
    with out.open("wb") as file:
        pickle.dump(split, file)
    ended = time.monotonic()
    labels = frame["label"].to_numpy()
    counts = [np.bincount(labels[places]).tolist() for places in split["split"]]
    id_sum = sum(map(id_number, split["row_keys"])) % (1 << 128)
    print(json.dumps({"ended": ended, "seconds": ended - started, "counts": counts, "id_sum": id_sum}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
