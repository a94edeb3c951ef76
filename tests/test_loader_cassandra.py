"""Batches from a real Cassandra: each id once, in order, with its own bytes; errors by name; quick endings."""

import itertools
import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pictures import execute, write_table
from split_folders import image_ids, packed, write_split_folder
from test_split_dictionary import theirs

import loader
from devstack.cassandra import Cassandra
from formats import SplitFolder, write_dictionary
from formats.storage import Storage
from loader._schedule import Schedule
from loader._stats import Stats
from schemas import Columns

COUNT = 103
IDS = image_ids(COUNT)
LABELS = [number % 7 for number in range(COUNT)]
BYTES = {one: bytes([number]) * (20 + number) for number, one in enumerate(IDS)}
MISSING = uuid.UUID(int=1)
NULL = uuid.UUID(int=2)


@pytest.fixture(scope="module")
def folder(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_table("loader_plain.data", BYTES | {NULL: None}, hosts=cassandra.hosts, port=cassandra.port)
    splits = [(IDS, LABELS), ([*IDS[:20], MISSING], LABELS[:21]), ([NULL], [0])]
    return write_split_folder(tmp_path_factory.mktemp("split"), splits, data_table="loader_plain.data")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path / "cache"))


class Sources:
    """Makes sources of the folder's splits, and closes them."""

    def __init__(self, folder: Path, cassandra: Cassandra, client: str = "acsylla") -> None:
        self._folder, self._cassandra, self._client = folder, cassandra, client
        self._made: list[loader.CassandraSource] = []

    def __call__(self, index: int = 0, **options: object) -> loader.CassandraSource:
        usual: dict[str, object] = {"hosts": self._cassandra.hosts, "port": self._cassandra.port, "batch_size": 8}
        usual["client"] = self._client
        split = loader.open_split(self._folder, index=index)
        self._made.append(loader.CassandraSource(split, **(usual | options)))  # type: ignore[arg-type]
        return self._made[-1]

    def close(self) -> None:
        for source in self._made:
            source.close()


@pytest.fixture
def sources(folder: Path, cassandra: Cassandra) -> Iterator[Sources]:
    made = Sources(folder, cassandra)
    yield made
    made.close()


@pytest.fixture(params=["acsylla", "cassandra-driver"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def either(folder: Path, cassandra: Cassandra, client: str) -> Iterator[Sources]:
    """Sources over each client in turn."""
    made = Sources(folder, cassandra, client)
    yield made
    made.close()


def ids_of(batches: Iterator[loader.Batch]) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=row.tobytes()) for batch in batches for row in batch.ids]


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_a_datacenter_that_is_another_is_named(sources: Sources, client: str) -> None:
    message = r"from the datacenter dc9\. Found: no node of it among the hosts\. Give its name"
    with pytest.raises(loader.UnreachableError, match=message):
        next(sources(datacenter="dc9", client=client).epoch(0))


def test_bytes_and_labels_are_those_of_the_id(either: Sources) -> None:
    source = either()
    batches = list(source.epoch(0))
    assert [batch.step for batch in batches] == list(range(len(source)))
    assert [len(batch) for batch in batches] == [8] * 12 + [7]
    for batch in batches:
        assert (batch.labels.dtype, batch.ids.dtype, batch.positions.dtype) == (np.int32, np.uint8, np.int64)
        assert (batch.ids.shape, batch.epoch) == ((len(batch), 16), 0)
        assert np.array_equal(batch.ids, packed([IDS[position] for position in batch.positions]))
        for image, label, position in zip(batch.images, batch.labels, batch.positions, strict=True):
            assert image == BYTES[IDS[position]]
            assert label == LABELS[position]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_together_read_each_id_exactly_once_an_epoch(sources: Sources, world_size: int) -> None:
    ranks = [sources(rank=rank, world_size=world_size) for rank in range(world_size)]
    for epoch in range(2):
        found = [ids_of(source.epoch(epoch)) for source in ranks]
        assert sorted(itertools.chain(*found)) == sorted(IDS)
        assert [len(one) for one in found] == [source.samples for source in ranks]


