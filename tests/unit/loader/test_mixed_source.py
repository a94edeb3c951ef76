"""Several splits as one: each has its share of every batch and epoch, on any ranks and after any resume."""

import pickle
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader
from loader.order.strata import dues_of
from tests.support.pictures import picture
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.trees import plant, touch

SIZES = {"large": 60, "small": 8, "tiny": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, loader.Folder]:
    root = tmp_path_factory.mktemp("folders")
    files = {
        name: {f"{'ab'[number % min(2, size)]}/{name}{number}.png": name.encode() for number in range(size)}
        for name, size in SIZES.items()
    }
    return {name: loader.open_folder(plant(root / name, of_part)) for name, of_part in files.items()}


@pytest.fixture(scope="module")
def mixture(folders: dict[str, loader.Folder]) -> loader.Mixture:
    return loader.mix_splits(folders)


def read(
    mixture: loader.Mixture,
    *,
    epochs: int = 1,
    ranks: int = 1,
    state: Any = None,
    stop: int | None = None,
    **options: Any,
) -> tuple[list[list[list[int]]], Any]:
    """The positions of the global batches by epoch, without repeats; and the state after ``stop`` batches."""
    by_step: dict[tuple[int, int], list[int]] = {}
    for rank in range(ranks):
        with loader.MixedSource(mixture, rank=rank, world_size=ranks, **({"batch_size": 6} | options)) as source:
            if state is not None:
                source.load_state_dict(state)
            for epoch in range(source.first_epoch, epochs):
                for batch in islice(source.epoch(epoch), stop):
                    fresh = batch.positions[: len(batch) - batch.repeats].tolist()
                    by_step.setdefault((batch.epoch, batch.step), []).extend(fresh)
                    for image, part in zip(batch.images, mixture.part_numbers(batch.positions), strict=True):
                        assert image == mixture.names[part].encode()
                    assert batch.ids.tolist() == mixture.ids[batch.positions].tolist()
                    assert mixture.labels is not None
                    assert batch.labels.tolist() == mixture.labels[batch.positions].tolist()
            reached = source.state_dict()
    found: dict[int, list[list[int]]] = {}
    for (epoch, _), positions in sorted(by_step.items()):
        found.setdefault(epoch, []).append(positions)
    return list(found.values()), reached


@settings(max_examples=40, deadline=None)
@given(
    st.none() | st.fixed_dictionaries(dict.fromkeys(SIZES, st.integers(0, 5))).filter(lambda one: any(one.values())),
    st.integers(1, 3), st.integers(1, 9), st.integers(0, 99),
)  # fmt: skip
def test_each_split_has_exactly_its_share_of_every_batch_and_epoch(
    mixture: loader.Mixture, shares: dict[str, int] | None, ranks: int, batch_size: int, seed: int
) -> None:
    epochs, _ = read(mixture, epochs=4, ranks=ranks, batch_size=batch_size, shares=shares, seed=seed)
    rows = len(mixture)
    dues = dues_of(rows, {number: (shares or SIZES)[name] for number, name in enumerate(SIZES)})
    came: Counter[int] = Counter()
    for batches in epochs:
        whole = [position for batch in batches for position in batch]
        came.update(whole)
        counts = Counter(mixture.part_numbers(np.array(whole)).tolist())
        assert counts == {number: due for number, due in dues.items() if due}
        for batch in batches:
            found = Counter(mixture.part_numbers(np.array(batch)).tolist())
            for number, due in dues.items():
                assert abs(found[number] - due * len(batch) / rows) < 1
        for number, (start, end) in enumerate(zip(mixture.starts[:-1], mixture.starts[1:], strict=True)):
            times = [whole.count(position) for position in range(start, end)]
            assert max(times) - min(times) <= 1
            assert sum(times) == dues.get(number, 0)
    for start, end in zip(mixture.starts[:-1], mixture.starts[1:], strict=True):
        times = [came[position] for position in range(start, end)]
        assert max(times) - min(times) <= 1  # also over epochs


@pytest.mark.parametrize("shares", [None, {"large": 1, "small": 2, "tiny": 0.5}])
@pytest.mark.parametrize("stop", [0, 3, 11])
def test_an_epoch_goes_on_from_a_state_on_other_ranks(
    mixture: loader.Mixture, shares: dict[str, float] | None, stop: int
) -> None:
    whole, _ = read(mixture, shares=shares)
    first, state = read(mixture, shares=shares, stop=stop)
    rest, _ = read(mixture, shares=shares, ranks=2, batch_size=2, state=state)
    order = [position for batch in whole[0] for position in batch]
    begun = [position for epoch in first for batch in epoch for position in batch]
    left = [position for epoch in rest for batch in epoch for position in batch]
    assert begun == order[: len(begun)]
    assert Counter(begun + left) == Counter(order)


