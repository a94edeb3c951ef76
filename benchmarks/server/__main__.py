"""What settings of the server are worth for writing pictures: each one changed alone, against ours.

    make bench-server

The bare writer's requests, both rows of a picture in one batch, go in turn to an embedded Cassandra as it comes and to
one with a single change: how rows are sent, how the commit log is synced, where memtables lie, how tables compact and
compress. A ratio above 1 says that ours is faster. Both servers are compiled quickly rather than well, so that a young
one can be compared with an old one. QUICK=1 writes few pictures; figures have no value then.
"""

import argparse
import asyncio
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.command import tell
from benchmarks.harness.pairs import ratio_row
from benchmarks.harness.picture_rows import (
    DATA,
    DATA_COLUMNS,
    KEYSPACE,
    METADATA,
    METADATA_COLUMNS,
    Origin,
    Rows,
    insert,
    list_paths,
    our_id,
    rows_of,
    write,
)
from benchmarks.harness.pictures import PICTURE_BYTES, plant_pictures, require_room
from benchmarks.harness.processes import cpu_seconds
from benchmarks.harness.results import Row, publish
from devstack import NodeError
from devstack.cassandra import Cassandra
from etl.cassandra import writer
from etl.cluster import Cluster
from schemas import Columns
from schemas.tables import Replication, create_data, create_keyspace, create_metadata

IN_FLIGHT = 128
PAIRS = 3
DISK_BYTES = 6_000_000_000


@dataclass(frozen=True)
class Change:
    """One thing that is not as ours."""

    name: str
    note: str
    yaml: Mapping[str, object] = field(default_factory=dict)
    """Lines of cassandra.yaml."""
    table: str = ""
    """What the data table is altered to."""
    batch: bool = True
    heap_mb: int = 512


CHANGES = (
    Change("two requests a picture", "the metadata row when the data row is acknowledged", batch=False),
    Change("commit log synced alone", "commitlog_sync: batch; as durable", yaml={"commitlog_sync": "batch"}),
    Change("groups of 5 ms", "as durable", yaml={"commitlog_sync_group_window": "5ms"}),
    Change(
        "commit log synced every 10 s",
        "commitlog_sync: periodic; a power cut loses what was acknowledged",
        yaml={"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"},
    ),
    Change("32 write threads", "Cassandra's own number; each waits for its group", yaml={"concurrent_writes": 32}),
    Change("memtables on the heap", "heap_buffers", yaml={"memtable_allocation_type": "heap_buffers"}),
    Change("a heap of 1 GB", "and as much beside it, so larger memtables", heap_mb=1024),
    Change("pictures compressed", "LZ4, Cassandra's own choice", table="compression = {'class': 'LZ4Compressor'}"),
    Change(
        "unified compaction",
        "scaling_parameters T8: merges less often",
        table="compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T8'}",
    ),
    Change(
        "no compaction",
        "what merging costs while pictures come in; reads pay for it later",
        table="compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}",
    ),
)
OURS = Change("ours", "")


class Contender:
    """A server with one change, and the writer's requests to it; a context manager."""

    def __init__(self, folder: Path, change: Change) -> None:
        self._change = change
        self._server = Cassandra(folder, heap_mb=change.heap_mb, yaml=change.yaml)

    def __enter__(self) -> "Contender":
        self._server.start(tied=True)  # such a server is as fast after seconds as it will ever be
        with self._server.session() as session:
            session.execute(create_keyspace(KEYSPACE, Replication.parse("1")))
            session.execute(create_data(DATA, Columns()))
            session.execute(create_metadata(METADATA, Columns()))
            if self._change.table:
                session.execute(f"ALTER TABLE {DATA} WITH {self._change.table}")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.clean()

    def run(self, rows: Sequence[Rows]) -> tuple[float, float]:
        """Write rows into empty tables; returns pictures a second, and the server's CPU milliseconds a picture."""
        with self._server.session() as session:
            for table in (DATA, METADATA):
                session.execute(f"TRUNCATE {table}", timeout=120)
        os.sync()
        pid = self._server.nodes[0].pid
        assert pid is not None
        before = cpu_seconds(pid)
        seconds = asyncio.run(self._write(rows))
        return len(rows) / seconds, 1e3 * (cpu_seconds(pid) - before) / len(rows)

    async def _write(self, rows: Sequence[Rows]) -> float:
        cluster = Cluster(tuple(self._server.hosts), self._server.port, self._server.datacenter)
        async with writer(cluster) as connected:
            statements = [
                await connected.prepare(insert(DATA, DATA_COLUMNS)),
                await connected.prepare(insert(METADATA, METADATA_COLUMNS)),
            ]
            started = time.monotonic()
            await write(connected._session, statements, rows, in_flight=IN_FLIGHT, batch=self._change.batch)
            return time.monotonic() - started


def compare(folder: Path, rows: Sequence[Rows], ours: Contender, change: Change, *, quick: bool) -> Row:
    """Ours and a change of it in turn, after both have been warmed up."""
    with Contender(folder / "changed", change) as changed:
        for _ in range(2):
            changed.run(rows)
        pairs = []
        for turn in range(PAIRS):
            both = [ours, changed] if turn % 2 else [changed, ours]
            found = {one: one.run(rows) for one in both}
            pairs.append((found[ours], found[changed]))
            tell(f"{change.name}: {found[changed][0]:,.0f} images/s, ours {found[ours][0]:,.0f}")
    rates = ([pair[side][0] for pair in pairs] for side in (0, 1))
    cpu = [statistics.median(pair[side][1] for pair in pairs) for side in (0, 1)]
    note = f"{change.note}; images/s; server's CPU ms a picture: ours {cpu[0]:.2f}, {change.name} {cpu[1]:.2f}"
    return ratio_row(f"ours over {change.name}", 1.0, *rates, note=note, quick=quick)


def main() -> int:
    """Measure and report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few pictures, in under three minutes")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="imagestrata-bench-")).resolve()
    try:
        require_room(folder, bytes=DISK_BYTES, files=10_000)
        root = str(plant_pictures(folder / "tree", 400 if quick else 4_000).root)
        origin = Origin.of(root)
        rows = [
            rows_of(path, Path(root, path).read_bytes(), id=our_id(path), origin=origin) for path in list_paths(root)
        ]
        gc.freeze()  # what lies there is no business of the collector
        tell(f"{len(rows):,} pictures of {PICTURE_BYTES:,} bytes in memory")
        with Contender(folder / "ours", OURS) as ours:
            for _ in range(1 if quick else 4):
                ours.run(rows)
            found = [compare(folder, rows, ours, change, quick=quick) for change in CHANGES]
    except (OSError, NodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    publish("server", found, quick=quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
