"""The source in torch's DataLoader: one order for any number of workers, exact states, errors with their own class."""

import gc
import json
import os
import pickle
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import loader
from tests.support.pictures import picture
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.waiting import until

if TYPE_CHECKING:  # torch takes seconds to import, so only tests import it, not their collection
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

COUNT = 43
IDS = image_ids(COUNT, first=5000)
LABELS = [number % 10 for number in range(COUNT)]
MISSING = uuid.UUID(int=4)
NO_PICTURE = uuid.UUID(int=5)

# Warnings that a test has more workers than the machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[loader.Split]:
    rows = [(IDS, LABELS), ([*IDS[:7], MISSING], LABELS[:8]), ([*IDS[:7], NO_PICTURE], LABELS[:8])]
    folder = write_split_folder(tmp_path_factory.mktemp("split"), rows)
    cache = tmp_path_factory.mktemp("cache")
    return [loader.open_split(folder, index=index, cache=cache) for index in range(len(rows))]


@pytest.fixture(scope="module")
def rows() -> dict[uuid.UUID, bytes]:
    return {one: picture(label) for one, label in zip(IDS, LABELS, strict=True)} | {NO_PICTURE: b"none"}


Sources = Callable[..., RowSource]


@pytest.fixture
def sources(splits: list[loader.Split], rows: dict[uuid.UUID, bytes]) -> Iterator[Sources]:
    """Makes sources of the splits, and closes them."""
    made: list[RowSource] = []

    def make(index: int = 0, **options: Any) -> RowSource:
        made.append(RowSource(splits[index], rows=rows, **({"batch_size": 4} | options)))
        return made[-1]

    yield make
    for source in made:
        source.close()


def places(batches: Any) -> list[tuple[int, int, list[int]]]:
    """Epoch, step and positions of each batch."""
    return [(batch.epoch, batch.step, batch.positions.tolist()) for batch in batches]


def batches_of(dataset: Any, workers: int, **options: Any) -> "DataLoader[Any]":
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("when", ["before", "between passes", "during a pass"])
def test_workers_of_a_closed_source_raise(sources: Sources, when: str) -> None:
    source = sources()
    dataset = loader.TorchDataset(source)
    batches = batches_of(dataset, 2, persistent_workers=True)
    if when == "between passes":
        list(batches)
    begun = iter(batches) if when == "during a pass" else None
    source.close()
    with pytest.raises(loader.ClosedError, match="Cannot read from a closed source"):
        list(batches if begun is None else begun)
    with pytest.raises(loader.ClosedError):  # as a spawned worker gets it
        list(pickle.loads(pickle.dumps(dataset)))
    with pytest.raises(loader.ClosedError):
        next(source.again().epoch(0))


def test_datasets_that_go_before_their_source_leave_no_files_open(sources: Sources) -> None:
    def use(source: RowSource, workers: int) -> None:
        batches = batches_of(loader.TorchDataset(source), workers)
        assert [len(list(batches)) for _ in range(3)] == [len(source)] * 3

    source = sources()
    for workers in (0, 1):
        use(source, workers)  # what the process keeps anyway
        gc.collect()
        before = psutil.Process().num_fds()
        for _ in range(3):
            use(source, workers)
        gc.collect()
        # torch's threads close their queues a moment after the worker has ended.
        until(lambda most=before: psutil.Process().num_fds() <= most, "files to be closed", seconds=10)


def test_two_passes_that_are_open_have_no_state(sources: Sources) -> None:
    dataset = loader.TorchDataset(sources())
    one, other = iter(dataset), iter(dataset)
    next(one), next(other)
    with pytest.raises(loader.OptionError, match="2 passes that have begun and not ended"):
        dataset.state_dict()
    del one
    assert (dataset.state_dict()["epoch"], dataset.state_dict()["steps"]) == (1, 1)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, True), (2, False), (3, True)])
def test_any_number_of_workers_gives_the_epochs_in_order(sources: Sources, workers: int, persistent: bool) -> None:
    source = sources()
    next(source.epoch(7))  # a thread, which no forked worker may touch
    batches = batches_of(loader.TorchDataset(source), workers, persistent_workers=persistent)
    assert len(batches) == len(source) == 11
    for epoch in range(2):
        wanted = list(sources().epoch(epoch))
        found = list(batches)
        assert places(found) == places(wanted)
        for batch, same in zip(found, wanted, strict=True):
            assert (batch.images, batch.labels.tolist()) == (same.images, same.labels.tolist())
            assert np.array_equal(batch.ids, same.ids)
    assert next(iter(batches)).epoch == 2
    batches.dataset.set_epoch(5)
    assert {batch.epoch for batch in batches} == {5}
    assert {batch.epoch for batch in batches} == {6}


def test_ranks_and_workers_together_deliver_each_sample_once(sources: Sources) -> None:
    found: list[int] = []
    for rank in range(2):
        source = sources(batch_size=3, rank=rank, world_size=2)
        batches = list(batches_of(loader.TorchDataset(source), 2))
        assert places(batches) == places(source.epoch(0))
        found += [position for batch in batches for position in batch.positions]
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 3)])
def test_the_state_follows_the_batches_the_loop_has_consumed(sources: Sources, before: int, after: int) -> None:
    source = sources()
    undisturbed = places(source.epoch(1))
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
    assert places(batches_of(again, after)) == undisturbed[5:]
    assert next(iter(batches_of(again, after))).epoch == 2
    again.load_state_dict(state)  # again, after passes
    assert places(batches_of(again, after)) == undisturbed[5:]


