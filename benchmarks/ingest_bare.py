"""A bare asynchronous writer: rows that lie in memory already, sent with acsylla; a process of its own.

    python -m benchmarks.ingest_bare HOST PORT DATACENTER FOLDER

Reads all pictures of a folder, makes their rows, and says so by a line. Then, for each line of JSON on its input,
{"in_flight": N, "pictures": N, "batch": bool}, it writes that many and answers with {"seconds", "cpu", "bytes"}. Each
picture is two requests, the metadata row when the data row is acknowledged, or one batch of both.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ingest_work import (
    DATA,
    DATA_COLUMNS,
    METADATA,
    METADATA_COLUMNS,
    Origin,
    insert,
    list_paths,
    our_id,
    rows_of,
)
from etl.cassandra import writer
from etl.cluster import Cluster

Rows = tuple[tuple[Any, ...], tuple[Any, ...]]


async def serve(cluster: Cluster, folder: str) -> None:
    """Load, then write as often as asked."""
    origin = Origin.of(folder)
    rows = [
        rows_of(path, Path(folder, path).read_bytes(), id=our_id(path), origin=origin) for path in list_paths(folder)
    ]
    gc.freeze()  # what lies there is no business of the collector
    async with writer(cluster) as connected:
        statements = [
            await connected.prepare(insert(DATA, DATA_COLUMNS)),
            await connected.prepare(insert(METADATA, METADATA_COLUMNS)),
        ]
        session = connected._session  # connected as ours is, without what ours does around each write
        print(json.dumps({"pictures": len(rows)}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            taken = rows[: order["pictures"]]
            started, cpu = time.monotonic(), time.process_time()
            await write(session, statements, taken, in_flight=order["in_flight"], batch=order["batch"])
            done = {"seconds": time.monotonic() - started, "cpu": time.process_time() - cpu}
            print(json.dumps({**done, "bytes": sum(len(data[-1]) for data, _ in taken)}), flush=True)


async def write(
    session: Any, statements: Sequence[Any], rows: Sequence[Rows], *, in_flight: int, batch: bool = False
) -> None:
    """Write both rows of each picture, so many pictures at a time."""
    import acsylla

    left: Iterator[Rows] = iter(rows)
    put_data, put_metadata = statements

    async def one_after_another() -> None:
        for data, metadata in left:
            if batch:
                both = acsylla.create_batch_unlogged()
                both.add_statement(put_data.bind(data))
                both.add_statement(put_metadata.bind(metadata))
                await session.execute_batch(both)
            else:
                await session.execute(put_data.bind(data))
                await session.execute(put_metadata.bind(metadata))

    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))


def main() -> int:
    """Serve until the input ends."""
    host, port, datacenter, folder = sys.argv[1:]
    asyncio.run(serve(Cluster((host,), int(port), datacenter), folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
