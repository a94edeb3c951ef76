"""The effect of server settings on writing images: each setting is changed alone and compared with our defaults.

    make bench-server

The requests of the bare writer, with both rows of a image in one batch, go in turn to an embedded Cassandra with our
settings and to one with a single change: how rows are sent, how the commit log is synced, where memtables are kept,
how tables compact and compress. A ratio above 1 means that ours is faster. Both servers use the quick JIT compiler
only, so that a new server can be compared with one that has run for a while.
QUICK=1 writes few images, too few for a value.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.cassandra import embedded
from benchmarks.harness.command import Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.picture_rows import DATA, KEYSPACE, METADATA, Rows, rows_below, write_bare
from benchmarks.harness.pictures import PICTURE_BYTES, plant_pictures, require_room
from benchmarks.harness.processes import cpu_seconds
from benchmarks.harness.results import Row, tell
from etl.cassandra.cluster import Cluster
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns
from schemas.tables import create_data, create_metadata

IN_FLIGHT = 128
PAIRS = 3
DISK_BYTES = 6_000_000_000


@dataclass(frozen=True)
class Change:
    """One setting that differs from ours."""

    name: str
    note: str
    yaml: Mapping[str, object] = field(default_factory=dict)
    """Lines of cassandra.yaml."""
    table: str = ""
    """The change of the data table."""
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
_USE = "a server that has been in use"
FIGURES = Figures(
    {number: Figure(f"ours over {one.name}", ">=", 1.0, needs=_USE) for number, one in enumerate(CHANGES, start=1)}
)
"""By number, in the order of the changes."""


@contextmanager
def contender(folder: Path, change: Change) -> Iterator["Contender"]:
    """A server with one change. It uses the quick compiler only, so it reaches full speed in seconds."""
    tables = [create_data(DATA, Columns()), create_metadata(METADATA, Columns())]
    altered = [f"ALTER TABLE {DATA} WITH {change.table}"] if change.table else []
    options: dict[str, Any] = {"heap_mb": change.heap_mb, "yaml": change.yaml, "tied": True}
    with embedded(folder, KEYSPACE, *tables, *altered, **options) as server:
        yield Contender(server, is_batch=change.batch)


class Contender:
    """A server, and the writer's requests to it."""

    def __init__(self, server: Cassandra, *, is_batch: bool) -> None:
        self._server, self._is_batch = server, is_batch

    def run(self, rows: Sequence[Rows]) -> tuple[float, float]:
        """Write rows into empty tables; return images per second, and the server's CPU milliseconds per image."""
        with self._server.session() as session:
            for table in (DATA, METADATA):
                session.execute(f"TRUNCATE {table}", timeout=120)
        os.sync()
        pid = self._server.nodes[0].pid
        assert pid is not None
        before = cpu_seconds(pid)
        cluster = Cluster(tuple(self._server.hosts), self._server.port, self._server.datacenter)
        seconds, _ = write_bare(cluster, rows, in_flight=IN_FLIGHT, batch=self._is_batch)
        return len(rows) / seconds, 1e3 * (cpu_seconds(pid) - before) / len(rows)


def compare(folder: Path, rows: Sequence[Rows], ours: Contender, number: int) -> Row:
    """Our settings and one change alternately, after a warm-up of both."""
    change = CHANGES[number - 1]
    with contender(folder / "changed", change) as changed:
        for _ in range(2):
            changed.run(rows)
        runs = in_turn(PAIRS, {change.name: lambda: changed.run(rows), OURS.name: lambda: ours.run(rows)})
    mine, others = runs[OURS.name], runs[change.name]
    rates, cpu = ([[run[side] for run in found] for found in (mine, others)] for side in (0, 1))
    tell(f"{change.name}: {statistics.median(rates[1]):,.0f} images/s, ours {statistics.median(rates[0]):,.0f}")
    spent = [statistics.median(found) for found in cpu]
    note = f"{change.note}; images/s; server's CPU ms a picture: ours {spent[0]:.2f}, {change.name} {spent[1]:.2f}"
    return FIGURES.ratio_row(number, *rates, note=note)


def measure(parts: Parts, folder: Path) -> None:
    """Compare our settings with each requested change."""
    require_room(folder, bytes=DISK_BYTES, files=10_000)
    root = str(plant_pictures(folder / "tree", 400 if parts.is_quick else 4_000).root)
    rows = rows_below(root)
    tell(f"{len(rows):,} pictures of {PICTURE_BYTES:,} bytes in memory")
    with contender(folder / "ours", OURS) as ours:
        for _ in range(1 if parts.is_quick else 4):
            ours.run(rows)
        for number in FIGURES:
            parts.measure((number,), lambda here: {one: compare(folder, rows, ours, one) for one in here})


if __name__ == "__main__":
    sys.exit(run("server", __doc__, FIGURES, measure, quick="few pictures, in under three minutes"))
