"""A split by index: torch's samplers choose, batches are read concurrently, and nothing is missing."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import loader
from tests.support.pictures import SHADES, picture
from tests.support.split_folders import image_ids, write_split_folder

if TYPE_CHECKING:  # torch takes seconds to import
    from torch.utils.data import DataLoader

COUNT = 23
NO_PICTURE = "c2/broken.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    root = tmp_path_factory.mktemp("tree")
    for number in range(COUNT):
        path = root / f"c{number % 3}" / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture(number % 3))
    return loader.open_folder(root)


def small(image: Any) -> Any:
    import torch

    return torch.tensor(image.getpixel((0, 0)))


def batches_of(dataset: Any, **options: Any) -> "DataLoader[Any]":
    from torch.utils.data import DataLoader

    return DataLoader(dataset, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_each_image_once_with_its_label(folder: loader.Folder, workers: int) -> None:
    import torch

    with loader.ImageDataset(folder, small) as dataset:
        assert len(dataset) == COUNT
        assert dataset.classes == ["c0", "c1", "c2"]
        image, label = dataset[-1]  # connects before workers are forked
        assert (image.tolist(), label) == ([SHADES * 2] * 3, 2)
        batches = list(batches_of(dataset, batch_size=5, num_workers=workers))
        again = list(batches_of(dataset, batch_size=5, num_workers=workers, shuffle=True))
        assert [len(labels) for _, labels in batches] == [5, 5, 5, 5, 3]
        for images, labels in batches + again:
            assert images.tolist() == [[SHADES * label] * 3 for label in labels.tolist()]
        assert torch.cat([labels for _, labels in batches]).tolist() == dataset.targets.tolist()
        assert sorted(torch.cat([labels for _, labels in again]).tolist()) == sorted(dataset.targets.tolist())
        copied = pickle.loads(pickle.dumps(dataset))
        kept = batches_of(dataset, batch_size=5, num_workers=workers, persistent_workers=workers > 0)
        list(kept)
    for closed in (kept, batches_of(pickle.loads(pickle.dumps(dataset)), batch_size=5, num_workers=workers)):
        with pytest.raises(loader.ClosedError):
            list(closed)
    assert copied[3][1] == dataset.targets[3]
    copied.close()
    for closed in (dataset, copied):
        with pytest.raises(loader.ClosedError):
            closed[0]


def test_transforms_are_optional_and_indices_are_checked(folder: loader.Folder) -> None:
    with loader.ImageDataset(folder, target_transform=lambda label: -label) as dataset:
        image, label = dataset[5]
        assert (image.mode, label) == ("RGB", -dataset.targets[5])
        assert dataset.__getitems__([]) == []
        assert [label for _, label in dataset.__getitems__([9, 9])] == [-dataset.targets[9]] * 2
        for index in (COUNT, -COUNT - 1):
            with pytest.raises(IndexError, match=f"from -23 to 22. Found: {index}"):
                dataset[index]


def test_images_that_are_missing_or_no_pictures_are_named(tmp_path: Path) -> None:
    for name in ("c0/1.png", "c1/2.png", NO_PICTURE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"none" if name == NO_PICTURE else picture(1))
    folder = loader.open_folder(tmp_path)
    whole, gone, broken = (list(folder.paths).index(name) for name in (b"c0/1.png", b"c1/2.png", NO_PICTURE.encode()))
    (tmp_path / "c1/2.png").unlink()
    with loader.ImageDataset(folder) as dataset:
        assert dataset[whole][1] == 0
        with pytest.raises(loader.MissingImageError, match=r"c1/2\.png"):
            dataset.__getitems__([whole, gone])
        with pytest.raises(
            loader.DecodeError, match=rf"{NO_PICTURE} .*Found: 4 bytes .* Leave it out with torch\.utils\.data\.Subset"
        ):
            dataset[broken]


def test_invalid_options_are_refused(folder: loader.Folder, tmp_path: Path) -> None:
    split = loader.open_split(write_split_folder(tmp_path, [(image_ids(3), [0, 1, 2])]))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("splits/digits", {}, r"a split from loader\.open_split, or a folder\. Found: 'splits/digits'"),
        (split, {}, "No Cassandra is configured"),
        (folder, {"hosts": "127.0.0.1"}, "no hosts: the images are read from"),
        (split, {"hosts": "db", "transform": 5}, r"transform as a function\. Found: 5"),
        (split, {"hosts": "db", "timeout": 0}, "timeout"),
        (split, {"hosts": "db", "port": 0}, "port"),
    ]
    for place, options, message in cases:
        with pytest.raises(loader.OptionError, match=message):
            loader.ImageDataset(place, **options)
    made = loader.ImageDataset(split, hosts="db", username="u", password="pst")
    assert "hosts=['db']" in repr(made)
    assert "pst" not in repr(made) + repr(vars(made))
