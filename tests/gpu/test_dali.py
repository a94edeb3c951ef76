"""DALI on a GPU: the same pictures, orders, states and errors as on the CPU."""

import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import loader
from formats.pictures.decoding import decode
from tests.support.encoding import encoded, npy
from tests.support.picture_kinds import Pixels, kinds, png, scene
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder
from training.examples import multi_label, segmentation

KINDS = kinds()
NAMES = [f"{number:03}" for number in range(len(KINDS))]
GOOD = {name: kind for name, kind in zip(NAMES, KINDS, strict=True) if kind.upright is not None}
REFUSED = {name: kind for name, kind in zip(NAMES, KINDS, strict=True) if kind.upright is None}
PLAIN: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255, 1 / 255, 1 / 255)}
ON_GPU: dict[str, Any] = {"device_id": 0, "output": "torch"}
ON_CPU: dict[str, Any] = {"device_id": None, "output": "torch"}


def photo(number: int, *, format: str = "JPEG") -> bytes:
    """A photo with much detail; each has another size."""
    rng = np.random.default_rng(number)
    width, height = 90 + 7 * (number % 13), 70 + 5 * (number % 17)
    pixels = scene(width, height).astype(int) + rng.integers(-30, 30, (height, width, 3))
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return encoded(image, format, **({"quality": 90} if format == "JPEG" else {}))


def write(root: Path, files: Mapping[str, bytes]) -> loader.Folder:
    """One class folder of files, and its split."""
    (root / "a").mkdir(parents=True)
    for name, data in files.items():
        (root / "a" / f"{name}.png").write_bytes(data)
    return loader.open_folder(root)


def name_of(folder: Any, position: int) -> str:
    return Path(folder.paths[position].decode()).stem


def difference(one: Pixels, other: Pixels) -> float:
    """The mean difference of two images, endless if their sizes differ."""
    return float(np.abs(one.astype(float) - other).mean()) if one.shape == other.shape else np.inf