def test_a_state_loaded_after_workers_started_is_refused(sources: Sources) -> None:
    source = sources()
    state = source.state_dict(epoch=1, steps=2)
    dataset = loader.TorchDataset(source)
    durable = batches_of(dataset, 1, persistent_workers=True)
    next(iter(durable))
    dataset.load_state_dict(state)
    with pytest.raises(loader.StateError, match="before its workers started"):
        next(iter(durable))
    del durable
    assert next(iter(batches_of(dataset, 1))).step == 2
    source.load_state_dict(source.state_dict(epoch=3, steps=1))
    with pytest.raises(loader.StateError, match="loaded into the dataset"):
        next(iter(dataset))
    with pytest.raises(loader.OptionError, match="in order"):
        loader.TorchDataset(sources(in_order=False))


@pytest.mark.parametrize(
    ("taken", "policy", "workers"),
    [
        *((taken, policy, 0) for taken in (0, 1, 10) for policy in ("PARTIAL", "DROP")),
        *((0, "DROP", 2), (1, "PARTIAL", 2), (5, "PARTIAL", 2), (10, "DROP", 2)),
    ],
)
def test_a_stateful_data_loader_resumes_at_the_next_sample(
    sources: Sources, taken: int, policy: str, workers: int
) -> None:
    undisturbed = [places(sources(last_batch_policy=policy).epoch(epoch)) for epoch in range(3)]

    def stateful() -> "StatefulDataLoader[Any]":
        from torchdata.stateful_dataloader import StatefulDataLoader

        dataset = loader.TorchDataset(sources(last_batch_policy=policy))
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    first = stateful()
    passing = iter(first)
    found = list(islice(passing, taken))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    del passing
    again = stateful()
    again.load_state_dict(state)
    assert places(found + list(again)) == undisturbed[0]
    assert places(again) == undisturbed[1]
    ended = again.state_dict()
    last = stateful()
    last.load_state_dict(ended)
    assert places(last) == undisturbed[2]


def test_without_workers_its_state_is_that_of_the_pass(sources: Sources) -> None:
    undisturbed = places(sources().epoch(0))
    dataset = loader.TorchDataset(sources())
    passing = iter(dataset)
    assert places(next(passing) for _ in range(6)) == undisturbed[:6]
    state = json.loads(json.dumps(dataset.state_dict()))
    again = loader.TorchDataset(sources())
    again.load_state_dict(state)
    assert places(again) == undisturbed[6:]
    ended = again.state_dict()
    assert {batch.epoch for batch in again} == {1}
    again.load_state_dict(ended)
    assert places(again) == []  # the rest of that epoch
    assert {batch.epoch for batch in again} == {1}
    for change, match in [
        ({"workers": 2}, "workers, global batch"),
        ({"format": 2}, "Found: \\(2,"),
        ({"begin": {}}, "Found: 'global_batch_size'"),
    ]:
        with pytest.raises(loader.StateError, match=match):
            again.load_state_dict(state | change)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_from_workers_keep_their_class(sources: Sources, workers: int) -> None:
    with pytest.raises(loader.MissingImageError, match=rf"{MISSING} from memory"):
        list(batches_of(loader.TorchDataset(sources(index=1)), workers))
    from tests.support.transforms import small

    with pytest.raises(loader.DecodeError, match=rf"picture as image {NO_PICTURE} .*Found: 4 bytes"):
        list(batches_of(loader.TorchDataset(sources(index=2), transform=small), workers))


def test_a_split_changed_in_the_meantime_is_named(tmp_path: Path) -> None:
    """A spawned worker raises the error when its first batch is requested."""
    own = write_split_folder(tmp_path / "own", [(IDS, LABELS)])
    split = loader.open_split(own, cache=tmp_path / "cache")
    dataset = loader.TorchDataset(loader.CassandraSource(split, hosts="127.0.0.1", batch_size=4))
    copied = pickle.loads(pickle.dumps(dataset))
    write_split_folder(own, [(IDS, LABELS)], seed=8)
    with pytest.raises(loader.SplitError, match=f"with the fingerprint {split.fingerprint}"):
        next(iter(copied))


