"""Real nodes that are killed, hang or stay down: an epoch continues completely, or fails in time with the cause."""

import itertools
import os
import re
import signal
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import loader
from formats.checksums import checksum
from imagestrata.devstack.servers.cassandra import Cassandra, connect
from imagestrata.devstack.servers.delay import DelayProxy
from tests.support.pictures import execute, write_table
from tests.support.split_folders import image_ids, write_split_folder

COUNT, SIZE, BATCH = 1000, 2000, 50
IDS = image_ids(COUNT)
BYTES = dict(
    zip(IDS, map(bytes, np.random.default_rng(5).integers(0, 256, (COUNT, SIZE), dtype=np.uint8)), strict=True)
)
TABLE = "loader_faults.data"
LITTLE = 2 * BATCH * SIZE
"""A memory budget of two batches, so most of an epoch is unread when its first batches are taken."""
HOLD = 5.0
"""Seconds that an answer is delayed, enough to tell an epoch that waits for it from a busy machine."""

Images = list[tuple[uuid.UUID, bytes]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A separate node, because it is killed."""
    with Cassandra(tmp_path_factory.mktemp("killed")) as made:
        write_table(TABLE, BYTES, hosts=made.hosts, port=made.port)
        yield made


@pytest.fixture
def node(server: Cassandra) -> Cassandra:
    """The node, started again if the test before ended it."""
    server.start(tied=True)
    return server


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loader.Split]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IMAGESTRATA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield loader.open_split(
            write_split_folder(tmp_path_factory.mktemp("split"), [(IDS, [0] * COUNT)], data_table=TABLE)
        )


@contextmanager
def opened(server: Cassandra, split: loader.Split, **options: object) -> Iterator[loader.CassandraSource]:
    usual: dict[str, object] = {
        "hosts": server.hosts,
        "port": server.port,
        "batch_size": BATCH,
        "memory_budget": LITTLE,
    }
    with loader.CassandraSource(split, **(usual | options)) as source:  # type: ignore[arg-type]
        yield source


@contextmanager
def hanging(server: Cassandra, number: int = 0) -> Iterator[None]:
    """A node that keeps its connections open and does not answer."""
    pid = server.nodes[number].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def killed(server: Cassandra, number: int) -> Iterator[None]:
    """A node that is down while the block runs."""
    server.kill(number)
    yield
    server.start(tied=True)


def images(batches: Iterable[loader.Batch]) -> Images:
    return [
        (uuid.UUID(bytes=row.tobytes()), image)
        for batch in batches
        for row, image in zip(batch.ids, batch.images, strict=True)
    ]


@pytest.fixture(scope="module")
def undisturbed(server: Cassandra, split: loader.Split) -> Images:
    """Epoch 1 without faults."""
    with opened(server, split) as source:
        found = images(source.epoch(1))
    assert dict(found) == BYTES
    return found


def lost(epoch: Iterator[loader.Batch], server: Cassandra) -> float:
    """The seconds until the rest of an epoch has failed, with a message that names the request and the node."""
    start = time.monotonic()
    with pytest.raises(loader.UnreachableError) as caught:
        images(epoch)
    place = re.escape(f"from {TABLE} at 127.0.0.1 port {server.port}")
    found = re.fullmatch(rf"Wanted image (\S+) {place} within 5 s\. Found: ((?!Wanted).+)", str(caught.value))
    assert found is not None, str(caught.value)
    assert uuid.UUID(found[1]) in BYTES
    return time.monotonic() - start


def test_an_epoch_survives_a_node_that_is_killed_and_restarted(
    node: Cassandra, split: loader.Split, undisturbed: Images
) -> None:
    with (
        opened(node, split) as ordered,
        opened(node, split, in_order=False) as mixed,
        opened(node, split, client="cassandra-driver") as other,
        ThreadPoolExecutor() as pool,
    ):
        sources = (ordered, mixed, other)
        epochs = [source.epoch(1) for source in sources]
        begun = [images(itertools.islice(epoch, 3)) for epoch in epochs]
        node.kill()
        rest = [pool.submit(images, epoch) for epoch in epochs]
        node.start(tied=True)
        found = [first + future.result(60) for first, future in zip(begun, rest, strict=True)]
        assert found[0] == found[2] == undisturbed
        assert sorted(found[1]) == sorted(undisturbed)
        assert all(source.stats().retries > 0 for source in sources)


def test_a_node_that_stays_down_is_named_in_time_and_its_return_noticed(
    node: Cassandra, split: loader.Split, undisturbed: Images
) -> None:
    with opened(node, split, timeout=5) as source:
        epoch = source.epoch(0)
        next(epoch)
        node.kill()
        assert lost(epoch, node) < 9
        node.start(tied=True)
        assert images(source.epoch(1)) == undisturbed


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_an_epoch_survives_a_node_that_hangs_for_a_while(
    node: Cassandra, split: loader.Split, undisturbed: Images, client: str
) -> None:
    with opened(node, split, client=client) as source, ThreadPoolExecutor() as pool:
        epoch = source.epoch(1)
        begun = images(itertools.islice(epoch, 3))
        with hanging(node):
            rest = pool.submit(images, epoch)
            with pytest.raises(TimeoutError):
                rest.result(4)
        assert begun + rest.result(30) == undisturbed


def test_a_node_that_hangs_for_good_is_named_in_time_and_does_not_delay_close(
    node: Cassandra, split: loader.Split, undisturbed: Images
) -> None:
    with opened(node, split, timeout=5) as source:
        epoch = source.epoch(0)
        next(epoch)
        with hanging(node):
            assert lost(epoch, node) < 10
            start = time.monotonic()
            source.close()
            assert time.monotonic() - start < 8


def test_late_answers_are_read_a_second_time(node: Cassandra, split: loader.Split) -> None:
    """With one batch at a time and one or two late answers in most of them, an epoch would wait in most of them."""
    with DelayProxy(node.port, rtt=0.02, hold_share=0.02, hold=HOLD, seed=1) as proxy:
        with opened(node, split, port=proxy.port, batch_size=100, memory_budget=1) as source:
            start = time.monotonic()
            assert dict(images(source.epoch(0))) == BYTES
            took = time.monotonic() - start
            seconds = source.stats().second_reads
        held = proxy.end().held
    assert held >= COUNT // 100
    assert 0 < seconds <= (COUNT + 100) * 0.02 + 16  # the next epoch has begun
    assert took < HOLD * len(source) / 2


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_a_table_that_is_dropped_in_mid_epoch_is_named(node: Cassandra, tmp_path: Path, client: str) -> None:
    where = {"hosts": node.hosts, "port": node.port}
    write_table("loader_dropped.data", BYTES, **where)  # type: ignore[arg-type]
    folder = write_split_folder(tmp_path / "split", [(IDS, [0] * COUNT)], data_table="loader_dropped.data")
    with opened(node, loader.open_split(folder, cache=tmp_path / "cache"), client=client) as source:
        epoch = source.epoch(0)
        next(epoch)
        execute("DROP TABLE loader_dropped.data", **where)  # type: ignore[arg-type]
        start = time.monotonic()
        with pytest.raises(loader.TableError, match=r"loader_dropped\.data .* Found: .*(no such table|not exist)"):
            images(epoch)
        assert time.monotonic() - start < 15


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Three nodes, each with all images."""
    with Cassandra(tmp_path_factory.mktemp("cluster"), nodes=3, yaml={"hinted_handoff_enabled": False}) as made:
        with made.session() as cql:
            cql.execute(
                "CREATE KEYSPACE loader_faults WITH replication = "
                "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
            )
        write_table(TABLE, BYTES, hosts=made.hosts, port=made.port)
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_an_epoch_continues_on_the_remaining_nodes(
    cluster: Cassandra, split: loader.Split, undisturbed: Images, how: str
) -> None:
    """A node that hangs does not close its connections, like a machine that was switched off."""
    with (
        opened(cluster, split) as ordered,
        opened(cluster, split, in_order=False) as mixed,
        ThreadPoolExecutor() as pool,
    ):
        epochs = [source.epoch(1) for source in (ordered, mixed)]
        begun = [images(itertools.islice(epoch, 3)) for epoch in epochs]
        with hanging(cluster, 1) if how == "hangs" else killed(cluster, 0):
            rest = [pool.submit(images, epoch) for epoch in epochs]
            found = [first + future.result(40) for first, future in zip(begun, rest, strict=True)]
        assert found[0] == undisturbed
        assert sorted(found[1]) == sorted(undisturbed)


@pytest.mark.slow
def test_a_replica_that_missed_a_rewrite_is_not_believed(
    cluster: Cassandra, split: loader.Split, tmp_path: Path
) -> None:
    """With another node down, each read of a quorum uses this one, which alone returns old images. Where the split has
    checksums, it is read alone at first.
    """
    rewritten = {one: data[::-1] for one, data in BYTES.items()}
    sums = [[checksum(rewritten[one]) for one in IDS]]
    folder = write_split_folder(tmp_path / "checked", [(IDS, [0] * COUNT)], data_table=TABLE, checksums=sums)
    checked = loader.open_split(folder, cache=tmp_path / "cache")
    try:
        with killed(cluster, 2):
            _write(cluster, rewritten)
        with killed(cluster, 1):
            for client, one in itertools.product(("acsylla", "cassandra-driver"), (split, checked)):
                with opened(cluster, one, client=client) as source:
                    assert dict(images(source.epoch(0))) == rewritten
    finally:
        _write(cluster, BYTES)


def _write(cluster: Cassandra, rows: Mapping[uuid.UUID, bytes]) -> None:
    from cassandra import ConsistencyLevel

    with connect(cluster.hosts[:1], cluster.port) as cql:
        insert = cql.prepare(f"INSERT INTO {TABLE} (id, data) VALUES (?, ?)")
        insert.consistency_level = ConsistencyLevel.QUORUM
        for one, data in rows.items():
            cql.execute(insert, (one, data))