def test_epochs_differ_and_the_same_seed_repeats(sources: Sources) -> None:
    source, again, other = sources(), sources(memory_budget=1), sources(seed=1)
    assert ids_of(source.epoch(0)) == ids_of(again.epoch(0)) == ids_of(source.epoch(0))
    assert ids_of(source.epoch(1)) == ids_of(again.epoch(1))
    orders = [ids_of(source.epoch(0)), ids_of(source.epoch(1)), ids_of(other.epoch(0)), IDS]
    assert len({tuple(one) for one in orders}) == 4


def test_without_shuffle_the_split_s_order_comes_every_time(sources: Sources) -> None:
    source = sources(shuffle=False)
    assert ids_of(source.epoch(0)) == ids_of(source.epoch(5)) == IDS


@pytest.mark.parametrize(("batch_size", "policy", "counts"), [
    (8, "PARTIAL", [52, 51]), (8, "DROP", [48, 48]), (200, "PARTIAL", [52, 51]), (200, "DROP", [0, 0]),
    (8, "FILL", [56, 56]), (200, "FILL", [200, 200]),
])  # fmt: skip
def test_policies_count_as_they_say(sources: Sources, batch_size: int, policy: str, counts: list[int]) -> None:
    pair = [sources(batch_size=batch_size, last_batch_policy=policy, rank=rank, world_size=2) for rank in (0, 1)]
    found = [ids_of(source.epoch(0)) for source in pair]
    assert sorted(map(len, found)) == sorted(counts)
    assert len({*found[0], *found[1]}) == min(sum(counts), COUNT)
    assert [len(one) for one in found] == [source.samples for source in pair]
    assert [len(source) for source in pair] == [-(-len(one) // batch_size) for one in found]


def test_fill_repeats_the_last_sample_of_a_rank(sources: Sources) -> None:
    batches = list(sources(batch_size=16, last_batch_policy="FILL").epoch(0))
    assert [(len(batch), batch.repeats) for batch in batches] == [(16, 0)] * 6 + [(16, 9)]
    last = batches[-1]
    assert last.images[6:] == [last.images[6]] * 10
    assert last.images == [BYTES[IDS[position]] for position in last.positions]
    assert last.labels.tolist() == [LABELS[position] for position in last.positions]
    assert ids_of(iter([last])) == [IDS[position] for position in last.positions]
    assert sorted(ids_of(iter(batches))[:COUNT]) == sorted(IDS)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 4)])
def test_an_interrupted_epoch_goes_on_at_the_next_sample(sources: Sources, before: int, after: int) -> None:
    """In the order of steps and ranks, what was read before and after is the undisturbed epoch."""

    def turns(ranks: list[loader.CassandraSource], epoch: int) -> Iterator[tuple[loader.Batch, ...]]:
        for batches in itertools.zip_longest(*(source.epoch(epoch) for source in ranks)):
            yield tuple(batch for batch in batches if batch is not None)

    undisturbed = ids_of(sources().epoch(1))
    first = [sources(rank=rank, world_size=before) for rank in range(before)]
    found: list[uuid.UUID] = []
    for together in itertools.islice(turns(first, 1), 3):
        found += ids_of(iter(together))
    states = [json.loads(json.dumps(source.state_dict())) for source in first]
    assert all(state == states[0] for state in states)
    assert loader.merge_states(states) == states[0]
    second = [sources(rank=rank, world_size=after) for rank in range(after)]
    for source in second:
        source.load_state_dict(states[0])
        assert (source.first_epoch, source.state_dict()) == (1, {**states[0], "global_batch_size": 8 * after})
    for together in turns(second, 1):
        found += ids_of(iter(together))
    assert found == undisturbed
    assert {source.state_dict()["epoch"] for source in second} == {2}
    assert sorted(itertools.chain(*(ids_of(source.epoch(2)) for source in second))) == sorted(IDS)


def test_a_state_of_another_order_or_split_is_refused(sources: Sources) -> None:
    state = sources(seed=1).state_dict()
    source = sources()
    with pytest.raises(loader.StateError, match=r"a state of this order: seed 0\. Found: 1"):
        source.load_state_dict(state)
    with pytest.raises(loader.StateError, match="a state of this split: fingerprint"):
        sources(index=1).load_state_dict(source.state_dict())
    with pytest.raises(loader.OptionError, match=r"epoch and steps, or neither\. Found: one"):
        source.state_dict(epoch=1)
    assert len(ids_of(source.epoch(0))) == COUNT


