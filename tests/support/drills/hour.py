"""An hour of loading in which a node is killed every two minutes: ``python -m tests.support.drills.hour``.

Three nodes have each image. Epoch after epoch is read, and each is compared with what was written: every image once,
with its bytes. The rate is compared with that of the minutes before the first kill.

exit codes: 0 nothing was lost, doubled or wrong; 1 something was
"""

import argparse
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import texture, write_table
from tests.support.split_folders import image_ids, write_split_folder

IMAGES = 1500
_TABLE = "hour.data"
_BEFORE = 0.1  # the part of the time without kills


@dataclass
class Reader:
    """Reads epochs in a thread, until it is stopped."""

    split: loader.Split
    server: Cassandra
    images: dict[uuid.UUID, bytes]
    counts: list[tuple[float, int]] = field(default_factory=list)  # of batches: when, and how many images
    epochs: int = 0
    wrong: list[str] = field(default_factory=list)
    is_over: bool = False

    def run(self) -> None:
        """Read and compare. A failed epoch is wrong, too."""
        try:
            with loader.CassandraSource(
                self.split, hosts=self.server.hosts, port=self.server.port, batch_size=64, seed=0, timeout=60.0
            ) as source:
                while not self.is_over:
                    self._epoch(source)
        except Exception as error:
            self.wrong.append(f"epoch {self.epochs}: {error}")

    def _epoch(self, source: loader.CassandraSource) -> None:
        found: Counter[tuple[uuid.UUID, bytes]] = Counter()
        for batch in source.epoch(self.epochs):
            found.update(
                (uuid.UUID(bytes=row.tobytes()), image) for row, image in zip(batch.ids, batch.images, strict=True)
            )
            self.counts.append((time.monotonic(), len(batch)))
        if found != Counter(self.images.items()):
            self.wrong.append(f"epoch {self.epochs}: {found.total()} of {len(self.images)} images, or other bytes")
        self.epochs += 1

    def rate(self, begin: float, end: float) -> float:
        """Images a second between two times."""
        return sum(images for when, images in self.counts if begin <= when < end) / (end - begin)


def main() -> int:
    """Run it in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="(default: %(default)s)")
    parser.add_argument("--every", type=float, default=2.0, help="minutes between kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the nodes that are killed (default: %(default)s)")
    options = parser.parse_args()
    numbers = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="imagestrata-hour-") as name:
        folder = Path(name)
        with Cassandra(folder / "cassandra", nodes=3) as server:
            reader = Reader(*_filled(folder, server))
            thread = threading.Thread(target=reader.run)
            thread.start()
            begin = time.monotonic()
            first, last = begin + 60 * _BEFORE * options.minutes, begin + 60 * options.minutes
            kills = 0
            while (now := time.monotonic()) < last and thread.is_alive():
                if now >= first + 60 * options.every * kills:
                    kills += 1
                    server.kill(numbers.randrange(3))
                    server.start(tied=True)
                    print(
                        f"{(time.monotonic() - begin) / 60:.0f} min: {kills} kills, {reader.epochs} epochs", flush=True
                    )
                time.sleep(0.2)
            reader.is_over = True
            thread.join()
    usual, troubled = reader.rate(begin + 5, first), reader.rate(first, last)  # 5 s to connect
    print(
        f"{reader.epochs} epochs of {IMAGES} images, {kills} kills; {len(reader.wrong)} epochs wrong; "
        f"{usual:.0f} images/s without and {troubled:.0f} with kills: {troubled / usual:.2f}",
        *reader.wrong,
        sep="\n",
    )
    return 1 if reader.wrong else 0


def _filled(folder: Path, server: Cassandra) -> tuple[loader.Split, Cassandra, dict[uuid.UUID, bytes]]:
    """Write images to all nodes; returns their split."""
    ids = image_ids(IMAGES)
    images = {one: texture(number, width=110, height=110) for number, one in enumerate(ids)}
    with server.session() as cql:
        cql.execute("CREATE KEYSPACE hour WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}")
    write_table(_TABLE, images, hosts=server.hosts, port=server.port)
    written = write_split_folder(folder / "split", [(ids, [0] * IMAGES)], data_table=_TABLE)
    return loader.open_split(written, cache=folder / "cache"), server, images


if __name__ == "__main__":
    sys.exit(main())