def far(found: Mapping[str, Pixels], *, most: Callable[[str], float]) -> dict[str, float]:
    """The kinds of files that differ from what the one function gives, and by how much."""
    seen = {name: difference(pixels, np.asarray(decode(GOOD[name].data))) for name, pixels in found.items()}
    return {f"{GOOD[name].group}: {GOOD[name].name}": much for name, much in seen.items() if not much <= most(name)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    return write(tmp_path_factory.mktemp("good"), {name: kind.data for name, kind in GOOD.items()})


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    files = {f"{number:03}": photo(number, format="PNG" if number % 5 == 0 else "JPEG") for number in range(96)}
    return write(tmp_path_factory.mktemp("photos"), files)


def decoded(folder: loader.Folder, *, device: str) -> Iterator[tuple[str, Pixels]]:
    """Each picture as a graph with a GPU gives it, decoded on this device."""
    from nvidia.dali import fn, types

    def graph(files: Any, labels: Any) -> Any:
        return fn.decoders.image(files, device=device, output_type=types.RGB, jpeg_fancy_upsampling=True), labels

    with loader.FolderSource(folder, batch_size=16) as source:
        batches = loader.GenericIterator(source, graph, names=["images", "labels"], **ON_GPU)
        for batch in batches:
            assert batches.given is not None
            assert {image.device.type for image in batch["images"]} == {"cpu" if device == "cpu" else "cuda"}
            names = [name_of(folder, int(one)) for one in batches.given.positions]
            yield from zip(names, (image.cpu().numpy() for image in batch["images"]), strict=True)


@pytest.mark.parametrize("device", ["cpu", "mixed"])
def test_a_graph_with_a_gpu_gives_the_pictures_of_the_one_function(good: loader.Folder, device: str) -> None:
    found = dict(decoded(good, device=device))
    assert found.keys() == GOOD.keys()
    assert far(found, most=lambda name: 2.0 if GOOD[name].group == "JPEG" else 0.0) == {}


@pytest.mark.parametrize("size", [9, 33, 224])
def test_evaluation_on_a_gpu_is_that_of_torchvision(size: int, tmp_path: Path) -> None:
    from torchvision.transforms import v2

    small = {name: kind.data for name, kind in GOOD.items() if max(np.asarray(decode(kind.data)).shape) < 3000}
    others = {f"photo {number}": photo(number) for number in range(8)}
    folder = write(tmp_path, small | others)
    torchvision = v2.Compose([v2.Resize(round(256 / 224 * size)), v2.CenterCrop(size)])
    much = {}
    with loader.FolderSource(folder, batch_size=16) as source:
        batches = loader.ClassificationIterator(source, size=size, train=False, **PLAIN, **ON_GPU)
        for images, labels in batches:
            assert batches.given is not None
            assert (images.device.type, images.dtype, labels.device.type) == ("cuda", torch.float32, "cuda")
            for image, position in zip(images.cpu().numpy(), batches.given.positions, strict=True):
                name = name_of(folder, int(position))
                other = np.asarray(torchvision(decode((small | others)[name])))
                title = f"{GOOD[name].group}: {GOOD[name].name}" if name in GOOD else name
                much[title] = difference(image.transpose(1, 2, 0), other)
    assert len(much) == len(small | others)
    assert {title: one for title, one in much.items() if not one < 2} == {}


def test_pixels_without_a_known_range_are_refused_on_a_gpu(tmp_path: Path) -> None:
    for name, kind in REFUSED.items():
        with loader.FolderSource(write(tmp_path / name, {name: kind.data}), batch_size=1) as source:
            batches = loader.ClassificationIterator(source, size=8, train=False, **ON_GPU)
            with pytest.raises(loader.DecodeError, match=r"Wanted a picture as image .*(not known|no picture of)"):
                list(batches)


def damaged() -> dict[str, bytes]:
    """Files that are no pictures, or that are damaged."""
    jpeg, lossless = photo(1), photo(5, format="PNG")
    return {
        "no picture": b"no picture",
        "JPEG, only its first bytes": jpeg[:200],
        "JPEG, half of it": jpeg[: len(jpeg) // 2],
        "JPEG, other bytes in the middle": jpeg[:900] + bytes(range(256)) * 2 + jpeg[1412:],
        "JPEG, no end": jpeg[:-2],
        "PNG, half of it": lossless[: len(lossless) // 2],
        "PNG, only its first bytes": lossless[:60],
        "PNG, too wide for DALI": png(np.zeros((1, 1_100_000), np.uint8), colour=0),
    }


def read(folder: loader.Folder, *, train: bool = False, batch_size: int = 8, **where: Any) -> tuple[Any, list[Any]]:
    """The images of an epoch by name, without those that are skipped, and what was skipped."""
    with loader.FolderSource(folder, batch_size=batch_size) as source:
        batches = loader.ClassificationIterator(
            source, size=16, train=train, on_undecodable="skip", **{**PLAIN, **where}
        )
        found = {}
        for images, _ in batches:
            assert batches.given is not None
            names = [name_of(folder, int(one)) for one in batches.given.positions]
            found |= dict(zip(names, images.cpu().numpy(), strict=True))
        return found, list(source.skipped)


@pytest.mark.parametrize("train", [False, True])
def test_a_gpu_skips_the_damaged_images_that_the_cpu_skips(tmp_path: Path, train: bool) -> None:
    fine = {f"photo {number}": photo(number) for number in range(30)}
    folder = write(tmp_path / "both", damaged() | fine)
    (on_cpu, skipped), (on_gpu, on_gpu_skipped) = (read(folder, train=train, **where) for where in (ON_CPU, ON_GPU))
    wanted = {name_of(folder, one.position): one.reason for one in skipped}
    assert {name_of(folder, one.position): one.reason for one in on_gpu_skipped} == wanted
    assert on_gpu.keys() == on_cpu.keys()
    assert fine.keys() <= on_gpu.keys()
    if not train:
        # DALI chooses between its two decoders of JPEG by the other images of a batch.
        undisturbed, _ = read(write(tmp_path / "fine", fine), **ON_GPU)
        assert [name for name, image in undisturbed.items() if difference(image, on_gpu[name]) > 0.1] == []


@pytest.mark.parametrize("name", ["no picture", "JPEG, half of it", "PNG, half of it", "PNG, too wide for DALI"])
def test_a_damaged_image_is_named_on_a_gpu_as_on_the_cpu(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"damaged": damaged()[name], "fine": photo(2)})

    def said(where: Mapping[str, Any]) -> str:
        with loader.FolderSource(folder, batch_size=2) as source, pytest.raises(loader.DecodeError) as raised:
            list(loader.ClassificationIterator(source, size=8, train=False, **where))
        return str(raised.value)

    assert said(ON_GPU) == said(ON_CPU)


@pytest.mark.parametrize("train", [False, True])
def test_the_same_seed_gives_the_same_batches_on_a_gpu(photos: loader.Folder, train: bool) -> None:
    def epochs(threads: int, **options: Any) -> list[Any]:
        with loader.FolderSource(photos, batch_size=16, **options) as source:
            batches = loader.ClassificationIterator(source, size=32, train=train, num_threads=threads, **ON_GPU)
            return [(images.cpu(), labels.cpu()) for _ in range(2) for images, labels in batches]

    usual = epochs(4)
    for threads in (4, 1, 7):
        pairs = list(zip(usual, epochs(threads), strict=True))
        assert [int((one[0] != other[0]).sum()) for one, other in pairs] == [0] * len(pairs), threads
        assert all(torch.equal(one[1], other[1]) for one, other in pairs)
    if train:
        assert not torch.equal(usual[0][0], epochs(4, seed=1)[0][0])


@pytest.mark.parametrize("train", [False, True])
def test_a_state_of_a_gpu_resumes_at_the_next_batch(photos: loader.Folder, train: bool) -> None:
    def begin() -> tuple[loader.FolderSource, loader.ClassificationIterator]:
        source = loader.FolderSource(photos, batch_size=16)
        return source, loader.ClassificationIterator(source, size=32, train=train, **ON_GPU)

    source, batches = begin()
    with source:
        whole = [(images.cpu(), batches.given.positions.tolist()) for images, _ in batches if batches.given is not None]
    source, batches = begin()
    with source:
        for step, _ in enumerate(batches, 1):
            if step == 3:
                break
        state = batches.state_dict()
    source, batches = begin()
    with source:
        batches.load_state_dict(state)
        rest = [(images.cpu(), batches.given.positions.tolist()) for images, _ in batches if batches.given]
    assert [positions for _, positions in rest] == [positions for _, positions in whole[3:]]
    assert [int((one != other).sum()) for (one, _), (other, _) in zip(rest, whole[3:], strict=True)] == [0, 0, 0]


def test_batches_on_a_gpu_are_not_overwritten_while_they_are_kept(photos: loader.Folder) -> None:
    with loader.FolderSource(photos, batch_size=8) as source:
        batches = loader.ClassificationIterator(source, size=64, train=True, **ON_GPU)
        kept = [(images, images.cpu()) for _ in range(3) for images, _ in batches]
    torch.cuda.synchronize()
    assert [int((images.cpu() != copy).sum()) for images, copy in kept] == [0] * len(kept)


def test_batches_on_a_gpu_are_not_overwritten_before_they_are_used(photos: loader.Folder) -> None:
    """The GPU is still busy when Python is done with a batch, as in a training that does not wait for each step."""

    def sums(wait: bool) -> list[float]:
        with loader.FolderSource(photos, batch_size=8) as source:
            batches = loader.ClassificationIterator(source, size=224, train=True, **ON_GPU)
            found = []
            for _ in range(2):
                for images, _ in batches:
                    if not wait:
                        torch.cuda._sleep(400_000_000)  # a fifth of a second of work that is queued before
                    found.append(images.double().sum())
                    if wait:
                        torch.cuda.synchronize()
                    del images
            torch.cuda.synchronize()
        return [float(one) for one in found]

    assert sums(wait=False) == sums(wait=True)


IDS = image_ids(48, first=3000)


@pytest.fixture(scope="module")
def rows() -> dict[Any, bytes]:
    return {one: photo(number) for number, one in enumerate(IDS)}


def row_source(place: Path, rows: Mapping[Any, bytes], kind: str, labels: Mapping[Any, bytes]) -> RowSource:
    folder = write_split_folder(place / "split", [(IDS, [-1] * len(IDS))], label_type=kind)
    split = loader.open_split(folder, cache=place / "cache")
    return RowSource(split, rows=rows, labels=labels, batch_size=8)


@pytest.mark.parametrize("train", [False, True])
def test_masks_on_a_gpu_are_those_of_the_cpu(rows: Mapping[Any, bytes], tmp_path: Path, train: bool) -> None:
    masks = {}
    for one, data in rows.items():
        width, height = Image.open(io.BytesIO(data)).size
        masks[one] = encoded((np.arange(width * height).reshape(height, width) // 50 % 7).astype(np.uint8), "PNG")
    with row_source(tmp_path, rows, "blob", masks) as source:
        found = []
        for where in (ON_CPU, ON_GPU):
            device = "cpu" if where is ON_CPU else "mixed"
            graph = partial(segmentation.graph, size=32, device=device)
            with source.again() as again:
                numbers = segmentation.numbers if train else None
                batches = loader.GenericIterator(again, graph, names=["images", "classes"], numbers=numbers, **where)
                found.append([(one["images"].cpu(), one["classes"].cpu()) for one in batches])
    for (images, classes), (other_images, other_classes) in zip(*found, strict=True):
        assert classes.dtype == torch.int64
        assert int((classes != other_classes).sum()) == 0
        assert float((images - other_images).abs().mean()) * 64 < 2


@pytest.mark.parametrize("train", [False, True])
def test_arrays_of_labels_on_a_gpu_are_those_of_the_cpu(rows: Mapping[Any, bytes], tmp_path: Path, train: bool) -> None:
    arrays = {}
    for number, one in enumerate(rows):
        arrays[one] = npy(np.array([[number % 2, number % 3 == 0, 1]], np.uint8))
    with row_source(tmp_path, rows, "multi", arrays) as source:
        found = []
        for where in (ON_CPU, ON_GPU):
            graph = partial(multi_label.graph, size=32, is_on_gpu=where is ON_GPU)
            with source.again() as again:
                numbers = multi_label.numbers if train else None
                batches = loader.GenericIterator(again, graph, names=["images", "labels"], numbers=numbers, **where)
                found.append([(one["images"].cpu(), one["labels"].cpu()) for one in batches])
    for (images, labels), (other_images, other_labels) in zip(*found, strict=True):
        assert torch.equal(labels, other_labels)
        assert float((images - other_images).abs().mean()) * 64 < 2