def test_two_epochs_and_two_sources_go_side_by_side(sources: Sources) -> None:
    one, other = sources(), sources(seed=4)
    passes = [one.epoch(0), one.epoch(1), other.epoch(0)]
    mixed = list(zip(*passes, strict=True))
    for number, (source, epoch) in enumerate([(one, 0), (one, 1), (other, 0)]):
        assert ids_of(iter([batches[number] for batches in mixed])) == ids_of(source.epoch(epoch))
    other.close()
    assert len(ids_of(one.epoch(2))) == COUNT


def test_an_image_that_is_not_there_is_named(either: Sources, cassandra: Cassandra) -> None:
    source = either(index=1)
    place = rf"{MISSING} from loader_plain\.data at 127\.0\.0\.1 port {cassandra.port}\. Found: no such row"
    with pytest.raises(loader.MissingImageError, match=place):
        list(source.epoch(0))
    with pytest.raises(loader.MissingImageError, match=rf"{NULL} .*Found: its data is null"):
        list(either(index=2).epoch(0))


@pytest.mark.parametrize(
    ("table", "columns", "found"),
    [
        ("loader_plain.gone", Columns(), "no such table"),
        ("gone.data", Columns(), "no such table"),
        ("loader_plain.data", Columns(id="patch_id"), r"the key \(id\) and the columns data blob, id uuid, label int"),
        ("loader_plain.data", Columns(data="picture"), r"the key \(id\) and the columns data blob, id uuid, label int"),
        (
            "loader_plain.data",
            Columns(data="label", label="data"),
            r"the key \(id\) and the columns data blob, id uuid, label int",
        ),
        ("loader_plain.texts", Columns(), "the key"),
        ("loader_plain.pairs", Columns(), r"the key \(id, part\)"),
    ],
)
def test_a_table_that_is_other_than_the_split_says_is_named(
    cassandra: Cassandra, tmp_path: Path, folder: Path, client: str, table: str, columns: Columns, found: str
) -> None:
    where = {"hosts": cassandra.hosts, "port": cassandra.port}
    execute("CREATE TABLE IF NOT EXISTS loader_plain.texts (id text PRIMARY KEY, data blob)", **where)  # type: ignore[arg-type]
    execute(
        "CREATE TABLE IF NOT EXISTS loader_plain.pairs (id uuid, part int, data blob, PRIMARY KEY (id, part))",
        **where,  # type: ignore[arg-type]
    )
    other = write_split_folder(tmp_path / "split", [(IDS, LABELS)], data_table=table, columns=columns)
    message = rf"Wanted {table} with the key {columns.id} uuid .*Found: {found}"
    with (
        loader.CassandraSource(loader.open_split(other), batch_size=4, client=client, **where) as source,  # type: ignore[arg-type]
        pytest.raises(loader.TableError, match=message),
    ):
        next(source.epoch(0))


def test_other_people_s_column_names_are_read(cassandra: Cassandra, tmp_path: Path) -> None:
    columns = Columns(id="patch_id", label="Klasse", data="Bild")
    where = {"hosts": cassandra.hosts, "port": cassandra.port}
    write_table("loader_other.patches", BYTES, columns=columns, **where)  # type: ignore[arg-type]
    other = write_split_folder(tmp_path / "split", [(IDS, LABELS)], data_table="loader_other.patches", columns=columns)
    with loader.CassandraSource(loader.open_split(other), batch_size=50, **where) as source:  # type: ignore[arg-type]
        found = {
            one: image
            for batch in source.epoch(0)
            for one, image in zip(ids_of(iter([batch])), batch.images, strict=True)
        }
    assert found == BYTES