def test_without_shuffling_splits_come_one_after_another(mixture: loader.Mixture) -> None:
    (batches,), _ = read(mixture, shuffle=False)
    assert [position for batch in batches for position in batch] == list(range(len(mixture)))


def test_a_state_of_other_shares_or_splits_is_refused(
    mixture: loader.Mixture, folders: dict[str, loader.Folder]
) -> None:
    _, state = read(mixture, shares={"large": 1, "small": 2, "tiny": 1}, stop=2)
    with pytest.raises(loader.StateError, match=r"shares=None\. Found: shares=\[1\.0, 2\.0, 1\.0\]"):
        read(mixture, state=state)
    others = {name: folders[name] for name in ("small", "large", "tiny")}  # positions would be those of another split
    with pytest.raises(loader.StateError, match="a state of this split: fingerprint"):
        read(loader.mix_splits(others), state=state)


def test_a_history_knows_the_batches_of_a_mixture(mixture: loader.Mixture) -> None:
    shares = {"large": 1, "small": 1, "tiny": 1}
    batches, state = read(mixture, shares=shares)
    history = loader.History(mixture, state)
    assert [one.positions.tolist() for one in history.replay(0, range(99))] == batches[0]
    tiny = int(mixture.starts[2])
    assert len(history.seen(tiny)) == len({step for step, batch in enumerate(batches[0]) if tiny in batch})
    assert history.seen(str(_uuid(mixture, tiny))) == history.seen(tiny)


def _uuid(split: loader.Split, position: int) -> Any:
    from uuid import UUID

    return UUID(bytes=split.ids[position].tobytes())


@pytest.mark.parametrize("workers", [0, 2])
def test_all_adapters_read_a_mixture(tmp_path: Path, workers: int) -> None:
    from torch.utils.data import DataLoader

    trees = {name: plant(tmp_path / name, {f"{label}/{name}.png": picture(label) for label in (0, 4)}) for name in "ab"}
    mixture = loader.mix_splits({name: loader.open_folder(tree) for name, tree in trees.items()})
    with loader.MixedSource(mixture, batch_size=3, shares={"a": 2, "b": 1}, rank=0, world_size=1) as source:
        wanted = [batch.positions.tolist() for batch in source.epoch(0)]
        again = pickle.loads(pickle.dumps(source))
        assert [batch.positions.tolist() for batch in again.epoch(0)] == wanted
        batches = DataLoader(loader.TorchDataset(source.again()), batch_size=None, num_workers=workers)
        assert [batch.positions.tolist() for batch in batches] == wanted
        decoded = list(loader.ClassificationIterator(source.again(), size=8, train=False))
        assert sum(len(labels) for _, labels in decoded) == 4
    dataset = loader.ImageDataset(mixture, transform=np.asarray)
    assert [dataset[position][1] for position in range(4)] == mixture.labels.tolist()  # type: ignore[union-attr]
    assert mixture.show([0, 3]).size[0] > 200
    assert mixture.to_arrow()["position"].to_pylist() == [0, 1, 2, 3]
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_bytes(b"weights")
    record = Path(loader.record_model(checkpoint, training=mixture)).read_text()
    assert all(str(tree) in record for tree in trees.values())


def no_labels(tmp_path: Path) -> loader.Split:
    folder = write_split_folder(tmp_path / "blobs", [(image_ids(3, first=1), [0, 1, 1])], label_type="blob")
    return loader.open_split(folder, index=0, cache=tmp_path / "cache")


def other_names(tmp_path: Path) -> loader.Split:
    return loader.open_folder(touch(tmp_path / "names", "b/1.png", "c/2.png"))


@pytest.mark.parametrize(("more", "found"), [
    (lambda _: {}, r"splits by name, such as .*Found: \{\}"),
    (lambda _: None, "splits by name, such as .*Found: None"),
    (lambda _: {"a": 5}, "a as a split or class folders, such as .* Found: 5"),
    (no_labels, "labels of one type, in the split or in the table. Found: a: int; b: blob, from the table"),
    (lambda _: {"": 5}, "splits by name"),
    (other_names, "the same classes in all splits. Found: class 0 is 'a' in a and 'b' in b"),
], ids=["none", "no mapping", "no split", "labels", "no name", "names"])  # fmt: skip
def test_splits_that_do_not_fit_are_refused(
    tmp_path: Path, folders: dict[str, loader.Folder], more: Callable[[Path], Any], found: str
) -> None:
    given = more(tmp_path)
    splits = {"a": folders["large"], "b": given} if isinstance(given, loader.Split) else given
    with pytest.raises((loader.OptionError, loader.SplitError), match=found):
        loader.mix_splits(splits)


