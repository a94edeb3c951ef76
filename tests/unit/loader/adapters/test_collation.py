"""Batches from torch's default collate function, and the hint if it fails."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import loader
from loader.shards import make_client
from tests.support.pictures import picture

CLASSES = ("cat", "dog")
COUNT = 8


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tree of class folders. Images are 40 pixels wide, and one is 41."""
    root = tmp_path_factory.mktemp("bucket")
    for number in range(COUNT):
        path = root / "tree" / CLASSES[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number % 2, width=40 + (number == 5), height=30))
    return root


def to_tensor(image: Image.Image) -> Any:
    import torch

    return torch.tensor(list(image.tobytes()), dtype=torch.uint8).reshape(image.height, image.width, 3)


def one_size(image: Image.Image) -> Any:
    return to_tensor(image.resize((8, 4)))


def datasets(bucket: Path, transform: Callable[[Any], Any] | None) -> dict[str, Any]:
    """Datasets of the tree with names, to be batched by a DataLoader."""
    pictures = loader.S3ImageFolder(bucket.name, "tree", transform, client=make_client(str(bucket.parent)))
    return {
        "ImageDataset": loader.ImageDataset(loader.open_folder(bucket / "tree"), transform),
        "S3ImageFolder": pictures,
        "S3ImageStream": pictures.stream(),
        "mapped": pictures.stream().map(lambda sample: (sample[0], sample[1])),
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["ImageDataset", "S3ImageFolder", "S3ImageStream", "mapped"])
def test_images_that_make_no_batch_are_answered_with_a_hint(bucket: Path, name: str, workers: int) -> None:
    from torch.utils.data import DataLoader

    hint = r"Use a transform that gives such tensors, .*, or give the DataLoader your own collate_fn"
    sizes = r"\(30, 4[01], 3\) and \(30, 4[01], 3\)"
    for transform, what in ((None, r"PIL\.\w+\.\w+"), (to_tensor, sizes))[: 2 - workers // 2]:
        batches = DataLoader(datasets(bucket, transform)[name], batch_size=COUNT, num_workers=workers)
        with pytest.raises(loader.OptionError, match=rf"Wanted tensors of one size .*Found: {what}\. {hint}"):
            list(batches)


@pytest.mark.parametrize("name", ["ImageDataset", "S3ImageFolder", "S3ImageStream", "mapped"])
def test_images_of_one_size_make_tensors_and_other_collate_functions_get_the_samples(bucket: Path, name: str) -> None:
    import torch
    from torch.utils.data import DataLoader

    (batch,) = DataLoader(datasets(bucket, one_size)[name], batch_size=COUNT)
    images, labels = batch
    assert (images.shape, images.dtype, sorted(labels.tolist())) == ((COUNT, 4, 8, 3), torch.uint8, [0] * 4 + [1] * 4)
    (samples,) = DataLoader(datasets(bucket, None)[name], batch_size=COUNT, collate_fn=list)
    assert len(samples) == COUNT
    assert all(isinstance(image, Image.Image) and label in (0, 1) for image, label in samples)


def test_a_torch_dataset_answers_with_the_same_hint(bucket: Path) -> None:
    from torch.utils.data import DataLoader

    for transform, what in (((lambda image: image), r"PIL\.\w+\.\w+"), (to_tensor, r"\(30, 4[01], 3\) and")):
        with loader.FolderSource(loader.open_folder(bucket / "tree"), batch_size=COUNT) as source:
            dataset = loader.TorchDataset(source, transform=transform)
            with pytest.raises(loader.OptionError, match=rf"Found: {what}.* or no transform: then you get Batch"):
                next(iter(DataLoader(dataset, batch_size=None)))


def test_other_errors_of_torch_stay_as_they_are(bucket: Path) -> None:
    from torch.utils.data import DataLoader

    class Refusing(io.BytesIO):
        """A value that torch cannot collate, although its shape is always the same."""

        shape = (3, 4)

    dataset = loader.ImageDataset(loader.open_folder(bucket / "tree"), lambda _: Refusing())
    with pytest.raises(TypeError, match=r"default_collate: .*Refusing"):
        list(DataLoader(dataset, batch_size=COUNT))


@pytest.mark.parametrize("name", ["ImageDataset", "S3ImageStream"])
def test_a_transform_without_a_return_statement_is_named(bucket: Path, name: str) -> None:
    from torch.utils.data import DataLoader

    with pytest.raises(loader.OptionError, match=r"Found: None, which a transform without a return statement gives\."):
        list(DataLoader(datasets(bucket, lambda _: None)[name], batch_size=COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_source_make_no_batch(bucket: Path, workers: int) -> None:
    from torch.utils.data import DataLoader

    with loader.FolderSource(loader.open_folder(bucket / "tree"), batch_size=2) as source:
        batches = DataLoader(loader.TorchDataset(source), batch_size=2, num_workers=workers)
        with pytest.raises(loader.OptionError, match=r"batch of 2\. Found: loader\.Batch .* batch_size=None"):
            list(batches)
