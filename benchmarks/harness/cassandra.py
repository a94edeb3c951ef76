"""An embedded Cassandra, and a bare client that uses acsylla directly.

The bare client fills the tables and is the baseline of the loader.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import acsylla
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.pictures import id_sum
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns, TableName
from schemas.tables import Replication, create_keyspace

_WRITES_IN_FLIGHT = 64
_THREADS, _CONNECTIONS = 2, 2


@contextmanager
def embedded(
    folder: Path, keyspace: str, *statements: str, nodes: int = 1, tied: bool = False, **options: Any
) -> Iterator[Cassandra]:
    """Start nodes, create a keyspace with a replica on each, and run these statements; remove all data at the end.

    With ``tied``, the server ends with this thread and is compiled for a quick start, otherwise for speed.
    """
    server = Cassandra(folder, nodes=nodes, **options)
    try:
        server.start(tied=tied)
        with server.session() as session:
            for statement in (create_keyspace(keyspace, Replication.parse(str(nodes))), *statements):
                session.execute(statement)
        yield server
    finally:
        server.clean()


async def connect(host: str, port: int) -> Any:
    """Connect a session."""
    cluster = acsylla.create_cluster(
        [host],
        port=port,
        num_threads_io=_THREADS,
        core_connections_per_host=_CONNECTIONS,
        queue_size_io=1 << 15,
        request_timeout=30.0,
        consistency=acsylla.Consistency.LOCAL_ONE,
        log_level="critical",
    )
    return await cluster.create_session()


def write(table: TableName, rows: Iterable[tuple[bytes, int, bytes]], *, server: Cassandra) -> None:
    """Write rows of ids, labels and images."""
    asyncio.run(_write(table, iter(rows), server))


async def _write(table: TableName, left: Iterator[tuple[bytes, int, bytes]], server: Cassandra) -> None:
    session, column = await connect(server.hosts[0], server.port), Columns()
    names = f'"{column.id}", "{column.label}", "{column.data}"'
    insert = await session.create_prepared(f"INSERT INTO {table.quoted} ({names}) VALUES (?, ?, ?)")

    async def one_after_another() -> None:
        for id, label, data in left:
            await session.execute(insert.bind((str(UUID(bytes=id)), label, data)))

    await asyncio.gather(*(one_after_another() for _ in range(_WRITES_IN_FLIGHT)))
    await session.close()


def read(order: Mapping[str, Any], ids: NDArray[np.uint8]) -> dict[str, Any]:
    """Read images in the order of uint8 ``(n, 16)`` ids, ``concurrency`` at a time, and discard their bytes.

    The timings have the form that consumers of the loader report. A batch is the images since the last one.
    """
    return asyncio.run(_read(order, ids))


async def _read(order: Mapping[str, Any], ids: NDArray[np.uint8]) -> dict[str, Any]:
    began = time.monotonic()
    session, column = await connect(order["hosts"][0], order["port"]), Columns()
    table = TableName.parse(order["table"]).quoted
    select = await session.create_prepared(f'SELECT "{column.data}" FROM {table} WHERE "{column.id}" = ?')
    packed = [one.tobytes() for one in ids]
    left = iter([(one, str(UUID(bytes=one))) for one in packed])
    connected = time.monotonic() - began
    batch, images, size = order["batch_size"], 0, 0
    got, cpu = [], []
    started = time.monotonic()

    async def one_after_another() -> None:
        nonlocal images, size
        for one, text in left:
            data = (await session.execute(select.bind((text,)))).first().column_value_by_index(0)
            if data[-16:] != one:
                raise RuntimeError(f"Wanted the image {text}. Found: another.")
            images, size = images + 1, size + len(data)
            if images % batch == 0 or images == len(packed):
                got.append(time.monotonic() - started)
                cpu.append(time.process_time())

    await asyncio.gather(*(one_after_another() for _ in range(order["in_flight"])))
    await session.close()
    counts = [min(batch, len(packed) - start) for start in range(0, len(packed), batch)]
    sums = {"images": images, "bytes": size, "ids": id_sum(ids)}
    return {"connected": connected, "asked": got, "got": got, "counts": counts, "cpu": cpu, "sums": sums}
