"""The source under torch's DataLoader: one order for any number of workers, exact states, errors, quick ends."""

import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import SHADES, picture, write_table
from split_folders import image_ids, packed, write_split_folder
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from transforms import small

import loader
from devstack.cassandra import Cassandra
from loader._passes import Passes
from loader._splits import Split

COUNT = 43
IDS = image_ids(COUNT, first=5000)
LABELS = [number % 10 for number in range(COUNT)]
MISSING = uuid.UUID(int=4)
NO_PICTURE = uuid.UUID(int=5)

# Warnings that a machine has fewer cores than a test has workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def folder(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: dict[uuid.UUID, bytes | None] = {one: picture(label) for one, label in zip(IDS, LABELS, strict=True)}
    write_table("loader_torch.data", rows | {NO_PICTURE: b"none"}, hosts=cassandra.hosts, port=cassandra.port)
    splits = [(IDS, LABELS), ([*IDS[:7], MISSING], LABELS[:8]), ([*IDS[:7], NO_PICTURE], LABELS[:8])]
    return write_split_folder(tmp_path_factory.mktemp("split"), splits, data_table="loader_torch.data")


Sources = Callable[..., loader.CassandraSource]


@pytest.fixture
def sources(folder: Path, cassandra: Cassandra, tmp_path: Path) -> Iterator[Sources]:
    """Makes sources of the folder's splits, and closes them."""
    made: list[loader.CassandraSource] = []

    def make(index: int = 0, **options: Any) -> loader.CassandraSource:
        split = loader.open_split(folder, index=index, cache=tmp_path / "cache")
        where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 4}
        made.append(loader.CassandraSource(split, **(where | options)))
        return made[-1]

    yield make
    for source in made:
        source.close()


def told(batches: Any) -> list[tuple[int, int, list[int]]]:
    """Epoch, step and positions of each batch."""
    return [(batch.epoch, batch.step, batch.positions.tolist()) for batch in batches]


def batches_of(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_any_number_of_workers_gives_the_epochs_in_their_order(
    sources: Sources, workers: int, persistent: bool
) -> None:
    source = sources()
    next(source.epoch(7))  # connections and a thread, which no forked worker may touch
    batches = batches_of(loader.TorchDataset(source), workers, persistent_workers=persistent and workers > 0)
    assert len(batches) == len(source) == 11
    for epoch in range(2):
        wanted = list(sources().epoch(epoch))
        found = list(batches)
        assert told(found) == told(wanted)
        for batch, same in zip(found, wanted, strict=True):
            assert (batch.images, batch.labels.tolist()) == (same.images, same.labels.tolist())
            assert np.array_equal(batch.ids, same.ids)
    assert next(iter(batches)).epoch == 2
    batches.dataset.set_epoch(5)
    assert {batch.epoch for batch in batches} == {5}
    assert {batch.epoch for batch in batches} == {6}


def test_spawned_workers_make_tensors_of_pictures(sources: Sources) -> None:
    source = sources()
    next(source.epoch(0))
    batches = batches_of(loader.TorchDataset(source, transform=small), 2, multiprocessing_context="spawn")
    found = list(batches)
    assert [labels.tolist() for _, labels in found] == [batch.labels.tolist() for batch in sources().epoch(0)]
    for images, labels in found:
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(images, (SHADES * labels).to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3))


