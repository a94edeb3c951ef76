"""Trees of class folders as splits, and the source that reads their files."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader
from formats.hashing import xxhash64
from schemas import image_id
from tests.support.pictures import SHADES, picture
from tests.support.split_folders import packed, write_split_folder

NAMES = [
    f"{label}/{'deeper/' if number % 3 == 0 else ''}{number:03}.png" for number in range(43) for label in [number % 4]
]


def write_tree(root: Path) -> Path:
    for name in NAMES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(int(name[0])))
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    return loader.open_folder(write_tree(tmp_path_factory.mktemp("tree")))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = write_tree(tmp_path / "train")
    for name in ("0/.hidden.png", "1/notes.txt", "loose.png", ".git/x.png"):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no picture")
    return root


def test_a_tree_equals_the_split_of_its_ingested_tables(tree: Path, tmp_path: Path) -> None:
    folder = loader.open_folder(tree, dataset="pictures", or_split="train", seed=7)
    ids = [image_id("pictures", b"train", name.encode()) for name in NAMES]
    hashes = xxhash64([packed(ids)], seed=int(xxhash64([np.array([7], dtype=np.int64)])[0]))
    order = [number for _, _, number in sorted(zip(hashes.tolist(), ids, range(len(ids)), strict=True))]
    assert folder.paths == [NAMES[number].encode() for number in order]
    assert folder.ids.tolist() == packed([ids[number] for number in order]).tolist()
    assert folder.labels is not None
    assert folder.labels.tolist() == [int(NAMES[number][0]) for number in order]
    rows = [ids[number] for number in order], folder.labels.tolist()
    split = loader.open_split(write_split_folder(tmp_path / "split", [rows], seed=7), cache=tmp_path / "cache")
    assert folder.fingerprint == split.fingerprint
    assert (folder.class_names, folder.num_classes) == ({0: "0", 1: "1", 2: "2", 3: "3"}, 4)
    assert folder.counts == {0: 11, 1: 11, 2: 11, 3: 10}
    assert repr(folder) == f"Folder({str(tree)!r}: 43 images of 4 classes)"


@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 2}, {"in_order": False}])
def test_files_are_delivered_like_rows(tree: Path, options: dict[str, object]) -> None:
    folder = loader.open_folder(tree)
    with loader.FolderSource(folder, batch_size=4, **options) as source:  # type: ignore[arg-type]
        for epoch in range(2):
            found = list(source.epoch(epoch))
            assert sum(map(len, found)) == source.samples
            for batch in found:
                for image, label, one, position in zip(
                    batch.images, batch.labels, batch.ids, batch.positions, strict=True
                ):
                    assert image == (tree / folder.paths[position].decode()).read_bytes()
                    assert (label, one.tolist()) == (folder.labels[position], folder.ids[position].tolist())  # type: ignore[index]
        assert source.stats().images == 2 * source.samples
        assert source.stats().connections == 0


@settings(max_examples=30)
@given(data=st.data())
def test_files_resume_at_the_next_sample(folder: loader.Folder, data: st.DataObject) -> None:
    steps, worlds = data.draw(st.integers(0, 3)), data.draw(st.tuples(st.integers(1, 3), st.integers(1, 4)))
    delivered, states = [], []
    for rank in range(worlds[0]):
        with loader.FolderSource(folder, batch_size=3, rank=rank, world_size=worlds[0]) as source:
            batches = source.epoch(5)
            source.note(5, 0)
            delivered += [int(one) for _ in range(steps) for one in next(batches).positions]
            states.append(source.state_dict())
    assert all(state == states[0] for state in states)
    for rank in range(worlds[1]):
        with loader.FolderSource(folder, batch_size=2, rank=rank, world_size=worlds[1]) as source:
            source.load_state_dict(states[0])
            delivered += [int(one) for batch in source.epoch(5) for one in batch.positions]
    assert sorted(delivered) == list(range(len(folder)))


def test_dali_and_torch_read_folder_sources(tree: Path) -> None:
    from torch.utils.data import DataLoader

    from tests.support.transforms import small

    with loader.FolderSource(loader.open_folder(tree), batch_size=8, seed=3) as source:
        wanted = [batch.labels.tolist() for batch in source.epoch(0)]
        batches = loader.ClassificationIterator(source, size=2, train=False, mean=(0, 0, 0), std=(1, 1, 1))
        for (images, labels), same in zip(batches, wanted, strict=True):
            assert labels.tolist() == same
            assert np.allclose(images[:, 0, 0, 0] * 255, labels * SHADES, atol=1)
        dataset = loader.TorchDataset(source.again(), transform=small)
        found = list(DataLoader(dataset, batch_size=None, num_workers=2))
        assert [labels.tolist() for _, labels in found] == wanted
        same = pickle.loads(pickle.dumps(source))
        assert [batch.labels.tolist() for batch in same.epoch(0)] == wanted
        same.close()


def test_a_deleted_file_is_named_or_skipped(tree: Path) -> None:
    folder = loader.open_folder(tree)
    (tree / folder.paths[5].decode()).unlink()
    (tree / folder.paths[12].decode()).unlink()
    (tree / folder.paths[12].decode()).mkdir()
    with (
        loader.FolderSource(folder, batch_size=5, shuffle=False) as source,
        pytest.raises(loader.MissingImageError, match=rf"{folder.paths[5].decode()}\. Found: no such file"),
    ):
        list(source.epoch(0))
    with (
        loader.FolderSource(
            folder, batch_size=5, shuffle=False, on_missing="skip", max_missing=0.1, timeout=0.5
        ) as source,
        pytest.raises(loader.UnreachableError, match=rf"{folder.paths[12].decode()} within 0.5 s\. Found: Is a direc"),
    ):
        list(source.epoch(0))
    assert [skipped.position for skipped in source.skipped] == [5]
    (tree / folder.paths[2].decode()).write_bytes(b"")
    with (
        loader.FolderSource(folder, batch_size=5, shuffle=False) as source,
        pytest.raises(loader.MissingImageError, match=rf"{folder.paths[2].decode()}\. Found: an empty file"),
    ):
        list(source.epoch(0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("gone", "class folders at .*gone. Found: No such file or directory"),
        ("empty", "a folder for every class in .*empty. Found: no folders there"),
        ("train", "an image in each class folder of .*train. Found: none in 9"),
    ],
)
def test_a_place_that_is_not_a_tree_is_refused(tree: Path, tmp_path: Path, wrong: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tree / "9").mkdir()
    with pytest.raises(loader.SplitError, match=message):
        loader.open_folder(tmp_path / wrong)


def test_a_tree_whose_classes_are_deeper_is_refused_with_the_likely_readings(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outer" / "more").mkdir(parents=True)
    tree.rename(tmp_path / "outer" / "train")
    with pytest.raises(
        loader.SplitError, match=r"1 class, 44 images, but all images are in .* one folder, train"
    ) as caught:
        loader.open_folder(tmp_path / "outer")
    folder = tmp_path / "outer" / "train"
    assert f"loader.open_folder('{folder}', or_split='train'): 4 classes, 43 images" in str(caught.value)
    assert loader.open_folder(folder, or_split="train").num_classes == 4
    shutil.rmtree(tmp_path / "outer" / "more")
    assert loader.open_folder(tmp_path / "outer", class_level="top").num_classes == 1
    with pytest.raises(loader.OptionError, match="class_level as one of"):
        loader.open_folder(folder, class_level="train")  # type: ignore[arg-type]


def test_sources_accept_only_their_own_kind_of_split(tree: Path, tmp_path: Path) -> None:
    folder = loader.open_folder(tree)
    with pytest.raises(loader.OptionError, match=r"a split from loader\.open_split\. Found: Folder"):
        loader.CassandraSource(folder, hosts="127.0.0.1", batch_size=4)
    with pytest.raises(loader.OptionError, match=r"a folder from loader\.open_folder\. Found: 'train'"):
        loader.FolderSource("train", batch_size=4)  # type: ignore[arg-type]
    with pytest.raises(loader.OptionError, match="dataset and or_split as names"):
        loader.open_folder(tree, dataset=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("link", "to"), [("0/up", ".."), ("0/deeper/up", "../../1"), ("up", "."), ("0/self", "self")])
def test_a_link_to_a_folder_that_it_is_in_is_refused(tree: Path, link: str, to: str) -> None:
    (tree / "1" / "back").symlink_to(tree / "0")
    (tree / link).symlink_to(to)
    with pytest.raises(loader.SplitError) as caught:
        loader.open_folder(tree)
    assert str(caught.value).startswith(f"Wanted folders without a loop in {tree}. Found: {tree}/")
    assert str(caught.value).endswith(". Remove the link.")
    if link != "0/deeper/up":  # there, the loop has two links
        assert f"Found: {tree / link}, a link to " in str(caught.value)
    (tree / link).unlink()
    assert len(loader.open_folder(tree)) == len(NAMES) + 11  # other links are followed


@pytest.mark.parametrize("policy", ["PARTIAL", "FILL", "DROP"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("reader", ["dali", "torch", "workers"])
def test_undecodable_images_can_be_skipped(tree: Path, reader: str, batch_size: int, policy: Any) -> None:
    from torch.utils.data import DataLoader

    from tests.support.transforms import small

    folder = loader.open_folder(tree)
    bad = [5, 8, 9, 10, 11, 42]  # a batch of four among them, and the last
    for position in bad:
        (tree / folder.paths[position].decode()).write_bytes(b"no picture")
    with loader.FolderSource(folder, batch_size=batch_size, shuffle=False, last_batch_policy=policy) as source:
        if reader == "dali":
            batches: Any = loader.ClassificationIterator(source, size=2, train=False, on_undecodable="skip")
        else:
            dataset = loader.TorchDataset(source, transform=small, on_undecodable="skip")
            batches = DataLoader(dataset, batch_size=None, num_workers=2 if reader == "workers" else 0)
        found = [labels.tolist() for _, labels in batches]
        skipped = [one.position for one in source.skipped]
    assert folder.labels is not None
    good = [label for position, label in enumerate(folder.labels.tolist()) if position not in bad]
    if policy == "PARTIAL":
        numbers = [label for labels in found for label in labels]
        # If nothing of a batch is left, a worker returns its next batch instead.
        assert sorted(numbers) == sorted(good) if reader == "workers" else numbers == good
        return
    last = 40 if policy == "DROP" and batch_size == 4 else 44 if policy == "FILL" and batch_size == 4 else 43
    assert [len(labels) for labels in found] == [batch_size] * (last // batch_size)
    if reader != "workers":
        assert skipped == [one for one in bad if one < last]
        if batch_size == 4:  # padded by its own samples in turn, or by the first of the epoch
            assert found[1] == [int(folder.labels[position]) for position in (4, 6, 7, 4)]
            assert found[2] == [int(folder.labels[0])] * 4
    else:
        assert skipped == []  # recorded in the workers


def test_a_wrong_choice_for_undecodable_images_is_refused(tree: Path) -> None:
    source = loader.FolderSource(loader.open_folder(tree), batch_size=1)
    with pytest.raises(loader.OptionError, match=r"on_undecodable as one of .*Found: 'drop'"):
        loader.TorchDataset(source, on_undecodable="drop")  # type: ignore[arg-type]
