"""The directive `sizing-table`: what sets of images need, computed from measured costs.

The page shows the code between the markers, so that formulas and table agree.
"""

from collections.abc import Callable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# formulas: begin
IMAGE_BYTES = 110_000  # mean length of a picture
COPIES = 3  # replication factor
SPARK_CORES = 16
NODES, NODE_CORES = 3, 16  # of Cassandra
NODE_BYTES_PER_S = 1.25e9  # network of a node, 10 Gbit/s
DISK_BYTES_PER_S = 1e9  # written by a node
DISK_WRITES = 3  # of each picture: commit log, flush, compaction


def table_bytes_per_node(images: int) -> float:
    """Data and metadata rows; as much again is free for compaction."""
    return images * (IMAGE_BYTES + 300) * COPIES / NODES * 2


def ingest_seconds(images: int) -> float:
    """The slowest of Spark's CPU, and of each node's CPU, network and disk."""
    spark = images * 0.73e-3 / SPARK_CORES
    servers = images * 1.84e-3 * COPIES / (NODES * NODE_CORES)
    node_bytes = images * IMAGE_BYTES * COPIES / NODES
    network, disk = node_bytes / NODE_BYTES_PER_S, node_bytes * DISK_WRITES / DISK_BYTES_PER_S
    return max(spark, servers, network, disk)


def metadata_seconds(images: int) -> float:
    """Read the metadata table into a cache."""
    return 25 + images * 28e-6 / SPARK_CORES


def split_seconds(images: int) -> float:
    """Compute and write a split from a cache, with positions."""
    return 25 + images * 3.4e-6 / SPARK_CORES


def split_bytes(images: int) -> float:
    """Ids, labels and positions as Parquet, and checksums."""
    return images * (19 + 8)


def metadata_bytes(images: int) -> float:
    """A metadata cache as Parquet."""
    return images * 65


def opened_bytes(images: int) -> float:
    """Ids, labels and checksums of an opened split: local disk and page cache of each training host."""
    return images * (20 + 8)


def opening_seconds(images: int) -> float:
    """The first opening on a host."""
    return 0.5 + images * 0.24e-6


def shard_objects(images: int) -> float:
    """Shards of 100 MB, an index for each, and the manifest."""
    return 2 * images * IMAGE_BYTES / 1e8 + 1


def shard_put_requests(images: int) -> float:
    """Parts of 5 MiB, and three requests for each shard and its index."""
    return images * IMAGE_BYTES / (5 << 20) + 3 * images * IMAGE_BYTES / 1e8


def shard_get_requests(images: int) -> float:
    """Pieces of 5 MiB, once an epoch; class folders in a bucket need one request for each image."""
    return images * IMAGE_BYTES / (5 << 20)


# formulas: end

SIZES = (1_000_000, 14_000_000, 100_000_000, 1_000_000_000)
ROWS: tuple[tuple[str, Callable[[int], float], str], ...] = (
    ("pictures, one copy", lambda images: float(images * IMAGE_BYTES), "bytes"),
    ("Cassandra: disk of each node", table_bytes_per_node, "bytes"),
    ("ingest", ingest_seconds, "time"),
    ("metadata cache: time", metadata_seconds, "time"),
    ("metadata cache: disk", metadata_bytes, "bytes"),
    ("split from the cache: time", split_seconds, "time"),
    ("split: disk", split_bytes, "bytes"),
    ("opened split: disk and page cache of a host", opened_bytes, "bytes"),
    ("first opening on a host", opening_seconds, "time"),
    ("reads of an epoch from Cassandra", float, "count"),
    ("shards of 100 MB: objects", shard_objects, "count"),
    ("shards: PUT requests", shard_put_requests, "count"),
    ("shards: GET requests of an epoch", shard_get_requests, "count"),
)


def shown(value: float, unit: str) -> str:
    """A value in two digits or more, with the unit that fits it."""
    if unit == "time":
        steps = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
        size, name = next((step for step in steps if value >= 2 * step[0]), steps[-1])
        return f"{value / size:,.0f} {name}" if value / size >= 10 else f"{value / size:.1f} {name}"
    prefixes = ("", "k", "M", "G", "T", "P") if unit == "bytes" else ("", "k", "M", "G")
    power = 0
    while value >= 1000 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    text = f"{value:.0f}" if value >= 10 else f"{value:.1f}"
    return f"{text} {prefixes[power]}{'B' if unit == 'bytes' else ''}".strip()


class SizingTable(SphinxDirective):
    """A row for each formula, a column for each number of images."""

    def run(self) -> list[nodes.Node]:
        head = ["", *(f"{size // 1_000_000:,} M images" for size in SIZES)]
        rows = [[name, *(shown(formula(size), unit) for size in SIZES)] for name, formula, unit in ROWS]
        self.env.note_dependency(__file__)
        return [_table(head, rows)]


def _table(head: list[str], rows: list[list[str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += [nodes.thead("", _row(head)), nodes.tbody("", *map(_row, rows))]
    return nodes.table("", group)


def _row(cells: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("sizing-table", SizingTable)
    return {"parallel_read_safe": True}