def test_ranks_and_workers_together_deliver_each_sample_once(sources: Sources) -> None:
    found: list[int] = []
    for rank in range(2):
        source = sources(batch_size=3, rank=rank, world_size=2)
        batches = list(batches_of(loader.TorchDataset(source), 2))
        assert told(batches) == told(source.epoch(0))
        found += [position for batch in batches for position in batch.positions]
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 3)])
def test_the_loop_s_own_count_is_the_exact_state(sources: Sources, before: int, after: int) -> None:
    source = sources()
    undisturbed = told(source.epoch(1))
    dataset = loader.TorchDataset(source)
    dataset.set_epoch(1)
    for batch in batches_of(dataset, before):
        if batch.step == 4:
            break
    with pytest.raises(loader.OptionError, match="DALI and workers read ahead"):
        loader.TorchDataset(sources()).source.state_dict()
    state = json.loads(json.dumps(source.state_dict(epoch=batch.epoch, steps=batch.step + 1)))
    again = loader.TorchDataset(sources())
    again.load_state_dict(state)
    assert told(batches_of(again, after)) == undisturbed[5:]
    assert next(iter(batches_of(again, after))).epoch == 2
    again.load_state_dict(state)  # once more, behind passes
    assert told(batches_of(again, after)) == undisturbed[5:]


def test_a_state_that_workers_cannot_know_is_refused(sources: Sources) -> None:
    source = sources()
    state = source.state_dict(epoch=1, steps=2)
    dataset = loader.TorchDataset(source)
    lasting = batches_of(dataset, 1, persistent_workers=True)
    next(iter(lasting))
    dataset.load_state_dict(state)
    with pytest.raises(loader.StateError, match="workers that begin after that"):
        next(iter(lasting))
    del lasting
    assert next(iter(batches_of(dataset, 1))).step == 2
    source.load_state_dict(source.state_dict(epoch=3, steps=1))
    with pytest.raises(loader.StateError, match="loaded into the dataset"):
        next(iter(dataset))
    with pytest.raises(loader.OptionError, match="in order"):
        loader.TorchDataset(sources(in_order=False))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["PARTIAL", "DROP"])
@pytest.mark.parametrize("taken", [0, 1, 5, 10])
def test_a_stateful_data_loader_goes_on_at_the_next_sample(
    sources: Sources, taken: int, policy: str, workers: int
) -> None:
    undisturbed = [told(sources(last_batch_policy=policy).epoch(epoch)) for epoch in range(3)]

    def stateful() -> StatefulDataLoader[Any]:
        dataset = loader.TorchDataset(sources(last_batch_policy=policy))
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    first = stateful()
    passing = iter(first)
    found = list(islice(passing, taken))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    del passing
    again = stateful()
    again.load_state_dict(state)
    assert told(found + list(again)) == undisturbed[0]
    assert told(again) == undisturbed[1]
    ended = again.state_dict()
    last = stateful()
    last.load_state_dict(ended)
    assert told(last) == undisturbed[2]


def test_without_workers_its_state_is_that_of_the_pass(sources: Sources) -> None:
    undisturbed = told(sources().epoch(0))
    dataset = loader.TorchDataset(sources())
    passing = iter(dataset)
    assert told(next(passing) for _ in range(6)) == undisturbed[:6]
    state = json.loads(json.dumps(dataset.state_dict()))
    again = loader.TorchDataset(sources())
    again.load_state_dict(state)
    assert told(again) == undisturbed[6:]
    ended = again.state_dict()
    assert {batch.epoch for batch in again} == {1}
    again.load_state_dict(ended)
    assert told(again) == []  # the rest of that epoch
    assert {batch.epoch for batch in again} == {1}
    for change, match in [
        ({"workers": 2}, "workers, global batch"),
        ({"format": 2}, "Found: \\(2,"),
        ({"begin": {}}, "Found: 'global_batch_size'"),
    ]:
        with pytest.raises(loader.StateError, match=match):
            again.load_state_dict(state | change)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_come_in_their_own_class(sources: Sources, workers: int) -> None:
    with pytest.raises(loader.MissingImageError, match=rf"{MISSING} from loader_torch\.data"):
        list(batches_of(loader.TorchDataset(sources(index=1)), workers))
    with pytest.raises(loader.DecodeError, match=rf"PIL can decode as image {NO_PICTURE} .*Found: 4 bytes"):
        list(batches_of(loader.TorchDataset(sources(index=2), transform=small), workers))