@pytest.mark.parametrize(("options", "found"), [
    ({"shares": {"large": 1}}, r"shares of large, small, tiny\. Found: \['large'\]"),
    ({"shares": {"large": 1, "small": 1, "tiny": -1}}, "shares as finite numbers of at least 0. Found: -1 of tiny"),
    ({"shares": {"large": 0, "small": 0, "tiny": 0}}, "a share above 0. Found: none"),
    ({"shares": {"large": True, "small": 0, "tiny": 0}}, "numbers of at least 0. Found: True of large"),
    ({"shares": dict.fromkeys(SIZES, 1), "shuffle": False}, "shuffle=True with shares"),
    ({"shares": {"large": 10**400, "small": 1, "tiny": 1}}, "shares as finite numbers of at least 0"),
    ({"shares": {"large": 1000, "small": 1000, "tiny": 1}}, "place in an epoch of 69, or 0. Found: none for 'tiny'"),
    ({"hosts": ["127.0.0.1"]}, "no hosts: the images are read from"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(mixture: loader.Mixture, options: dict[str, Any], found: str) -> None:
    with pytest.raises(loader.OptionError, match=found):
        loader.MixedSource(mixture, batch_size=2, **options)


def test_a_mixture_is_no_split_of_a_table(mixture: loader.Mixture) -> None:
    with pytest.raises(
        loader.OptionError, match=r"a split from loader\.open_split\. Found: Mixture\(69 images: large: 60"
    ):
        loader.CassandraSource(mixture, hosts=["127.0.0.1"], batch_size=2)
    with pytest.raises(loader.OptionError, match=r"the metadata of one split\. Found: a mixture"):
        mixture.to_arrow(metadata=True, hosts=["127.0.0.1"])
    with pytest.raises(loader.OptionError, match=r"a mixture from loader\.mix_splits\. Found: Folder"):
        loader.MixedSource(mixture.parts["tiny"], batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(loader.OptionError, match=r"such as a part of a mixture\. Found: Mixture"):
        loader.mix_splits({"nested": mixture})
    with pytest.raises(TypeError, match="unexpected keyword argument 'sampling'"):
        loader.MixedSource(mixture, batch_size=2, sampling="balanced")  # type: ignore[call-arg]


def test_ids_are_those_of_the_splits(mixture: loader.Mixture) -> None:
    whole = np.concatenate([part.ids for part in mixture.parts.values()])
    assert isinstance(mixture.ids, np.ndarray)
    assert (mixture.ids == whole).all()
    with pytest.raises(loader.OptionError, match="positions from 0 to 68"):
        mixture.part_numbers(np.array([69]))


def test_a_source_keeps_the_shares_that_it_was_given(mixture: loader.Mixture) -> None:
    shares = {"large": 1, "small": 1, "tiny": 1}
    with loader.MixedSource(mixture, shares=shares, batch_size=6, rank=0, world_size=1) as source:
        shares["large"] = 5  # for the next source
        wanted = [batch.positions.tolist() for batch in source.epoch(0)]
        for again in (source.again(), pickle.loads(pickle.dumps(source))):
            assert [batch.positions.tolist() for batch in again.epoch(0)] == wanted


@pytest.mark.parametrize("policy", ["PARTIAL", "FILL"])
def test_out_of_order_an_epoch_has_the_same_images(mixture: loader.Mixture, policy: str) -> None:
    shares = {"large": 2, "small": 1, "tiny": 1}
    (whole,), _ = read(mixture, shares=shares)
    (found,), _ = read(mixture, shares=shares, in_order=False, last_batch_policy=policy)
    assert Counter(one for batch in found for one in batch) == Counter(one for batch in whole for one in batch)


def test_an_image_of_two_splits_is_found_in_both(folders: dict[str, loader.Folder]) -> None:
    twice = loader.mix_splits({"first": folders["small"], "second": folders["small"]})
    shares = {"first": 0, "second": 1}
    with loader.MixedSource(twice, shares=shares, batch_size=6, rank=0, world_size=1) as source:
        batch = next(epoch := source.epoch(0))
        history = loader.History(twice, source.state_dict())
        del epoch
    image, position = _uuid(twice, int(batch.positions[0])), int(batch.positions[0])
    assert history.seen(image) == history.seen(position) != []


def test_a_folder_names_the_file_that_is_no_picture(tmp_path: Path) -> None:
    trees = {name: plant(tmp_path / name, {f"c/{name}.png": data}) for name, data in (("a", picture(0)), ("b", b"no"))}
    mixture = loader.mix_splits({name: loader.open_folder(tree) for name, tree in trees.items()})
    with (
        loader.MixedSource(mixture, batch_size=2, rank=0, world_size=1) as source,
        pytest.raises(loader.DecodeError, match=rf"from the file {trees['b']}/c/b\.png"),
    ):
        list(loader.ClassificationIterator(source, size=8, train=True))
