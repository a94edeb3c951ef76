"""Every client of Cassandra: rows by id, named errors, quick shutdown. test_source.py tests the order."""

import gc
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from formats.checksums import checksum
from imagestrata.devstack.servers.cassandra import Cassandra
from loader.prefetch.stats import Stats
from schemas import Columns
from tests.support.pictures import execute, write_table
from tests.support.services import fresh_name
from tests.support.split_folders import image_ids, packed, without_labels, write_split_folder

COUNT = 43
IDS = image_ids(COUNT)
LABELS = [number % 7 for number in range(COUNT)]
BYTES = {one: bytes([number]) * (20 + number) for number, one in enumerate(IDS)}
MISSING, NULL, EMPTY = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
NAMES = Columns(id="patch_id", label="Klasse", data="Bild")


@dataclass(frozen=True)
class Tables:
    """A keyspace with tables of images, and its address."""

    keyspace: str
    where: dict[str, Any]
    folder: Path

    def split(self, table: str, ids: list[uuid.UUID], labels: list[int] | None = None, **options: Any) -> loader.Split:
        """Open a split of these rows of a table. Class numbers that it does not know are read from the table."""
        name = fresh_name("split")
        written = write_split_folder(
            self.folder / name,
            [(ids, labels or [0] * len(ids))],
            data_table=table if "." in table else f"{self.keyspace}.{table}",
            **{"metadata_table": f"{self.keyspace}.metadata", **options},
        )
        split = loader.open_split(written, cache=self.folder / "cache")
        return split if labels else without_labels(split)

    def execute(self, *statements: str) -> None:
        execute(*(one.replace("KS.", f"{self.keyspace}.") for one in statements), **self.where)