@pytest.fixture(scope="module")
def labelled(cassandra: Cassandra) -> dict[str, object]:
    """A table with labels, and some images without: where it is."""
    where: dict[str, object] = {"hosts": cassandra.hosts, "port": cassandra.port}
    write_table("loader_labels.data", BYTES | {NULL: b"no label"}, columns=Columns(id="patch_id"), **where)  # type: ignore[arg-type]
    rows = "".join(
        f"UPDATE loader_labels.data SET label = {label} WHERE patch_id = {one}; "
        for one, label in zip(IDS, LABELS, strict=True)
    )
    execute(f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH", **where)  # type: ignore[arg-type]
    return where


def others(path: Path, ids: list[uuid.UUID], **changes: object) -> loader.Split:
    """A split of another tool's dictionary, with these ids in the opposite order."""
    keys, order = np.array(ids, dtype=object), np.arange(len(ids))[::-1]
    options = {"data_table": "loader_labels.data", "row_keys": keys, "split": [order]} | changes
    path.write_bytes(pickle.dumps(theirs(**options)))
    return loader.open_split(path)


def test_labels_that_the_split_does_not_tell_come_with_the_images(labelled: dict[str, object], tmp_path: Path) -> None:
    split = others(tmp_path / "split.pckl", IDS)
    assert split.labels is None
    with loader.CassandraSource(split, batch_size=8, **labelled) as source:  # type: ignore[arg-type]
        batches = list(source.epoch(0))
        plain = loader.CassandraSource(split, batch_size=8, shuffle=False, **labelled)  # type: ignore[arg-type]
        with plain:
            assert ids_of(plain.epoch(0)) == IDS[::-1]
    assert sorted(ids_of(iter(batches))) == sorted(IDS)
    for batch in batches:
        places = [IDS.index(one) for one in ids_of(iter([batch]))]
        assert batch.labels.dtype == np.int32
        assert batch.labels.tolist() == [LABELS[place] for place in places]
        assert batch.images == [BYTES[IDS[place]] for place in places]


def test_a_dictionary_of_ours_needs_no_labels_in_the_table(sources: Sources, folder: Path, tmp_path: Path) -> None:
    """Its table has none; batches are those of the folder without shuffling."""
    opened = SplitFolder.open(folder)
    write_dictionary(Storage(tmp_path), "split.pckl", manifest=opened.manifest, splits=[opened.rows(0)])
    source = sources(shuffle=False)
    split = loader.open_split(tmp_path / "split.pckl")
    with loader.CassandraSource(split, hosts=source.hosts, port=source.port, batch_size=8, shuffle=False) as other:
        for one, same in zip(other.epoch(0), source.epoch(0), strict=True):
            assert (one.images, one.labels.tolist()) == (same.images, same.labels.tolist())
            assert np.array_equal(one.ids, same.ids)


def test_an_image_without_a_label_is_named(labelled: dict[str, object], tmp_path: Path, client: str) -> None:
    split = others(tmp_path / "split.pckl", [*IDS[:3], NULL])
    message = rf"Wanted a label .*image {NULL} from loader_labels\.data .*Found: its label is null"
    with (
        loader.CassandraSource(split, batch_size=4, client=client, **labelled) as source,  # type: ignore[arg-type]
        pytest.raises(loader.TableError, match=message),
    ):
        next(source.epoch(0))


def test_labels_of_other_whole_numbers_are_read_if_they_fit(labelled: dict[str, object], tmp_path: Path) -> None:
    for kind, label, found in [
        ("tinyint", -3, None),
        ("smallint", 400, None),
        ("bigint", 1 << 20, None),
        ("bigint", 1 << 31, r"image .* from loader_labels\.{}.*Found: its label is 2147483648"),
        ("text", "'cat'", r"loader_labels\.{} .*the column label int .*Found: the key \(id\) and .*label text"),
        (
            "",
            None,
            r"loader_labels\.{} .*the column label int .*Found: the key \(id\) and the columns data blob, id uuid",
        ),
    ]:
        table = f"labels_{kind or 'none'}"
        column, name, value = (f", label {kind}", ", label", f", {label}") if kind else ("", "", "")
        for statement in (
            f"CREATE TABLE IF NOT EXISTS loader_labels.{table} (id uuid PRIMARY KEY, data blob{column})",
            f"INSERT INTO loader_labels.{table} (id, data{name}) VALUES ({IDS[0]}, 0x00{value})",
        ):
            execute(statement, **labelled)  # type: ignore[arg-type]
        split = others(tmp_path / "split.pckl", IDS[:1], data_table=f"loader_labels.{table}", data_id_col="id")
        with loader.CassandraSource(split, batch_size=1, **labelled) as source:  # type: ignore[arg-type]
            if found is None:
                assert next(source.epoch(0)).labels.tolist() == [label]
            else:
                with pytest.raises(loader.TableError, match=found.format(table)):
                    next(source.epoch(0))


def test_credentials_are_sent_and_not_shown(sources: Sources) -> None:
    """The test's node asks for none, and so takes any."""
    source = sources(username="reader", password="swordfish", datacenter="datacenter1")
    assert len(ids_of(source.epoch(0))) == COUNT
    assert "swordfish" not in repr(source)


def test_an_epoch_that_is_left_early_ends_at_once(either: Sources) -> None:
    source = either(batch_size=2)
    for _ in range(5):
        for batch in source.epoch(0):
            assert batch.step == 0
            break
    start = time.monotonic()
    source.close()
    source.close()
    assert time.monotonic() - start < 8
    with pytest.raises(loader.ClosedError, match="the source was closed"):
        next(source.epoch(0))


def test_a_source_that_is_forgotten_closes_itself(sources: Sources, folder: Path, cassandra: Cassandra) -> None:
    split = loader.open_split(folder)
    source = loader.CassandraSource(split, hosts=cassandra.hosts, port=cassandra.port, batch_size=4)
    next(source.epoch(0))
    (thread,) = [one for one in threading.enumerate() if one.name == "loader-prefetch"]
    del source
    thread.join(5)
    assert not thread.is_alive()


def test_a_wrong_count_is_never_passed_over(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Schedule.steps
    monkeypatch.setattr(Schedule, "steps", lambda *given, **more: itertools.islice(whole(*given, **more), 3))
    with pytest.raises(loader.DeliveryError, match=r"Wanted 103 samples in epoch 0 on rank 0\. Found: 24"):
        list(sources().epoch(0))


@pytest.mark.parametrize("world_size", [1, 3])
def test_out_of_order_each_id_comes_once_with_its_bytes(sources: Sources, world_size: int) -> None:
    ranks = [sources(rank=rank, world_size=world_size, in_order=False) for rank in range(world_size)]
    for epoch in range(2):
        found = [list(source.epoch(epoch)) for source in ranks]
        assert sorted(itertools.chain(*(ids_of(iter(batches)) for batches in found))) == sorted(IDS)
        assert [[batch.step for batch in batches] for batches in found] == [list(range(len(one))) for one in ranks]
        for batch in itertools.chain(*found):
            assert batch.images == [BYTES[IDS[position]] for position in batch.positions]
            assert batch.labels.tolist() == [LABELS[position] for position in batch.positions]
            assert np.array_equal(batch.ids, packed([IDS[position] for position in batch.positions]))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 4)])