def test_passes_with_the_same_seed_and_other_worker_counts_do_not_mix(sources: Sources) -> None:
    import torch

    dataset = loader.TorchDataset(sources())

    def seeded(workers: int, first: int, **options: Any) -> "DataLoader[Any]":
        """Workers of which one begins its pass before the others."""
        torch.manual_seed(0)
        return batches_of(dataset, workers, worker_init_fn=partial(_wait_for, first, _next_epoch(dataset)), **options)

    def whole(batches: Any) -> int:
        """The epoch of the batches, which must have each sample once."""
        found = list(batches)
        assert sorted(position for batch in found for position in batch.positions) == list(range(COUNT))
        (epoch,) = {batch.epoch for batch in found}
        return int(epoch)

    for epoch, (workers, first) in enumerate([(2, 0), (3, 0), (2, 1), (3, 2)]):
        assert whole(seeded(workers, first)) == epoch
    next(iter(seeded(2, 0)))  # the other may not have begun
    assert whole(seeded(2, 1)) == 5
    durable = seeded(2, 0, persistent_workers=True)
    torch.manual_seed(0)
    assert whole(durable) == 6
    torch.manual_seed(0)
    next(iter(durable))  # ended early
    overlapping = [iter(seeded(2, 1)), iter(seeded(2, 0)), iter(seeded(3, 2))]
    taken = [[next(one) for one in overlapping] for _ in range(COUNT // 4 + 1)]
    assert sorted(whole(batches) for batches in zip(*taken, strict=True)) == [8, 9, 10]
    assert whole(durable) == 11


def test_forks_by_another_thread_do_not_mix_passes(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    dataset, stop = loader.TorchDataset(sources()), threading.Event()
    real, one_at_a_time = os.fork, threading.Lock()

    def exclusive() -> int:
        with one_at_a_time:  # filelock refuses two forks at the same moment
            return real()

    monkeypatch.setattr(os, "fork", exclusive)

    def fork() -> None:
        while not stop.is_set():
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

    thread = threading.Thread(target=fork)
    thread.start()
    try:
        for epoch in range(4):
            torch.manual_seed(0)
            found = list(batches_of(dataset, 3))
            assert {batch.epoch for batch in found} == {epoch}
            assert sorted(position for batch in found for position in batch.positions) == list(range(COUNT))
    finally:
        stop.set()
        thread.join()


def _next_epoch(dataset: Any) -> int | None:
    with dataset._passes._ledger() as ledger:
        return ledger.following  # type: ignore[no-any-return]


def _wait_for(first: int, before: int | None, worker: int) -> None:
    """Make one worker begin after the first, which takes an epoch."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    until(lambda: worker == first or _next_epoch(info.dataset) != before)


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_masks_are_unchanged_and_splits_without_labels_give_images_alone(tmp_path: Path, kind: str) -> None:
    import torch

    folder = write_split_folder(tmp_path / "split", [(IDS, [-1] * COUNT)], label_type=kind)
    split = loader.open_split(folder, cache=tmp_path / "cache")
    rows = {one: picture(number % 10, width=20, height=10) for number, one in enumerate(IDS)}
    labels = {one: bytes([number]) * 3 for number, one in enumerate(IDS)} if kind == "blob" else None
    with RowSource(split, rows=rows, labels=labels, batch_size=8) as source:
        dataset = loader.TorchDataset(source, transform=lambda image: torch.tensor(image.size))
        batches = list(batches_of(dataset, 0))
        wanted = [batch.label_blobs for batch in source.epoch(0)]
    sizes = [one[0] if kind == "blob" else one for one in batches]
    assert [one.tolist() for one in sizes] == [[[20, 10]] * len(one) for one in sizes]
    if kind == "blob":
        assert [labels for _, labels in batches] == wanted


class _Noise:
    """A transform that draws from the three global generators."""

    def __call__(self, _: Any) -> Any:
        import torch

        return torch.cat([torch.rand(2), torch.tensor([np.random.random(), random.random()])])


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"world_size": 2, "rank": 1}, {"in_state": 5}], ids=str)
@pytest.mark.parametrize("workers", [0, 2])
def test_seeded_transforms_give_the_same_on_any_ranks_and_after_a_resume(
    sources: Sources, workers: int, options: dict[str, Any]
) -> None:
    def noise(source: RowSource, workers: int) -> dict[int, list[float]]:
        dataset = loader.TorchDataset(source, transform=_Noise(), seed_transforms=True)
        values = [one.tolist() for images, _ in batches_of(dataset, workers) for one in images]
        positions = [one for batch in source.again().epoch(0) for one in batch.positions.tolist()]
        return dict(zip(positions, values, strict=True))

    options = dict(options)
    resumed = options.pop("in_state", None)
    usual = noise(sources(), 0)
    assert len({tuple(values) for values in usual.values()}) == COUNT
    source = sources(**options)
    if resumed is not None:
        source.load_state_dict(sources().state_dict(epoch=0, steps=resumed))
    found = noise(source, workers)
    assert found.items() <= usual.items()
    assert len(found) == source.plan.samples(0)


def test_seeded_transforms_leave_the_generators_where_they_were(sources: Sources) -> None:
    import torch

    def state() -> Any:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]

    torch.manual_seed(3)
    before = state()
    dataset = loader.TorchDataset(sources(), transform=_Noise(), seed_transforms=True)
    for _ in batches_of(dataset, 0):
        pass
    assert state()[1:] == before[1:]  # torch's DataLoader itself draws a seed from torch's generator


def test_seeds_without_a_transform_are_refused(sources: Sources) -> None:
    with pytest.raises(loader.OptionError, match=r"a transform with seed_transforms=True\. Found: none"):
        loader.TorchDataset(sources(), seed_transforms=True)
