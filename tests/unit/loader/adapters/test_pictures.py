"""One file is one picture through every door: what each of them gives for files of all kinds."""

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import loader
from etl.features.computing.pictures import Picture
from etl.pictures.images import RejectedError
from etl.pictures.plan import Recode
from etl.pictures.recode import convert
from formats.pictures.decoding import decode
from imagestrata.service.server.sheets import preview
from loader.adapters.pictures import size_in_dali
from loader.shards import RemoteDataset, make_client, upload_cv_dataset
from tests.support.encoding import encoded
from tests.support.picture_kinds import Kind, Pixels, kinds, png
from tests.support.pictures import exif

KINDS = kinds()
NAMES = [f"{number:03}" for number in range(len(KINDS))]
GOOD = {name: kind for name, kind in zip(NAMES, KINDS, strict=True) if kind.upright is not None}
REFUSED = {name: kind for name, kind in zip(NAMES, KINDS, strict=True) if kind.upright is None}
UPLOADED = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
PLAIN: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255, 1 / 255, 1 / 255)}
PAGE = Path(__file__).parents[4] / "docs/concepts/pictures.md"

Pictures = Iterator[tuple[str, Pixels]]


@pytest.fixture(scope="module")
def wanted() -> dict[str, Pixels]:
    """What the one decoder gives."""
    return {name: np.asarray(decode(kind.data)) for name, kind in GOOD.items()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders: `good`, and one that is refused in `refused`. Names do not tell formats."""
    root = tmp_path_factory.mktemp("pictures")
    for folder, files in (("good/a", GOOD), ("refused/a", REFUSED)):
        (root / folder).mkdir(parents=True)
        for name, kind in files.items():
            (root / folder / f"{name}.png").write_bytes(kind.data)
    return root


def name_of(folder: Any, position: int) -> str:
    return Path(folder.paths[position].decode()).stem


def of_dali(root: Path) -> Pictures:
    from nvidia.dali import fn, types

    def graph(files: Any, labels: Any) -> Any:
        return fn.decoders.image(files, output_type=types.RGB), labels

    folder = loader.open_folder(root)
    with loader.FolderSource(folder, batch_size=16) as source:
        batches = loader.GenericIterator(source, graph, names=["images", "labels"])
        for batch in batches:
            assert batches.given is not None
            yield from zip((name_of(folder, int(one)) for one in batches.given.positions), batch["images"], strict=True)


def of_torch(root: Path) -> Pictures:
    folder = loader.open_folder(root)
    with loader.FolderSource(folder, batch_size=1, shuffle=False) as source:
        for position, (image, _) in enumerate(loader.TorchDataset(source, transform=np.array)):
            yield name_of(folder, position), image[0].numpy()


def of_images(root: Path) -> Pictures:
    with loader.ImageDataset(folder := loader.open_folder(root), np.asarray) as dataset:
        yield from ((name_of(folder, index), dataset[index][0]) for index in range(len(folder)))


def of_s3(root: Path) -> Pictures:
    folder = loader.S3ImageFolder(root.parent.name, root.name, np.asarray, client=make_client(root.parent.parent))
    yield from ((Path(key).stem, folder[index][0]) for index, (key, _) in enumerate(folder.samples))


def of_s3_stream(root: Path) -> Pictures:
    folder = loader.S3ImageFolder(root.parent.name, root.name, np.asarray, client=make_client(root.parent.parent))
    names = [Path(key).stem for key, _ in folder.samples]
    yield from zip(names, (image for image, _ in folder.stream(shuffle=False)), strict=True)


def of_shards(root: Path, item: Callable[[Kind], Any]) -> Pictures:
    """Of an upload of items, decoded from the shards."""
    files = {path.stem: (GOOD | REFUSED)[path.stem] for path in (root / "a").iterdir()}
    names = [name for name, kind in files.items() if kind.group in UPLOADED]
    items = [(item(files[name]), number) for number, name in enumerate(names)]
    client, bucket = make_client(root.parent), item.__name__
    upload_cv_dataset(items, client=client, bucket=bucket, workers=0, image_format="png", progress=False)
    chosen = "jpg;png;webp;bmp;tif;gif"
    for image, number in RemoteDataset(client, bucket).decode("rgb8").to_tuple(chosen, "cls"):
        yield names[number], image


def data_of(kind: Kind) -> bytes:
    return kind.data


def opened(kind: Kind) -> Image.Image:
    return Image.open(io.BytesIO(kind.data))


def of_files(root: Path, picture: Callable[[bytes], Any]) -> Pictures:
    for path in sorted((root / "a").iterdir()):
        yield path.stem, np.asarray(picture(path.read_bytes()))


def recoded(data: bytes) -> Image.Image:
    return decode(convert(data, Recode("PNG"))[0])


DOORS: dict[str, Callable[[Path], Pictures]] = {
    "a DALI graph": of_dali,
    "TorchDataset": of_torch,
    "ImageDataset": of_images,
    "S3ImageFolder": of_s3,
    "its stream": of_s3_stream,
    "shards of bytes": partial(of_shards, item=data_of),
    "shards of images of PIL": partial(of_shards, item=opened),
    "featurize": partial(of_files, picture=lambda data: Picture(data).array),
    "--img-format": partial(of_files, picture=recoded),
}


def difference(one: Pixels, other: Pixels) -> float:
    """The mean difference of two images, endless if their sizes differ."""
    return float(np.abs(one.astype(int) - other).mean()) if one.shape == other.shape else np.inf


@pytest.mark.parametrize("door", DOORS)
def test_a_file_is_the_same_picture_through_every_door(door: str, root: Path, wanted: dict[str, Pixels]) -> None:
    found = dict(DOORS[door](root / "good"))
    groups = UPLOADED if "shards" in door else {kind.group for kind in KINDS}
    assert [name for name, kind in GOOD.items() if kind.group in groups and name not in found] == []
    # Pillow gives only the upper bytes of several deep channels to a dataset that opens images itself.
    slack = {name: 1.0 for name, kind in GOOD.items() if "PIL" in door and "16 bits" in kind.name}
    most = {name: 2.0 if GOOD[name].group == "JPEG" and "DALI" in door else slack.get(name, 0.0) for name in found}
    far = {f"{GOOD[name].group}: {GOOD[name].name}": difference(found[name], wanted[name]) for name in found}
    assert {kind: far[kind] for kind, name in zip(far, found, strict=True) if far[kind] > most[name]} == {}


@pytest.mark.parametrize("door", DOORS)
def test_pixels_without_a_known_range_are_refused_through_every_door(door: str, root: Path, tmp_path: Path) -> None:
    for name, kind in REFUSED.items():
        if "shards" in door and kind.group not in UPLOADED:
            continue
        only = tmp_path / name / "refused"
        (only / "a").mkdir(parents=True)
        (only / "a" / f"{name}.png").write_bytes(kind.data)
        reasons = r"range is not known|no picture of|not an image|header cannot be read|cannot identify"
        with pytest.raises((loader.LoaderError, RejectedError, OSError), match=reasons):
            list(DOORS[door](only))


@pytest.mark.parametrize("size", [9, 33])
def test_evaluation_sees_the_same_pictures_as_with_torchvision(
    size: int, root: Path, wanted: dict[str, Pixels], tmp_path: Path
) -> None:
    from torchvision.transforms import v2

    (tmp_path / "a").mkdir()
    for name in wanted:
        if max(wanted[name].shape) * size < 30_000:  # or there would be a large picture between resize and crop
            (tmp_path / "a" / f"{name}.png").symlink_to(root / "good" / "a" / f"{name}.png")
    folder = loader.open_folder(tmp_path)
    torchvision = v2.Compose([v2.Resize(round(256 / 224 * size)), v2.CenterCrop(size)])
    with loader.FolderSource(folder, batch_size=16) as source:
        batches = loader.ClassificationIterator(source, size=size, train=False, **PLAIN)
        for images, _ in batches:
            assert batches.given is not None
            for image, position in zip(images, batches.given.positions, strict=True):
                name = name_of(folder, int(position))
                other = np.asarray(torchvision(Image.fromarray(wanted[name])))
                assert difference(image.transpose(1, 2, 0), other) < 2, GOOD[name].name


def test_stored_orientation_is_that_of_imagefolder(root: Path) -> None:
    from torchvision.datasets import ImageFolder

    others = ImageFolder(str(root / "good"), np.asarray)
    folder = loader.S3ImageFolder(root.name, "good", np.asarray, client=make_client(root.parent), orientation="stored")
    dataset = loader.ImageDataset(paths := loader.open_folder(root / "good"), np.asarray, orientation="stored")
    places = {name_of(paths, index): index for index in range(len(paths))}
    for index, (path, _) in enumerate(others.samples):
        kind = GOOD[Path(path).stem]
        if kind.stored is not None and "16 bits" not in kind.name:
            assert difference(folder[index][0], others[index][0]) == 0, kind.name
            assert difference(dataset[places[Path(path).stem]][0], others[index][0]) == 0, kind.name


def test_contact_sheets_and_previews_show_the_same_pictures(root: Path, wanted: dict[str, Pixels]) -> None:
    folder = loader.open_folder(root / "good")
    with loader.FolderSource(folder, batch_size=64, shuffle=False) as source:
        for batch in source.epoch(0):
            names = [name_of(folder, int(one)) for one in batch.positions]
            decoded = replace(batch, images=[encoded(wanted[name], "PNG") for name in names])
            sheets = (np.asarray(one.show(64, class_names={})) for one in (batch, decoded))
            assert difference(*sheets) == 0
    for name, kind in GOOD.items():
        if kind.group in UPLOADED:
            shown, other = preview(kind.data), preview(encoded(wanted[name], "PNG"))
            assert shown is not None
            assert other is not None
            assert difference(np.asarray(shown), np.asarray(other)) <= 1, kind
    assert [kind for kind in REFUSED.values() if preview(kind.data) is not None] == []


def rows(wanted: dict[str, Pixels]) -> Iterator[str]:
    """The table of the documentation."""
    yield "| file | training sees | in DALI decoded by | ImageFolder |"
    yield "|---|---|---|---|"
    found = (
        (f"{kind.group}, {shortened(kind.name)}", row_of(kind, wanted.get(name)))
        for name, kind in zip(NAMES, KINDS, strict=True)
    )
    for title, group in groupby(found, key=lambda pair: pair[0]):
        ((seen, by, other),) = {row for _, row in group}
        yield f"| {title} | {seen} | {by} | {other} |"


def shortened(name: str) -> str:
    return "RGB, orientation 2 to 8" if name in [f"RGB, orientation {number}" for number in range(2, 9)] else name


def row_of(kind: Kind, pixels: Pixels | None) -> tuple[str, str, str]:
    if pixels is None:
        return "refused", "-", "-"
    with Image.open(io.BytesIO(kind.data)) as image:
        image.info.pop("transparency", None)  # or Pillow warns that it is lost
        other = np.asarray(image.convert("RGB"))
    by = "DALI" if size_in_dali(kind.data) else "imagestrata"
    if difference(pixels, other) == 0:
        return kind.seen, by, "the same"
    is_stored = kind.stored is not None and difference(other, kind.stored) <= max(kind.most, 1)
    return (
        kind.seen,
        by,
        "not turned" if is_stored else "other pixels" if difference(pixels, other) > 1 else "differs by 1",
    )


def test_the_documentation_has_the_table_of_these_files(wanted: dict[str, Pixels]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- table: begin -->\n", "<!-- table: end -->\n"
    assert text[text.index(start) + len(start) : text.index(end)].strip().splitlines() == list(rows(wanted))


def test_crops_of_files_of_all_kinds_are_windows_of_their_pictures(root: Path, wanted: dict[str, Pixels]) -> None:
    from nvidia.dali import fn, types

    def numbers(draws: loader.Draws) -> dict[str, Any]:
        assert draws.sizes is not None
        return {"size": draws.sizes, "crop": loader.crop_numbers(draws)}

    def graph(files: Any, labels: Any, *, size: Any, crop: Any) -> Any:
        images = fn.decoders.image(files, output_type=types.RGB)
        crops = fn.decoders.image_slice(files, **loader.crop_window(crop), output_type=types.RGB)
        return images, crops, size, crop, labels

    names = ["images", "crops", "size", "crop"]
    with loader.FolderSource(folder := loader.open_folder(root / "good"), batch_size=16) as source:
        batches = loader.GenericIterator(source, graph, names=[*names, "labels"], numbers=numbers)
        for batch in batches:
            assert batches.given is not None
            positions, found = batches.given.positions.tolist(), [batch[one] for one in names]
            for position, image, crop, size, ((y, x), (height, width)) in zip(positions, *found, strict=True):
                name = name_of(folder, position)
                assert tuple(size) == image.shape[:2] == wanted[name].shape[:2], GOOD[name]
                assert difference(crop, image[y : y + height, x : x + width]) <= GOOD[name].most, GOOD[name]


@pytest.mark.parametrize("group", ["JPEG", "PNG"])
def test_dali_does_not_get_exif_that_it_may_read_differently(group: str) -> None:
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    blocks = {
        "usual": struct.pack("<2sHIH", b"II", 42, 8, 1) + entry,
        "no TIFF": struct.pack("<2sHIH", b"II", 43, 8, 1) + entry,
        "truncated": struct.pack("<2sHIH", b"II", 42, 8, 2) + entry,
        "twice": struct.pack("<2sHIH", b"II", 42, 8, 2) + entry + entry,
        "unknown kind": struct.pack("<2sHIH", b"II", 42, 8, 2) + struct.pack("<HHII", 0x010F, 13, 1, 1) + entry,
    }
    pixels = np.zeros((28, 40, 3), np.uint8)
    found = {}
    for name, block in blocks.items():
        jpeg = encoded(pixels, "JPEG", exif=b"Exif\0\0" + block)
        data = jpeg if group == "JPEG" else png(pixels, colour=2, chunks=((b"eXIf", block),))
        found[name] = size_in_dali(data)
        assert np.asarray(decode(data)).shape == (40, 28, 3)
    assert found.pop("usual") == (40, 28)
    assert {*found.values()} == {None}


def test_dali_does_not_get_a_png_whose_exif_is_damaged() -> None:
    """It ended the process."""
    block = exif(6).removeprefix(b"Exif\0\0")
    whole = png(np.zeros((28, 40, 3), np.uint8), colour=2, chunks=((b"eXIf", block),))
    end = whole.index(block) + len(block)
    assert size_in_dali(whole) == (40, 28)
    assert size_in_dali(whole[:end] + bytes([whole[end] ^ 1]) + whole[end + 1 :]) is None


def test_dali_does_not_get_files_that_its_decoders_for_gpus_read_differently() -> None:
    """On a GPU, these differed by 70 to 150 of 255 on average, and a truncated JPEG was decoded without an error."""
    given = {f"{kind.group}, {kind.name}" for kind in KINDS if size_in_dali(kind.data)}
    assert {"JPEG, gray", "JPEG, RGB", "PNG, gray", "PNG, gray, 16 bits", "PNG, palette, 8 bits"} <= given
    few = {name for name in given if name.startswith("PNG, ") and any(f", {n} bit" in name for n in (1, 2, 4))}
    assert few | (given & {"JPEG, RGB, not as YCbCr", "JPEG, CMYK of Adobe", "JPEG, YCCK of Adobe"}) == set()
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0"  # of Photoshop's gray images, too
    for kind in KINDS[:2]:
        assert (size_in_dali(kind.data[:2] + adobe + kind.data[2:]) is not None) == ("gray" in kind.name)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for options in ({}, {"progressive": True}, {"exif": exif(6)}, {"restart_marker_blocks": 1}):
        whole = encoded(pixels, "JPEG", **options)
        assert size_in_dali(whole + b"more after its end") == (64, 64)
        assert not [end for end in range(len(whole)) if size_in_dali(whole[:end])]


def test_a_truncated_jpeg_is_named_or_skipped(tmp_path: Path) -> None:
    whole = encoded(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), "JPEG")
    (tmp_path / "a").mkdir()
    for name, file in (("1", whole), ("2", whole[: len(whole) // 2]), ("3", whole[:-2])):
        (tmp_path / "a" / f"{name}.jpg").write_bytes(file)
    with loader.FolderSource(loader.open_folder(tmp_path), batch_size=3) as source:
        make = partial(loader.ClassificationIterator, source, size=8, train=True)
        with pytest.raises(loader.DecodeError, match=r"Wanted a picture as image .*truncated"):
            list(make())
        assert sum(len(images) for images, _ in make(on_undecodable="skip")) == 1
        assert ["truncated" in one.reason for one in source.skipped] == [True, True]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(png(np.zeros((1, 1_100_000), np.uint8), colour=0), "limits the sides"), (b"no picture", "no picture of these")],
)
def test_an_image_that_dali_cannot_take_is_named_or_skipped(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, file in (("1", KINDS[0].data), ("2", data)):
        (tmp_path / "a" / f"{name}.png").write_bytes(file)
    with loader.FolderSource(loader.open_folder(tmp_path), batch_size=2) as source:
        make = partial(loader.ClassificationIterator, source, size=8, train=True)
        with pytest.raises(loader.DecodeError, match=rf"Wanted a picture as image .*position \d.*{reason}"):
            list(make())
        assert sum(len(images) for images, _ in make(on_undecodable="skip")) == 1
        assert [reason in one.reason for one in source.skipped] == [True]


def test_an_image_that_dali_has_failed_to_decode_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    long = png(np.zeros((1, 1_100_000), np.uint8), colour=0)
    for number, file in enumerate([KINDS[0].data] * 6 + [long, b"no picture"]):
        (tmp_path / "a" / f"{number}.png").write_bytes(file)
    with loader.FolderSource(loader.open_folder(tmp_path), batch_size=3) as source:
        batches = loader.ClassificationIterator(source, size=8, train=True, on_undecodable="skip")
        assert sum(len(images) for images, _ in batches) == 6
        monkeypatch.delattr("loader.dali._is_decodable")  # no image is decoded by itself again
        assert sum(len(images) for images, _ in batches) == 6
        assert len(source.skipped) == 4