def test_out_of_order_an_interrupted_epoch_misses_and_repeats_nothing(
    sources: Sources, before: int, after: int
) -> None:
    first = [sources(rank=rank, world_size=before, in_order=False) for rank in range(before)]
    found: list[uuid.UUID] = []
    for source in first:
        found += ids_of(itertools.islice(source.epoch(1), 3))
    state = loader.merge_states([json.loads(json.dumps(source.state_dict())) for source in first])
    if before > 1:
        with pytest.raises(loader.StateError, match="merge_states"):
            sources().load_state_dict(first[0].state_dict())
    for rank in range(after):
        second = sources(rank=rank, world_size=after, in_order=rank % 2 == 0)
        second.load_state_dict(state)
        found += ids_of(second.epoch(1))
        assert second.state_dict()["epoch"] == 2
    assert sorted(found) == sorted(IDS)


def test_an_image_that_is_not_there_can_be_skipped_and_is_told(either: Sources) -> None:
    source = either(index=1, on_missing="skip")
    batches = list(source.epoch(0))
    assert sorted(ids_of(iter(batches))) == sorted(IDS[:20])
    (skipped,) = source.skipped
    assert (skipped.id, skipped.position, skipped.epoch) == (MISSING, 20, 0)
    assert "no such row" in skipped.reason
    assert source.stats().skipped == 1
    assert [len(batch) for batch in either(index=1, on_missing="skip", last_batch_policy="FILL").epoch(0)] == [8] * 3


