"""Global batches of one bucket each: exact counts over epochs, on any ranks and after any resume."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import loader
from loader.order.buckets import BucketedOrder, buckets_of
from tests.support.pictures import picture
from tests.support.trees import plant, touch

SIZES = st.lists(st.integers(7, 40), min_size=1, max_size=4)


def numbers_of(sizes: list[int], seed: int = 0) -> NDArray[np.int64]:
    """So many images of each bucket, mixed."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3 - 1, sizes))


@given(SIZES, st.integers(1, 7), st.integers(0, 99))
def test_each_batch_is_of_one_bucket_and_images_take_turns(sizes: list[int], batch: int, seed: int) -> None:
    numbers = numbers_of(sizes)
    _, buckets = buckets_of(numbers, rows=len(numbers), batch=batch)
    came: Counter[int] = Counter()
    orders = []
    for epoch in range(5):
        order = BucketedOrder(buckets, batch, fingerprint="f", seed=seed, epoch=epoch)
        positions = order(np.arange(len(order), dtype=np.int64))
        orders.append(positions.tolist())
        assert len(order) == sum(size // batch for size in sizes) * batch
        assert len(set(orders[-1])) == len(orders[-1])
        assert all(len(set(one)) == 1 for one in numbers[positions].reshape(-1, batch).tolist())
        assert [order.places_of(position) for position in orders[-1]] == [[place] for place in range(len(order))]
        assert all(order.places_of(position) == [] for position in {*range(len(numbers))} - {*orders[-1]})
        came.update(orders[-1])
        for number in set(numbers.tolist()):
            times = [came[position] for position in np.flatnonzero(numbers == number).tolist()]
            assert max(times) - min(times) <= 1
    assert len(numbers) < 20 or len(set(map(tuple, orders))) == 5


@pytest.fixture
def folder(tmp_path: Path) -> loader.Folder:
    return loader.open_folder(touch(tmp_path / "tree", *(f"{number % 3}/{number}.png" for number in range(50))))


BUCKETS = numbers_of([11, 14, 25])


def read(folder: loader.Folder, *, ranks: int, stop: int | None = None, state: Any = None, **options: Any) -> Any:
    """The positions of the global batches of the rest of an epoch, and the state."""
    found: dict[int, list[int]] = {}
    for rank in range(ranks):
        chosen = {"batch_size": 6 // ranks, "buckets": BUCKETS} | options
        with loader.FolderSource(folder, rank=rank, world_size=ranks, **chosen) as source:
            if state is not None:
                source.load_state_dict(state)
            for batch in islice(source.epoch(source.first_epoch), stop):
                found.setdefault(batch.step, []).extend(batch.positions.tolist())
            reached = source.state_dict()
    return [found[step] for step in sorted(found)], reached


def test_ranks_share_batches_and_an_epoch_goes_on_from_a_state(folder: loader.Folder) -> None:
    whole, _ = read(folder, ranks=1)
    assert len(whole) == 11 // 6 + 14 // 6 + 25 // 6
    assert all(len(set(BUCKETS[batch].tolist())) == 1 for batch in whole)
    assert [sorted(one) for one in read(folder, ranks=3)[0]] == [sorted(one) for one in whole]
    first, state = read(folder, ranks=1, stop=3)
    rest, _ = read(folder, ranks=2, state=state)
    assert [*first, *map(sorted, rest)] == [*whole[:3], *map(sorted, whole[3:])]


@pytest.mark.parametrize("workers", [0, 2])
def test_adapters_get_batches_of_one_bucket(folder: loader.Folder, workers: int) -> None:
    from torch.utils.data import DataLoader

    whole, _ = read(folder, ranks=1)
    with loader.FolderSource(folder, batch_size=6, buckets=BUCKETS, rank=0, world_size=1) as source:
        batches = DataLoader(loader.TorchDataset(source), batch_size=None, num_workers=workers)
        assert [batch.positions.tolist() for batch in batches] == whole
        assert [batch.positions.tolist() for batch in source.again().epoch(0)] == whole


def test_a_graph_resizes_to_the_shape_of_the_bucket(tmp_path: Path) -> None:
    from nvidia.dali import fn, types

    files = {f"a/{number}.png": picture(0, width=80, height=60 + 40 * (number % 2)) for number in range(12)}
    folder = loader.open_folder(plant(tmp_path / "tree", files))
    heights = [60 + 40 * (int(path[2:-4]) % 2) for path in folder.paths]
    buckets = loader.aspect_buckets([80] * 12, heights)
    shapes = np.array([(40, 30), (32, 32), (30, 40)], dtype=np.float32)

    def graph(files: Any, labels: Any, *, shape: Any) -> tuple[Any, ...]:
        return fn.resize(fn.decoders.image(files, output_type=types.RGB), size=shape), labels

    with loader.FolderSource(folder, batch_size=3, buckets=buckets, rank=0, world_size=1) as source:
        batches = loader.GenericIterator(
            source, graph, names=["images", "labels"],
            numbers=lambda draws: {"shape": shapes[buckets[draws.positions]]},
        )  # fmt: skip
        found = Counter(batch["images"].shape for batch in batches)
    assert found == {(3, 40, 30, 3): 2, (3, 30, 40, 3): 2}


def test_a_state_of_other_buckets_or_batches_is_refused(folder: loader.Folder) -> None:
    _, state = read(folder, ranks=1, stop=2)
    for change in ({"buckets": BUCKETS[::-1].copy()}, {"buckets": None}, {"batch_size": 5}):
        with pytest.raises(loader.StateError, match="global batches of 6, with buckets of the digest"):
            read(folder, ranks=1, state=state, **change)
    with pytest.raises(loader.StateError, match="sampling='shuffled'"):
        read(folder, ranks=1, state=read(folder, ranks=1, stop=2, buckets=None)[1])


def test_a_history_needs_the_buckets(folder: loader.Folder) -> None:
    batches, state = read(folder, ranks=1)
    history = loader.History(folder, state, buckets=BUCKETS)
    assert [one.positions.tolist() for one in history.replay(0, range(99))] == batches
    position = batches[4][2]
    assert [(one.epoch, one.step) for one in history.seen(position)] == [(0, 4)]
    with pytest.raises(loader.OptionError, match=r"Use loader\.History\(split, state, buckets="):
        loader.History(folder, state)
    with pytest.raises(loader.StateError, match="of the digest"):
        loader.History(folder, state, buckets=BUCKETS[::-1].copy())


@pytest.mark.parametrize(("options", "found"), [
    ({"buckets": [0] * 49}, r"one whole number for each of 50 images\. Found: int64 \(49,\)"),
    ({"buckets": [0.5] * 50}, r"Found: float64 \(50,\)"),
    ({"buckets": [2**40] * 50}, "buckets of 32 bits"),
    ({"buckets": [0] * 45 + [7] * 5}, "at least 6 images, a batch of all ranks, in each bucket. Found: 5 in bucket 7"),
    ({"sampling": "balanced"}, "buckets without sampling and class_weights"),
    ({"class_weights": {0: 2}}, "buckets without sampling and class_weights"),
    ({"shuffle": False}, "with shuffle=True"),
    ({"in_order": False}, "in_order=True with buckets"),
])  # fmt: skip
def test_buckets_that_do_not_fit_are_refused(folder: loader.Folder, options: dict[str, Any], found: str) -> None:
    with pytest.raises(loader.OptionError, match=found):
        loader.FolderSource(folder, **({"batch_size": 6, "buckets": BUCKETS} | options))


def test_images_belong_to_the_nearest_shape() -> None:
    sides = [(100, 100), (300, 400), (640, 480), (90, 100), (5000, 10), (86, 100), (87, 100)]
    assert loader.aspect_buckets(*zip(*sides, strict=True)).tolist() == [1, 0, 2, 1, 2, 0, 1]
    assert loader.aspect_buckets([100, 300], [100, 100], ratios=(1, 2, 4)).tolist() == [0, 2]
    for widths, heights, options, found in (
        ([1, 2], [1], {}, "a width and a height of each image"),
        ([1, 0], [1, 1], {}, "above 0. Found: others"),
        ([1], [1], {"ratios": (0.0,)}, "ratios above 0"),
        ([1], [1], {"ratios": 1.0}, "ratios as a list"),
        ([float("nan")], [1], {}, "above 0. Found: others"),
        (["a"], ["b"], {}, "as numbers. Found: "),
    ):
        with pytest.raises(loader.OptionError, match=found):
            loader.aspect_buckets(widths, heights, **options)  # type: ignore[arg-type]