@pytest.fixture(scope="module")
def tables(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(
        fresh_name("clients"),
        {"hosts": cassandra.hosts, "port": cassandra.port},
        tmp_path_factory.mktemp("splits"),
    )
    write_table(f"{made.keyspace}.data", BYTES | {NULL: None, EMPTY: b""}, **made.where)
    named = dict(zip(IDS, LABELS, strict=True))
    write_table(f"{made.keyspace}.named", BYTES, columns=NAMES, labels=named, **made.where)
    masks = {one: bytes([number]) * 3 for number, one in enumerate(IDS)}
    write_table(f"{made.keyspace}.masks", BYTES, label_type="blob", labels=masks, **made.where)
    rows = "".join(
        f"INSERT INTO KS.metadata (id, width, path, score) VALUES ({one}, {number}, 'p\u00e9/{number}', 0.5); "
        for number, one in enumerate(IDS)
    )
    made.execute(
        "CREATE TABLE KS.metadata (id uuid PRIMARY KEY, width int, path text, score double)",
        "CREATE TABLE KS.texts (id text PRIMARY KEY, data blob)",
        "CREATE TABLE KS.whole (id uuid PRIMARY KEY, data blob, label bigint)",
        "CREATE TABLE KS.tiny (id uuid PRIMARY KEY, data blob, label tinyint)",
        f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH",
        f'INSERT INTO KS.named (patch_id, "Bild") VALUES ({NULL}, 0x00)',
        f"INSERT INTO KS.whole (id, data, label) VALUES ({IDS[0]}, 0x00, {1 << 20})",
        f"INSERT INTO KS.whole (id, data, label) VALUES ({IDS[1]}, 0x00, {1 << 31})",
        f"INSERT INTO KS.tiny (id, data, label) VALUES ({IDS[0]}, 0x00, -3)",
    )
    return made


Open = Callable[..., loader.CassandraSource]


@pytest.fixture(params=["acsylla", "cassandra-driver"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(tables: Tables, client: str) -> Iterator[Open]:
    """Makes sources over each client in turn, and closes them."""
    made: list[loader.CassandraSource] = []

    def source(split: loader.Split | None = None, **options: Any) -> loader.CassandraSource:
        usual = tables.where | {"batch_size": 8, "client": client}
        made.append(loader.CassandraSource(split or tables.split("data", IDS, LABELS), **(usual | options)))
        return made[-1]

    yield source
    for one in made:
        one.close()


def ids_of(batches: Iterator[loader.Batch]) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=row.tobytes()) for batch in batches for row in batch.ids]


def test_bytes_and_labels_are_those_of_the_id(opened: Open) -> None:
    source = opened()
    for epoch in range(2):
        batches = list(source.epoch(epoch))
        assert [(batch.step, len(batch)) for batch in batches] == [*((step, 8) for step in range(5)), (5, 3)]
        assert sorted(ids_of(iter(batches))) == sorted(IDS)
        for batch in batches:
            assert (batch.labels.dtype, batch.ids.dtype, batch.positions.dtype) == (np.int32, np.uint8, np.int64)
            assert (batch.ids.shape, batch.epoch) == ((len(batch), 16), epoch)
            assert np.array_equal(batch.ids, packed([IDS[position] for position in batch.positions]))
            assert batch.images == [BYTES[IDS[position]] for position in batch.positions]
            assert batch.labels.tolist() == [LABELS[position] for position in batch.positions]


def test_images_of_a_split_are_shown(tables: Tables, client: str) -> None:
    sheet = tables.split("data", IDS[:3], LABELS[:3]).show(2, client=client, **tables.where)
    assert sheet.width == 2 * 136 + 8
    with pytest.raises(loader.MissingImageError, match=str(MISSING)):
        tables.split("data", [MISSING], [0]).show(**tables.where)


def test_two_ranks_read_each_id_once_even_with_one_out_of_order(opened: Open) -> None:
    ranks = [opened(rank=rank, world_size=2, in_order=rank == 0, memory_budget=200) for rank in range(2)]
    found = [batch for source in ranks for batch in source.epoch(0)]
    assert sorted(ids_of(iter(found))) == sorted(IDS)
    for batch in found:
        assert batch.images == [BYTES[IDS[position]] for position in batch.positions]


def test_a_missing_image_is_named(opened: Open, tables: Tables) -> None:
    place = rf"{MISSING} from {tables.keyspace}\.data at 127\.0\.0\.1 port {tables.where['port']}\. Found: no such row"
    with pytest.raises(loader.MissingImageError, match=place):
        list(opened(tables.split("data", [*IDS[:20], MISSING], LABELS[:21])).epoch(0))
    with pytest.raises(loader.MissingImageError, match=rf"{EMPTY} .*its data has 0 bytes\. .*made from other tables"):
        list(opened(tables.split("data", [EMPTY], [0])).epoch(0))


def test_a_deleted_image_is_named_or_skipped(opened: Open, tables: Tables) -> None:
    """Its row has no image. With metadata, whose row is gone, and at one replica it is deleted all the same."""
    split = tables.split("data", [*IDS[:20], NULL], LABELS[:21])
    for options in ({}, {"metadata": ["width"]}, {"consistency": "LOCAL_ONE"}):
        with pytest.raises(loader.DeletedImageError, match=rf"{NULL} .*Found: it was deleted .*on_missing='skip'"):
            list(opened(split, **options).epoch(0))
    source = opened(split, on_missing="skip", max_missing=0.0, metadata=["width"])
    assert sorted(ids_of(source.epoch(0))) == sorted(IDS[:20])
    assert [one.id for one in source.skipped] == [NULL]


def test_reads_ask_a_quorum_unless_told_otherwise(opened: Open, tables: Tables) -> None:
    """One node cannot hold three copies, so a quorum of them cannot answer, and a single one can."""
    name = fresh_name("copies")
    replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    tables.execute(
        f"CREATE KEYSPACE {name} WITH replication = {replication}",
        f"CREATE TABLE {name}.data (id uuid PRIMARY KEY, data blob)",
        f"INSERT INTO {name}.data (id, data) VALUES ({IDS[0]}, 0x05)",
    )
    split = tables.split(f"{name}.data", IDS[:1], LABELS[:1])
    message = rf"{IDS[0]} from {name}\.data .*Found: too few replicas answer .* consistency='LOCAL_ONE' reads"
    with pytest.raises(loader.UnreachableError, match=message):
        next(opened(split, timeout=0.5).epoch(0))
    with pytest.raises(loader.UnreachableError, match="too few replicas"):
        next(opened(split, timeout=0.5, consistency="QUORUM").epoch(0))
    assert next(opened(split, consistency="LOCAL_ONE").epoch(0)).images == [b"\x05"]
    missing = tables.split(f"{name}.data", IDS[1:2], LABELS[:1])
    with pytest.raises(loader.UnreachableError, match="too few replicas"):  # all are asked before it counts as missing
        next(opened(missing, timeout=0.5, consistency="LOCAL_ONE").epoch(0))


def test_one_replica_is_asked_for_images_with_checksums_and_a_quorum_for_other_bytes(
    opened: Open, tables: Tables
) -> None:
    name = fresh_name("copies")
    replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    tables.execute(
        f"CREATE KEYSPACE {name} WITH replication = {replication}",
        f"CREATE TABLE {name}.data (id uuid PRIMARY KEY, data blob)",
        f"CREATE TABLE {name}.metadata (id uuid PRIMARY KEY, width int)",
        f"INSERT INTO {name}.data (id, data) VALUES ({IDS[0]}, 0x05)",
        f"INSERT INTO {name}.metadata (id, width) VALUES ({IDS[0]}, 7)",
    )
    right, wrong, unknown = (
        tables.split(f"{name}.data", IDS[:1], LABELS[:1], metadata_table=f"{name}.metadata", checksums=[[one]])
        for one in (checksum(b"\x05"), checksum(b"\x06"), 0)
    )
    assert next(opened(right).epoch(0)).images == [b"\x05"]
    too_few = pytest.raises(loader.UnreachableError, match="too few replicas answer")
    for split, options in (
        (wrong, {}),  # the replica may have missed a write
        (unknown, {}),
        (right, {"consistency": "LOCAL_QUORUM"}),
        (right, {"on_changed": "accept"}),
        (right, {"metadata": ["width"]}),  # no checksum covers it
    ):
        with too_few:
            next(opened(split, timeout=0.5, **options).epoch(0))
    both = opened(right, metadata=["width"], consistency="LOCAL_ONE")
    assert next(both.epoch(0)).metadata == {"width": [7]}


def test_a_missing_image_can_be_skipped(opened: Open, tables: Tables) -> None:
    source = opened(tables.split("data", [*IDS[:20], MISSING], LABELS[:21]), on_missing="skip", max_missing=0.05)
    assert sorted(ids_of(source.epoch(0))) == sorted(IDS[:20])
    assert [(one.id, one.position, one.epoch) for one in source.skipped] == [(MISSING, 20, 0)]
    assert "no such row" in source.skipped[0].reason


def test_a_table_that_differs_from_the_split_is_reported(opened: Open, tables: Tables) -> None:
    """The unit tests of `target` have all deviations; this tests that each client reports the columns."""
    keyspace = tables.keyspace
    for table, columns, found in [
        (f"{keyspace}.gone", Columns(), "no such table"),
        (f"{fresh_name('gone')}.data", Columns(), "no such table"),
        (f"{keyspace}.data", Columns(id="patch_id"), r"the key \(id\) and the columns data blob, id uuid, label int"),
        (f"{keyspace}.texts", Columns(), r"the key \(id\) and the columns data blob, id text"),
        (
            f"{keyspace}.masks",
            Columns(data="picture"),
            r"the key \(id\) and .*, id uuid, label blob",
        ),
    ]:
        source = opened(tables.split(table, IDS, LABELS, columns=columns))
        with pytest.raises(loader.TableError, match=rf"Wanted {table} with the key {columns.id} uuid .*Found: {found}"):
            source.connect()


def test_custom_columns_are_read_and_labels_come_with_the_images(opened: Open, tables: Tables) -> None:
    split = tables.split("named", IDS, columns=NAMES)
    assert split.labels is None
    for batch in opened(split).epoch(0):
        assert batch.labels.dtype == np.int32
        assert batch.labels.tolist() == [LABELS[position] for position in batch.positions]
        assert batch.images == [BYTES[IDS[position]] for position in batch.positions]


def test_labels_are_whole_numbers_of_32_bits(opened: Open, tables: Tables) -> None:
    for table, label in [("tiny", -3), ("whole", 1 << 20)]:
        assert next(opened(tables.split(table, IDS[:1])).epoch(0)).labels.tolist() == [label]
    with pytest.raises(loader.TableError, match=rf"image {IDS[1]} from .*\.whole.*Found: its label is 2147483648"):
        next(opened(tables.split("whole", IDS[1:2])).epoch(0))
    with pytest.raises(loader.TableError, match=rf"Wanted a label .*image {NULL} from .*Found: its Klasse is null"):
        next(opened(tables.split("named", [*IDS[:3], NULL], columns=NAMES)).epoch(0))


def test_masks_and_metadata_come_with_their_images(opened: Open, tables: Tables) -> None:
    split = tables.split("masks", IDS, [-1] * COUNT, label_type="blob")
    source = opened(split, metadata=["path", "width", "score"])
    for batch in source.epoch(0):
        numbers = batch.positions.tolist()
        assert batch.labels.shape == (0,)
        assert batch.label_blobs == [bytes([number]) * 3 for number in numbers]
        assert dict(batch.metadata) == {
            "path": [f"p\u00e9/{number}" for number in numbers],
            "width": numbers,
            "score": [0.5] * len(numbers),
        }
    message = rf"the columns id, colour in {tables.keyspace}\.metadata .*Found: id, path, score, width"
    with pytest.raises(loader.TableError, match=message):
        opened(split, metadata=["colour"]).connect()


def test_credentials_and_a_datacenter_are_sent_and_not_shown(opened: Open) -> None:
    """The tests' node requires no credentials, so it accepts any."""
    source = opened(username="reader", password="swordfish", datacenter="datacenter1")
    again = pickle.loads(pickle.dumps(source))
    with again:
        assert ids_of(again.epoch(0)) == ids_of(source.epoch(0))
    assert "swordfish" not in repr(source) + repr(again)


def test_another_datacenter_is_named(opened: Open) -> None:
    message = r"from the datacenter dc9\. Found: no node of it among the hosts\. Give the name"
    with pytest.raises(loader.UnreachableError, match=message):
        next(opened(datacenter="dc9").epoch(0))


def test_an_epoch_that_is_abandoned_ends_at_once(opened: Open) -> None:
    source = opened(batch_size=2)
    for _ in range(5):
        for batch in source.epoch(0):
            assert batch.step == 0
            break
    start = time.monotonic()
    source.close()
    source.close()
    assert time.monotonic() - start < 8
    with pytest.raises(loader.ClosedError, match="closed source"):
        next(source.epoch(0))


def test_statistics_count_images_and_connections(opened: Open) -> None:
    source = opened()
    assert source.stats() == Stats()
    batches = list(source.epoch(0))
    found = source.stats()
    assert (found.images, found.bytes) == (COUNT, sum(len(image) for batch in batches for image in batch.images))
    assert found.p99 >= found.p50 > 0
    assert found.connections >= 2
    source.close()
    assert (source.stats().connections, source.stats().in_flight, source.stats().held_bytes) == (0, 0, 0)
    many = opened(connections=9, max_in_flight=2)
    assert sorted(ids_of(many.epoch(0))) == sorted(IDS)
    assert (many.stats().connections >= 9, many.stats().window) == (True, 2)


class Proxy:
    """Passes bytes between clients and a server until it is stopped, and closes no connection."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                if self._listener.fileno() < 0:  # closed meanwhile, perhaps without these two
                    client.close()
                    server.close()
                    return
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()
        except OSError:
            return

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                self.goes_on.wait()
                other.sendall(data)
        except OSError:
            return

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self.goes_on.set()


@pytest.fixture
def proxy(cassandra: Cassandra) -> Iterator[Proxy]:
    made = Proxy(cassandra.hosts[0], cassandra.port)
    yield made
    made.close()


def test_closing_does_not_wait_for_a_node_that_hangs(opened: Open, proxy: Proxy) -> None:
    source = opened(port=proxy.port, batch_size=2)
    epoch = source.epoch(0)
    next(epoch)
    proxy.goes_on.clear()
    start = time.monotonic()
    source.close()
    assert time.monotonic() - start < 8


def test_a_listener_that_never_answers_is_named_in_time(opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        start = time.monotonic()
        with pytest.raises(loader.UnreachableError, match=rf"127\.0\.0\.1 port {port}\. Found: "):
            opened(port=port).connect()
        assert time.monotonic() - start < 30


def test_a_forked_child_reads_an_epoch_of_its_own(opened: Open) -> None:
    """A child neither waits for its parent's reads nor takes them."""
    source = opened(batch_size=4)
    passing = source.epoch(0)
    next(passing)
    here, there = multiprocessing.get_context("fork").Pipe()

    def child() -> None:
        try:
            next(passing)
        except loader.ClosedError as error:
            there.send(str(error))
        there.send(ids_of(source.epoch(0)))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert here.poll(40)
    assert "Begin another one in this process" in here.recv()
    assert here.poll(40)
    assert here.recv() == ids_of(opened(batch_size=4).epoch(0))
    process.join(40)
    assert process.exitcode == 0
    assert len(list(passing)) == 10


def test_a_forked_child_can_garbage_collect_an_inherited_source(opened: Open, tables: Tables, client: str) -> None:
    split = tables.split("data", IDS, LABELS)
    gc.disable()
    try:
        with loader.CassandraSource(split, batch_size=4, client=client, **tables.where) as source:
            next(source.epoch(0))
        circle: list[Any] = [source]
        circle.append(circle)
        del source, circle
        process = multiprocessing.get_context("fork").Process(target=gc.collect)
        process.start()
        process.join(40)
        process.kill()
        assert process.exitcode == 0
    finally:
        gc.enable()


SCRIPT = """
import os, signal, sys, threading, time
import loader
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have had it ignored
split = loader.open_split(sys.argv[1])
source = loader.CassandraSource(split, hosts="127.0.0.1", port=int(sys.argv[2]), batch_size=2)
how = sys.argv[3]
for batch in source.epoch(0):
    print("first", flush=True)
    if how == "exit":
        break
    if how == "raise":
        raise ZeroDivisionError("in the loop")
    if how == "signal another thread":
        sys.stdin.readline()
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
    for batch in source.epoch(1):
        while True:
            time.sleep(0.1)
"""


@pytest.mark.parametrize(("how", "hangs", "code", "message"), [
    ("exit", True, 0, ""),
    ("raise", False, 1, "ZeroDivisionError: in the loop"),
    ("wait", True, -signal.SIGINT, "KeyboardInterrupt"),
    ("signal another thread", True, -signal.SIGINT, "KeyboardInterrupt"),
])  # fmt: skip
def test_a_process_ends_quickly_with_reads_in_flight(
    tables: Tables, proxy: Proxy, how: str, hangs: bool, code: int, message: str
) -> None:
    folder = write_split_folder(
        tables.folder / fresh_name("split"), [(IDS, LABELS)], data_table=f"{tables.keyspace}.data"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(proxy.port), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"IMAGESTRATA_CACHE": str(tables.folder / "cache")},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    if hangs:
        proxy.goes_on.clear()
    if how == "wait":
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate("\n", timeout=40)  # reads that wait for the node would never end
    assert process.returncode == code, errors
    assert errors.rstrip().rpartition("\n")[2] == message, errors
