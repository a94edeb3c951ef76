"""Shards in a bucket as a source, with torch's loaders and DALI; stores that refuse, stop or break connections."""

import gc
import pickle
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import loader
from imagestrata.devstack.servers.s3 import S3
from loader import AccessError, ClosedError, OptionError, SplitError, UnreachableError
from loader.shards import make_client, open_shards
from loader.shards.piece_cache import FOLDER
from loader.shards.shard_set import Shards
from tests.support.services import fresh_name
from tests.support.shard_folders import CLASSES, upload

COUNT = 103
MEMORY = 60_000  # of one piece

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Shards in a local folder."""
    return upload(make_client(tmp_path_factory.mktemp("shards")), "b", "x", count=COUNT, workers=1)


@pytest.fixture(scope="module")
def far(s3: S3) -> Shards:
    """The same shards in a bucket."""
    s3.make_bucket(bucket := fresh_name("bucket"))
    return upload(make_client(s3.endpoint, s3.access_key, s3.secret_key), bucket, "x", count=COUNT, workers=1)


def make(shards: Shards, **options: Any) -> loader.ShardSource:
    return loader.ShardSource(shards, **{"batch_size": 8, "mix": 20, "streams": 6, **options})


def ids(source: loader.Source, epoch: int = 0) -> list[list[bytes]]:
    return [list(map(bytes, batch.ids)) for batch in source.epoch(epoch)]


def test_a_bucket_gives_the_batches_of_a_local_folder(shards: Shards, far: Shards) -> None:
    assert far.fingerprint == shards.fingerprint
    with make(shards) as near_source, make(far) as far_source:
        for epoch in (0, 1):
            for near, one in zip(near_source.epoch(epoch), far_source.epoch(epoch), strict=True):
                assert [bytes(image) for image in one.images] == [bytes(image) for image in near.images]
                assert one.labels.tolist() == near.labels.tolist()
                assert list(map(bytes, one.ids)) == list(map(bytes, near.ids))
    far.verify()


def test_dali_decodes_what_the_source_reads(shards: Shards) -> None:
    with make(shards) as source:
        iterator = loader.ClassificationIterator(source, size=16, train=False, mean=(0, 0, 0), std=(1, 1, 1))
        found = []
        for images, labels in iterator:
            assert images.shape[1:] == (3, 16, 16)
            found += labels.tolist()
        assert Counter(found) == Counter(number % CLASSES for number in range(COUNT))


def test_the_pixels_of_a_sample_are_the_same_on_any_ranks_and_after_a_resume(shards: Shards) -> None:
    def pixels(state: Any = None, stop: int | None = None, **options: Any) -> tuple[dict[int, bytes], Any]:
        found = {}
        with make(shards, **options) as source:
            batches = loader.ClassificationIterator(source, size=16, train=True)
            if state is not None:
                batches.load_state_dict(state)
            for images, _ in islice(batches, stop):
                assert batches.given is not None
                found |= dict(zip(batches.given.positions.tolist(), [one.tobytes() for one in images], strict=True))
            return found, batches.state_dict()

    usual, _ = pixels()
    assert len(usual) == COUNT
    other = [pixels(batch_size=5, streams=4, rank=rank, world_size=3)[0] for rank in range(3)]
    assert other[0] | other[1] | other[2] == usual
    first, state = pixels(stop=4)
    assert first | pixels(state)[0] == usual


def test_torch_workers_give_the_order_of_one_process(shards: Shards) -> None:
    wanted = [ids(make(shards), epoch) for epoch in (0, 1)]
    for workers in (0, 3):
        batches = DataLoader(loader.TorchDataset(make(shards)), batch_size=None, num_workers=workers)
        for epoch in (0, 1):
            assert [list(map(bytes, batch.ids)) for batch in batches] == wanted[epoch]


def test_a_stateful_data_loader_resumes(shards: Shards) -> None:
    wanted = ids(make(shards))

    def batches() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(loader.TorchDataset(make(shards)), batch_size=None, num_workers=2)

    one = batches()
    taken = [list(map(bytes, batch.ids)) for batch in islice(iter(one), 5)]
    state = one.state_dict()
    again = batches()
    again.load_state_dict(state)
    assert taken + [list(map(bytes, batch.ids)) for batch in again] == wanted


def test_a_cache_replaces_reads_of_the_store_and_respects_its_size(far: Shards, tmp_path: Path) -> None:
    wanted = ids(make(far))

    def through(folder: Path, size: int) -> int:
        """Reads an epoch through a cache; returns the bytes in the cache afterwards."""
        with make(far, cache=folder, cache_bytes=size, max_in_flight=2) as source:
            assert [list(map(bytes, batch.ids)) for batch in source.batches(0, every=1)] == wanted
        before = None
        while before != (before := sorted((path.name, path.stat().st_size) for path in (folder / FOLDER).iterdir())):
            time.sleep(0.1)  # until no write is under way
        return sum(size for _, size in before)

    assert through(tmp_path / "cache", 1 << 30) == far.contents.bytes
    damaged = next((tmp_path / "cache" / FOLDER).iterdir())
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    assert through(tmp_path / "cache", 1 << 30) == far.contents.bytes
    half = far.contents.bytes // 2
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "theirs").write_text("of somebody else")
    assert 0 < through(tmp_path / "half", half) <= half
    assert (tmp_path / "half" / "theirs").exists()
    with pytest.raises(OptionError, match=r"Wanted a cache folder at .*theirs\. Found: Not a directory"):
        through(tmp_path / "half" / "theirs", half)


def test_wrong_keys_missing_shards_and_unreachable_stores_are_reported(s3: S3, far: Shards) -> None:
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    with pytest.raises(SplitError, match=rf"a folder of shards at {far.address}/nothing\. Found: no shards\.json"):
        open_shards(f"{far.address}/nothing", client=client)
    with pytest.raises(AccessError, match="the keys are rejected"):
        open_shards(far.address, client=make_client(s3.endpoint, s3.access_key, "wrong"))
    with pytest.raises(AccessError, match="no bucket 'nowhere'"):
        open_shards("s3://nowhere/x", client=client)
    with pytest.raises(UnreachableError, match="no answer"):
        open_shards(far.address, client=make_client("http://127.0.0.1:9", "a", "b"))


def test_a_store_that_stops_in_mid_read_is_named(tmp_path: Path) -> None:
    with S3(tmp_path / "s3") as server:
        server.make_bucket("ends")
        client = make_client(server.endpoint, server.access_key, server.secret_key)
        shards = upload(client, "ends", "x", count=60, workers=1)
        with make(shards, memory_budget=MEMORY, timeout=0.5, max_in_flight=1, streams=1, mix=8) as source:
            batches = source.epoch(0)
            next(batches)
            server.stop()
            with pytest.raises(UnreachableError, match=r"samples \d+ to \d+ in .*from [\d,]+\. Found: no answer"):
                list(batches)


def test_a_store_that_restarts_before_a_pass_does_not_end_it(tmp_path: Path) -> None:
    with S3(tmp_path / "s3") as server, ThreadPoolExecutor(3) as threads:
        server.make_bucket("restarts")
        client = make_client(server.endpoint, server.access_key, server.secret_key)
        shards = upload(client, "restarts", "x", count=30, workers=1)
        packed = pickle.dumps(shards)
        wanted = ids(make(shards))
        with make(shards) as source, make(shards) as closed, make(shards, timeout=0.5) as impatient:
            server.stop()
            found, opened = threads.submit(ids, source), threads.submit(pickle.loads, packed)  # as spawned workers do
            ended = threads.submit(ids, closed)
            while not source.stats().retries or not closed.stats().retries:
                assert not found.done(), found.result()
                time.sleep(0.01)
            closed.close()
            with pytest.raises(ClosedError):
                ended.result(timeout=60)
            with pytest.raises(UnreachableError, match="no answer"):
                ids(impatient)
            server.start(tied=True)
            assert found.result() == wanted
            assert opened.result().fingerprint == shards.fingerprint


def test_reads_are_retried_when_connections_break(s3: S3, shards: Shards, far: Shards) -> None:
    others = open_sockets(s3.port)  # held, so that no other socket gets the address of one of them
    with make(far, memory_budget=MEMORY, max_in_flight=2, streams=1, mix=8) as source:
        batches = source.epoch(0)
        found = [list(map(bytes, next(batches).ids)) for _ in range(3)]
        own = [sock for sock in open_sockets(s3.port) if not any(sock is other for other in others)]
        assert own
        for sock in own:
            sock.shutdown(socket.SHUT_RDWR)
        found += [list(map(bytes, batch.ids)) for batch in batches]
    assert found == ids(make(shards, streams=1, mix=8))


def open_sockets(port: int) -> list[socket.socket]:
    """The connections of this process to a port. Others may end meanwhile."""
    found = []
    for sock in gc.get_objects():
        if not issubclass(type(sock), socket.socket) or sock.family != socket.AF_INET:  # dead weak references
            continue
        with suppress(OSError):
            if sock.getpeername()[1] == port:
                found.append(sock)
    return found
