"""Reads epochs 0 of a split on two ranks, one after the other, and logs what each delivers: id, SHA-256, label.

    python -m tests.support.drills.epoch SPLIT HOSTS PORT LOG

Each batch is logged, and then the state stored. After a kill, it goes on from the last state, and first drops what was
logged after it, as a training that goes back to its checkpoint does.
"""

import hashlib
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import loader

_STEP = 0.6  # seconds, a training step: an epoch must last long enough for a fault


def main(split: str, hosts: str, port: str, log: str) -> None:
    """Read the rest of the epoch on both ranks."""
    lines = Path(log)
    store = lines.with_suffix(".state")
    found: dict[str, Any] = json.loads(store.read_text()) if store.is_file() else {"rank": 0, "state": None, "bytes": 0}
    opened = loader.open_split(split, cache=lines.parent / "cache")
    with open(lines, "ab") as file:
        file.truncate(found["bytes"])
        for rank in range(found["rank"], 2):
            if found["state"] is not None and found["state"]["epoch"] > 0:  # killed after the last batch of a rank
                found["state"] = None
                continue
            with loader.CassandraSource(
                opened, hosts=hosts.split(","), port=int(port), batch_size=8, rank=rank, world_size=2, seed=1,
                memory_budget=200_000, timeout=120.0, last_batch_policy="PARTIAL",
            ) as source:  # fmt: skip
                if found["state"] is not None:
                    source.load_state_dict(found["state"])
                for batch in source.epoch(0):
                    labels = batch.labels
                    assert labels is not None
                    for row, image, label in zip(batch.ids, batch.images, labels, strict=True):
                        digest = hashlib.sha256(image).hexdigest()
                        file.write(f"{uuid.UUID(bytes=row.tobytes())} {digest} {label}\n".encode())
                    file.flush()
                    time.sleep(_STEP)
                    _keep(store, {"rank": rank, "state": source.state_dict(), "bytes": file.tell()})
            found["state"] = None
            _keep(store, {"rank": rank + 1, "state": None, "bytes": file.tell()})


def _keep(store: Path, found: dict[str, object]) -> None:
    new = store.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.replace(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
