"""Sources whose epochs are shared by classes: of class folders, split folders and rows in memory."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader.order.sampling import sampling_of
from loader.sources import classes_of_split
from tests.support.pictures import texture
from tests.support.split_folders import image_ids, write_split_folder

COUNTS = {"ant": 30, "bee": 9, "cat": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    tree = tmp_path_factory.mktemp("tree")
    for name, count in COUNTS.items():
        (tree / name).mkdir()
        for number in range(count):
            (tree / name / f"{number}.png").write_bytes(texture(number, width=8, height=8))
    return loader.open_folder(tree)


def names(folder: loader.Folder, positions: list[int]) -> dict[str, int]:
    return dict(Counter(folder.class_names[int(folder.labels[position])] for position in positions))  # type: ignore[index]


def flat(batches: list[list[int]]) -> list[int]:
    return [position for batch in batches for position in batch]


def epochs(folder: loader.Folder, ranks: int, *, size: int = 10, **options: Any) -> list[list[int]]:
    """The positions of all global batches of epoch 1."""
    found: dict[int, list[int]] = {}
    for rank in range(ranks):
        with loader.FolderSource(folder, batch_size=size // ranks, rank=rank, world_size=ranks, **options) as source:
            for batch in source.epoch(1):
                found.setdefault(batch.step, []).extend(batch.positions.tolist())
                assert batch.labels.tolist() == [int(folder.labels[one]) for one in batch.positions.tolist()]
    return [found[step] for step in sorted(found)]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"sampling": "stratified"}, COUNTS),
        ({"sampling": "balanced"}, {"ant": 14, "bee": 14, "cat": 13}),
        ({"class_weights": {"ant": 2, "cat": 0}}, {"ant": 27, "bee": 14}),
        ({"sampling": "balanced", "class_weights": {0: 2.0, 2: 0.0}}, {"ant": 27, "bee": 14}),
    ],
)
def test_classes_have_their_shares_of_an_epoch_on_any_number_of_ranks(
    folder: loader.Folder, options: Mapping[str, Any], counts: dict[str, int], in_order: bool
) -> None:
    of_one, of_two = (epochs(folder, ranks, in_order=in_order, **options) for ranks in (1, 2))
    assert names(folder, flat(of_one)) == counts
    assert sorted(flat(of_two)) == sorted(flat(of_one))
    if not in_order:  # a batch has what has arrived
        return
    assert [sorted(batch) for batch in of_two] == [sorted(batch) for batch in of_one]
    for batch in of_one:
        for name, count in counts.items():
            assert abs(names(folder, batch).get(name, 0) - count * len(batch) / 41) < 1


def test_a_state_and_a_pickled_source_keep_the_sampling(folder: loader.Folder) -> None:
    whole = flat(epochs(folder, 1, sampling="balanced"))
    with loader.FolderSource(folder, batch_size=10, sampling="balanced") as source:
        state = json.loads(json.dumps(source.plan.after(1, steps=2).to_dict()))
        with source.again(batch_size=7) as other:
            other.load_state_dict(state)
            assert other.plan.sampling.batch == 10  # type: ignore[attr-defined]
            rest = [position for batch in other.epoch(1) for position in batch.positions.tolist()]
    assert rest == whole[20:]
    with (
        loader.FolderSource(folder, batch_size=10) as shuffled,
        pytest.raises(loader.StateError, match=r"sampling='shuffled', class_weights=None. Found: sampling='balanced'"),
    ):
        shuffled.load_state_dict(state)


def test_a_split_folder_knows_its_classes_from_the_cache(tmp_path: Path) -> None:
    labels = [7 * (number % 3 > 0) for number in range(50)]
    written = write_split_folder(tmp_path / "split", [(image_ids(50), labels)])
    split = loader.open_split(written, cache=tmp_path / "cache")
    for _ in range(2):
        classes = classes_of_split(split)
        assert classes.numbers.tolist() == [0, 7]
        assert classes.starts.tolist() == [0, 17, 50]
        assert classes.positions.tolist() == sorted(range(50), key=lambda position: (labels[position], position))
        assert isinstance(classes.positions, np.memmap)


@pytest.mark.parametrize("counts", [{0: 16, 7: 34}, {0: 17, 7: 32}, {0: 17, 6: 33}])
def test_a_manifest_with_other_counts_than_the_labels_is_named(tmp_path: Path, counts: dict[int, int]) -> None:
    written = write_split_folder(tmp_path / "split", [(image_ids(50), [7 * (n % 3 > 0) for n in range(50)])])
    manifest = written / "_manifest.json"
    found = json.loads(manifest.read_text())
    found["splits"][0]["counts"] = {str(number): count for number, count in counts.items()}
    manifest.write_text(json.dumps(found))
    split = loader.open_split(written, cache=tmp_path / "cache")
    with pytest.raises(loader.SplitError, match="other numbers of images by class than its manifest has"):
        classes_of_split(split)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "random"}, "sampling as one of .*Found: 'random'"),
        ({"sampling": "stratified", "class_weights": {0: 1}}, 'sampling="balanced" with class_weights'),
        ({"sampling": "balanced", "shuffle": False}, "shuffle=True with sampling='balanced'.*Found: shuffle=False"),
        ({"class_weights": {"dog": 1}}, r"classes with images in .*: 0 \(ant\), 1 \(bee\), 2 \(cat\). Found: 'dog'"),
        ({"class_weights": {3: 1}}, "Found: 3"),
        ({"class_weights": {True: 1}}, "Found: True"),
        ({"class_weights": {"ant": 10**400}}, "class_weights as finite numbers of at least 0. Found: 1000"),
        ({"class_weights": {"ant": -1}}, "class_weights as finite numbers of at least 0. Found: -1 of class 'ant'"),
        ({"class_weights": {"ant": float("nan")}}, "Found: nan of class 'ant'"),
        ({"class_weights": {"ant": "2"}}, "Found: '2' of class 'ant'"),
        ({"class_weights": {"ant": 0, "bee": 0, "cat": 0}}, "a class with a weight above 0. Found: none"),
        ({"class_weights": {"ant": 1, 0: 2}}, "Found: two for class 0, by number and by name"),
        ({"class_weights": [1, 2, 3]}, r"numbers by class. Found: \[1, 2, 3\]"),
    ],
)
def test_samplings_that_are_not_possible_are_refused(
    folder: loader.Folder, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(loader.OptionError, match=message):
        loader.FolderSource(folder, batch_size=4, **options)


def test_a_split_without_class_numbers_is_refused(tmp_path: Path) -> None:
    written = write_split_folder(tmp_path / "split", [(image_ids(3), [-1] * 3)], label_type="none")
    split = loader.open_split(written, cache=tmp_path / "cache")
    with pytest.raises(loader.OptionError, match=r"a split with class numbers, .*with labels of type 'none'"):
        sampling_of(split, sampling="balanced", class_weights=None, shuffle=True, batch=1)