def test_a_split_that_is_another_by_then_is_named(
    sources: Sources, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write_split_folder(tmp_path / "own", [(IDS, LABELS)], data_table="loader_torch.data")
    split = loader.open_split(own, cache=tmp_path / "cache")
    source = sources()
    dataset = loader.TorchDataset(loader.CassandraSource(split, hosts=source.hosts, port=source.port, batch_size=4))
    write_split_folder(own, [(IDS, LABELS)], data_table="loader_torch.data", seed=8)
    with pytest.raises(loader.SplitError, match=f"with the fingerprint {split.fingerprint}"):
        next(iter(batches_of(dataset, 1, multiprocessing_context="spawn")))


def test_splits_and_sources_pickle_as_what_opens_them(sources: Sources, tmp_path: Path) -> None:
    source = sources(username="reader", password="swordfish", memory_budget=12_345)
    wanted = told(source.epoch(1))
    source.load_state_dict(source.state_dict(epoch=1, steps=3))
    passing = source.epoch(1)
    next(passing)
    data = pickle.dumps(source)
    assert IDS[5].bytes not in data
    again = pickle.loads(data)
    assert (repr(again), again._options, again.first_epoch) == (repr(source), source._options, 1)
    assert isinstance(again.split.ids.base, np.memmap)
    assert told(again.epoch(1)) == wanted[3:]
    again.close()
    assert told(pickle.loads(pickle.dumps(again)).epoch(1)) == wanted[3:]
    fields = {name: getattr(source.split, name) for name in Split.__slots__}
    arrays = Split(**(fields | {"ids": packed(IDS), "labels": None, "is_opened": False}))
    same = pickle.loads(pickle.dumps(arrays))
    assert (np.array_equal(same.ids, arrays.ids), same.labels, repr(same)) == (True, None, repr(arrays))


def test_each_error_pickles() -> None:
    for error in (getattr(loader, name) for name in loader.__all__ if name.endswith("Error")):
        assert str(pickle.loads(pickle.dumps(error("Wanted this. Found: that")))) == "Wanted this. Found: that"


def test_a_forked_child_does_not_wait_for_its_parent_s_reads(sources: Sources) -> None:
    source = sources()
    passing = source.epoch(0)
    next(passing)
    here, there = multiprocessing.get_context("fork").Pipe()

    def child() -> None:
        try:
            next(passing)
        except loader.ClosedError as error:
            there.send(str(error))
        there.send(told(source.epoch(0)))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert here.poll(20)
    assert "begin its own epoch there" in here.recv()
    assert here.poll(20)
    assert here.recv() == told(sources().epoch(0))
    process.join(5)
    assert process.exitcode == 0
    assert len(list(passing)) == 10


def test_a_forked_child_may_forget_what_its_parent_left_behind(folder: Path, cassandra: Cassandra) -> None:
    gc.disable()
    try:
        with loader.CassandraSource(
            loader.open_split(folder), hosts=cassandra.hosts, port=cassandra.port, batch_size=4
        ) as source:
            next(source.epoch(0))
        circle: list[Any] = [source]
        circle.append(circle)
        del source, circle
        process = multiprocessing.get_context("fork").Process(target=gc.collect)
        process.start()
        process.join(20)
        process.kill()
        assert process.exitcode == 0
    finally:
        gc.enable()


SCRIPT = """
import os, signal, sys, time
import loader, torch
from torchdata.stateful_dataloader import StatefulDataLoader
from transforms import small
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have had it ignored
    split = loader.open_split(sys.argv[1])
    source = loader.CassandraSource(split, hosts="127.0.0.1", port=int(sys.argv[2]), batch_size=2)
    dataset = loader.TorchDataset(source, transform=small)
    batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[4])
    for batch in batches:
        print("first", flush=True)
        if sys.argv[3] == "raise":
            raise ZeroDivisionError("in the loop")
        if sys.argv[3] == "leave":
            break
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "method", "code", "message"),
    [
        ("leave", "fork", 0, ""),
        ("raise", "spawn", 1, "ZeroDivisionError: in the loop"),
        ("wait", "fork", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_a_process_and_its_workers_end_quickly(
    folder: Path, cassandra: Cassandra, tmp_path: Path, how: str, method: str, code: int, message: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    process = subprocess.Popen(
        [sys.executable, script, str(folder), str(cassandra.port), how, method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    if how == "wait":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=40)  # of the 60 seconds that what is not ended would take
    assert process.returncode == code, errors
    assert errors.rstrip().rpartition("\n")[2] == message, errors
    with pytest.raises(ProcessLookupError):  # no worker is left, nor what multiprocessing had tidy up behind them
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)


def test_passes_of_the_same_seed_and_of_other_numbers_of_workers_do_not_mix(sources: Sources) -> None:
    dataset = loader.TorchDataset(sources())
    for epoch, (workers, late) in enumerate([(2, 0), (3, 0), (2, 1), (3, 2)]):
        torch.manual_seed(0)
        found = list(batches_of(dataset, workers, worker_init_fn=partial(_slow_but, late)))
        assert {batch.epoch for batch in found} == {epoch}
        assert sorted(position for batch in found for position in batch.positions) == list(range(COUNT))
    torch.manual_seed(0)
    next(iter(batches_of(dataset, 2, worker_init_fn=partial(_slow_but, 0))))  # the other has not begun, perhaps
    torch.manual_seed(0)
    assert {batch.epoch for batch in batches_of(dataset, 2, worker_init_fn=partial(_slow_but, 1))} == {5}


def _slow_but(late: int, worker: int) -> None:
    """Have one worker begin before, or well before, the others."""
    time.sleep(0.0 if worker == late else 0.7)


def begin(passes: Passes, numbers: list[int], *, of: int, births: int, epoch: int | None = None) -> list[int]:
    """The epochs of workers of a pass that begin in this order; birth ``births`` is that of worker 0."""
    return [passes.begin(number, of, births + number, first_epoch=4, epoch=epoch) for number in numbers]


def test_workers_of_a_pass_agree_on_its_epoch() -> None:
    passes = Passes()
    assert begin(passes, [2, 0, 1], of=3, births=11) == [4, 4, 4]
    assert begin(passes, [0, 1, 2], of=3, births=11) == [5, 5, 5]  # they live on
    assert begin(passes, [1, 0], of=3, births=14) == [6, 6]  # others, one of which ends before
    assert begin(passes, [2, 0, 1], of=3, births=17) == [7, 7, 7]
    assert begin(passes, [2, 0, 1], of=4, births=20) == [8, 8, 8]
    assert begin(passes, [0], of=0, births=22) == [9]  # no workers
    assert begin(passes, [0], of=0, births=22) == [10]
    assert begin(passes, [1, 0], of=2, births=25) == [11, 11]
    passes.restart(1_000_000_000)
    assert begin(passes, [0, 1], of=2, births=25) == [1_000_000_000] * 2
    passes.restart(3)
    assert begin(passes, [0, 1], of=2, births=25) == [3, 3]
    assert begin(passes, [0, 1], of=2, births=27, epoch=1) == [1, 1]  # a state
    assert begin(passes, [0, 1], of=2, births=29) == [2, 2]


def test_workers_agree_where_something_else_is_born_in_between() -> None:
    passes = Passes()
    for epoch, births in ((4, [11, 13, 14]), (5, [15, 16, 19]), (6, [20, 23, 24])):
        found = [passes.begin(one, 3, births[one], first_epoch=4, epoch=None) for one in (1, 2, 0)]
        assert found == [epoch] * 3
    last = (1 << 20) - 1
    assert begin(passes, [2, 0, 1], of=3, births=last) == [7, 7, 7]
    assert begin(passes, [1, 0, 2], of=3, births=last + 3) == [8, 8, 8]