def test_the_next_epoch_is_read_while_the_last_batches_are_taken(sources: Sources) -> None:
    source = sources()
    first = list(source.epoch(0))
    streams = source._ahead
    assert streams is not None
    deadline = time.monotonic() + 10
    while source.stats().held_bytes < sum(map(len, BYTES.values())):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(ids_of(source.epoch(1))) == COUNT
    assert source._ahead is not None
    assert source._ahead[2] is streams[2]  # the same stream went on
    assert ids_of(source.epoch(0)) == ids_of(iter(first))
    assert source._ahead is None  # no epoch in turn: the source guesses no more


def test_what_was_read_ahead_is_gone_after_closing(sources: Sources) -> None:
    source = sources()
    list(source.epoch(0))
    assert source._ahead is not None
    source.close()
    assert source._ahead is None
    with pytest.raises(loader.ClosedError):
        next(source.epoch(1))


def test_stats_tell_what_was_delivered(either: Sources, client: str) -> None:
    source = either()
    assert source.stats() == Stats()
    batches = list(source.epoch(0))
    found = source.stats()
    assert (found.images, found.bytes) == (COUNT, sum(len(image) for batch in batches for image in batch.images))
    assert found.images_per_second > 0
    assert found.p99 >= found.p50 > 0
    assert found.connections >= (2 if client == "acsylla" else 1)
    source.close()
    assert source.stats().connections == 0
    assert source.stats().in_flight == source.stats().held_bytes == 0


def test_metrics_are_served_until_the_source_is_closed(sources: Sources) -> None:
    source = sources()
    source.connect()
    port = source.serve_metrics(port=0)
    with pytest.raises(
        loader.OptionError, match=rf"metrics at 127\.0\.0\.1 port {port}\. Found: Address already in use"
    ):
        source.serve_metrics(port=port)
    assert len(list(source.epoch(0))) == 13
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    place = '{rank="0",split="0",table="loader_plain.data"}'
    assert f"imagestrata_loader_images_total{place} {COUNT}.0" in text
    assert f"imagestrata_loader_skipped_total{place} 0.0" in text
    assert "# TYPE imagestrata_loader_stall_share gauge" in text
    assert all(f"imagestrata_loader_{name}" in text for name in Stats.__slots__)
    source.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
    with pytest.raises(loader.ClosedError):
        source.serve_metrics(port=0)


def test_an_epoch_can_begin_at_any_step(sources: Sources) -> None:
    source = sources()
    whole = ids_of(source.epoch(3))
    source.load_state_dict(source.state_dict(epoch=3, steps=5))
    assert ids_of(source.epoch(3)) == whole[40:]


class Proxy:
    """Passes bytes between clients and a server until it is told to stop, without closing any connection."""

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


def test_closing_does_not_wait_for_a_node_that_hangs(either: Sources, proxy: Proxy) -> None:
    source = either(port=proxy.port, batch_size=2)
    epoch = source.epoch(0)
    next(epoch)
    proxy.goes_on.clear()
    start = time.monotonic()
    source.close()
    assert time.monotonic() - start < 8


def test_a_listener_that_never_answers_is_named_in_time(sources: Sources) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        start = time.monotonic()
        with pytest.raises(loader.UnreachableError, match=rf"127\.0\.0\.1 port {port}\. Found: "):
            next(sources(port=port).epoch(0))
        assert time.monotonic() - start < 15


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
    folder: Path, proxy: Proxy, how: str, hangs: bool, code: int, message: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(proxy.port), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    if hangs:
        proxy.goes_on.clear()
    if how == "wait":
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate("\n", timeout=20)  # what waits for the node would wait for ever
    assert process.returncode == code, errors
    assert errors.rstrip().rpartition("\n")[2] == message, errors
