"""Datasets as shards: full, shuffled, the same for any number of workers, and no partial results."""

import hashlib
import io
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from PIL import Image

from formats.pictures.decoding import decode
from loader import OptionError, ShardError
from loader.shards import make_client, open_shards, upload_cv_dataset
from loader.shards.upload_items import Job
from tests.support.encoding import encoded
from tests.support.pictures import exif
from tests.support.shard_folders import Pictures, samples_in, upload


def test_shards_are_full_shuffled_and_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    one, three = (
        upload(make_client(tmp_path), "b", name, count=90, workers=workers) for name, workers in (("one", 1), ("3", 3))
    )
    assert one.contents.shards == three.contents.shards
    for shard in one.contents.shards:
        for folder in ("one", "3"):
            data = (tmp_path / "b" / folder / shard.name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.bytes, shard.sha256)
        assert shard.bytes <= 60_000
        assert shard is one.contents.shards[-1] or shard.bytes > 60_000 - 11_000  # a noise image has 7 kB
    paths = [int(json.loads(files["json"])["path"]) for _, files in sorted(samples_in(tmp_path / "b" / "one").items())]
    assert sorted(paths) == list(range(90))
    assert abs(np.corrcoef(paths, np.arange(90))[0, 1]) < 2.58 / np.sqrt(89)
    other = upload(make_client(tmp_path), "b", "other", count=90, seed=1)
    assert other.fingerprint != one.fingerprint


def test_pictures_are_encoded_as_requested(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    for image_format, name in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
        upload(client, "b", image_format, count=6, image_format=image_format, workers=1)
        for files in samples_in(tmp_path / "b" / image_format).values():
            image = Image.open(io.BytesIO(files[image_format]))
            number = int(json.loads(files["json"])["path"])
            assert (image.format, image.size) == (name, (48, 48))
            if image_format == "png":
                assert np.array_equal(np.asarray(image), np.asarray(Pictures(6)[number][0]))


def test_the_size_of_shards_may_have_a_unit(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    upload(client, "b", "number", count=40, maxsize=60_000, workers=1)
    upload(client, "b", "text", count=40, maxsize="60kB", workers=1)
    names = [sorted(path.name for path in (tmp_path / "b" / place).glob("*.tar")) for place in ("number", "text")]
    assert names[0] == names[1]
    assert len(names[0]) > 1


def test_existing_shards_are_replaced_only_on_request(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    upload(client, "b", "x", count=20, workers=1)
    with pytest.raises(ShardError, match=r"a folder without shards at .*/b/x\. Found: 20 images in shards\. Use overw"):
        upload(client, "b", "x", count=30, workers=1)
    upload(client, "b", "x", count=30, workers=1, overwrite=True)
    names = {shard.name for shard in open_shards(str(tmp_path / "b" / "x")).contents.shards}
    assert {path.name for path in (tmp_path / "b" / "x").glob("*.tar")} == names
    assert len(samples_in(tmp_path / "b" / "x")) == 30
    (tmp_path / "b" / "x" / "shards.json").write_text("{}")
    with pytest.raises(ShardError, match="Remove it, or name another folder"):
        upload(client, "b", "x", count=30, workers=1)


class Bad(Pictures):
    def __init__(self, item: Callable[[int], Any]) -> None:
        super().__init__(70)
        self._item = item

    def __getitem__(self, number: int) -> Any:
        return self._item(number) if number == 66 else super().__getitem__(number)


def _raise(number: int) -> Any:
    raise KeyError("no such picture")


BAD: list[tuple[Callable[[int], Any], str]] = [
    (_raise, r"Wanted item 66 of the dataset\. Found: KeyError: 'no such picture'"),
    (lambda number: Pictures(1)[0][0], r"item 66 of the dataset as \(image, class number\)\. Found: "),
    (lambda number: (Pictures(1)[0][0], "cat"), r"class number, 0 or more, as the label of item 66 .*Found: 'cat'"),
    (lambda number: (Pictures(1)[0][0], 1.5), r"as the label of item 66 of the dataset\. Found: 1\.5"),
    (lambda number: (Pictures(1)[0][0], -1), r"as the label of item 66 of the dataset\. Found: -1"),
    (lambda number: (Pictures(1)[0][0], True), r"as the label of item 66 of the dataset\. Found: True"),
    (
        lambda number: (np.zeros((3, 4, 4)), 1),
        r"an image in item 66 .*Found: an array of float64 of shape \(3, 4, 4\)",
    ),
    (
        lambda number: (np.zeros((3, 9, 9), np.uint8), 1),
        r"Found: an array of uint8 of shape \(3, 9, 9\)\. Accepted are ",
    ),
    (lambda number: (b"no picture", 1), r"item 66 .*Found: 10 bytes that are not an image \(Unid"),
    (lambda number: ("a.jpg", 1), r"an image in item 66 of the dataset\. Found: str"),
    (lambda number: {"image": Pictures(1)[0][0], "label": 1}, r"\(image, class number\)\. Found: dict"),
]


def job_of(ds: Any, spool: Path, *, image_format: str = "png") -> Job:
    """The arguments of an upload process."""
    return Job(ds, make_client("/nowhere"), "b", "x", spool, image_format, 95, "")


@pytest.mark.parametrize(("item", "message"), BAD)
def test_an_item_that_cannot_be_packed_is_named(item: Callable[[int], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=message):
        job_of(Bad(item), tmp_path).made(66)


@pytest.mark.parametrize(
    ("item", "message"),
    [BAD[0], (lambda number: (Pictures(1, side=200)[0][0], 1), r"fit into a shard of 60,000 bytes.*It is item 66 of")],
)
def test_a_dataset_with_an_unpackable_item_publishes_nothing(
    item: Callable[[int], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ShardError, match=message):
        upload_cv_dataset(
            Bad(item), client=make_client(tmp_path), bucket="b", base_folder="x", maxsize=60_000, workers=1,
            image_format="png", progress=False,
        )  # fmt: skip
    assert not list(tmp_path.rglob("shards.json"))
    assert not list(tmp_path.rglob("*.tar"))


def as_arrays(number: int) -> Any:
    return np.asarray(Pictures(5)[number][0])


def as_tensors(number: int) -> Any:
    return torch.from_numpy(as_arrays(number).copy()).permute(2, 0, 1)


def as_bytes(number: int) -> bytes:
    return encoded(Pictures(5)[number][0])


KINDS: dict[str, Callable[[int], Any]] = {
    "arrays": as_arrays,
    "uint8 tensors": as_tensors,
    "float32 tensors": lambda number: as_tensors(number) / 255,
    "float16 tensors": lambda number: (as_tensors(number) / 255).half(),
    "pictures": lambda number: Pictures(5)[number][0],
    "bytes": as_bytes,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_arrays_tensors_and_bytes_give_the_same_pixels(kind: str, workers: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"bucket": "b", "image_format": "png", "workers": workers, "progress": False}
    items = [(KINDS[kind](number), np.int64(number)) for number in range(5)]
    listed = upload_cv_dataset(items, client=make_client(tmp_path), base_folder="listed", **options)
    once = upload_cv_dataset(iter(items), client=make_client(tmp_path), base_folder="once", **options)
    assert listed.fingerprint == once.fingerprint
    found = samples_in(tmp_path / "b" / "once")
    assert len(found) == 5
    for files in found.values():
        number = int(files["cls"])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(files["png"]))), as_arrays(number))
        if kind == "bytes":
            assert files["png"] == as_bytes(number)


def test_tensors_and_arrays_of_one_channel_are_grey(tmp_path: Path) -> None:
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8)
    items = [(grey, 0), (grey[:, :, None], 1), (torch.from_numpy(grey), 2), (torch.from_numpy(grey)[None] / 255, 3)]
    for number, item in enumerate(items):
        picture = Image.open(job_of(items, tmp_path).made(number).path)
        assert (picture.mode, item[1]) == ("L", number)
        assert np.array_equal(np.asarray(picture), grey)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.full((3, 4, 4), 1.5), r"float32 from 1\.5 to 1\.5\. Remove Normalize .*, and divide values up"),
        (torch.full((3, 4, 4), -0.1), r"from -0\.1 to -0\.1\. Remove Normalize"),
        (torch.full((3, 4, 4), float("nan")), r"from nan to nan\. Remove"),
        (
            torch.zeros((2, 3, 4, 4)),
            r"a batch, a tensor of shape \(2, 3, 4, 4\)\. Give the dataset, not its DataLoader",
        ),
        (torch.zeros((5, 4, 3)), r"a tensor of torch\.float32 of shape \(5, 4, 3\)\. Accepted are"),
        (torch.zeros((3, 4, 4), dtype=torch.int64), r"a tensor of torch\.int64"),
        (torch.zeros((3, 4, 4), dtype=torch.bfloat16), r"a tensor of torch\.bfloat16"),
        (torch.zeros((3, 0, 4)), r"of shape \(3, 0, 4\)"),
    ],
)
def test_tensors_that_are_no_pictures_are_refused(tensor: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=rf"Wanted an image in item 0 of the dataset\. Found: .*{message}"):
        job_of([(tensor, 0)], tmp_path).made(0)


class Stream(torch.utils.data.IterableDataset[Any]):
    """A stream of images that is divided among torch's workers."""

    classes = ("a", "b")

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        numbers = range(5) if info is None else range(info.id, 5, info.num_workers)
        yield from ((as_tensors(number), number % 2) for number in numbers)

    def __len__(self) -> int:
        return 7  # unknown, as in many datasets


@pytest.mark.parametrize("workers", [0, 3])
def test_an_iterable_dataset_is_read_once_for_any_number_of_workers(workers: int, tmp_path: Path) -> None:
    shards = upload_cv_dataset(
        Stream(), client=make_client(tmp_path), bucket="b", workers=workers, image_format="png", progress=False
    )
    assert (len(shards), shards.counts, shards.class_names) == (5, {0: 3, 1: 2}, {0: "a", 1: "b"})
    loader = torch.utils.data.DataLoader(Stream(), batch_size=2, num_workers=2)
    with pytest.raises(ShardError, match=r"item 0 of the dataset\. Found: a batch"):
        upload_cv_dataset(loader, client=make_client(tmp_path), bucket="c", workers=workers, progress=False)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_that_fails_names_the_item_and_publishes_nothing(workers: int, tmp_path: Path) -> None:
    def items() -> Iterator[Any]:
        yield from ((as_arrays(number % 5), 0) for number in range(130))
        raise KeyError("no such picture")

    with pytest.raises(ShardError, match=r"Wanted item 130 of the dataset\. Found: KeyError: 'no such picture'"):
        upload_cv_dataset(items(), client=make_client(tmp_path), bucket="b", workers=workers, progress=False)
    assert not list(tmp_path.rglob("*.tar"))


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "LA", "P"])
def test_pictures_keep_their_mode_or_are_refused(mode: str, tmp_path: Path) -> None:
    image = Image.new("L", (9, 7), 40).convert("I" if mode == "I;16" else mode)
    image = image.convert(mode)
    items = [(image, 0)]
    if mode != "P":
        with pytest.raises(ShardError, match=rf"item 0 of the dataset as .* jpg can store\. Found: mode {mode}"):
            job_of(items, tmp_path, image_format="jpg").made(0)
    found = Image.open(job_of(items, tmp_path).made(0).path)
    assert (found.mode, found.size) == (mode, (9, 7))
    assert found.getpixel((0, 0)) == image.getpixel((0, 0))


@pytest.mark.parametrize("image_format", ["jpg", "png"])
@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_known_range_are_refused(mode: str, image_format: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"item 0 of the dataset\. Found: PictureError: unsupported pixels"):
        job_of([(Image.new(mode, (9, 7), 70_000), 0)], tmp_path, image_format=image_format).made(0)


@pytest.mark.parametrize("image_format", ["jpg", "png", "webp"])
def test_images_with_exif_are_stored_upright(image_format: str, tmp_path: Path) -> None:
    file = io.BytesIO(encoded(Image.new("RGB", (9, 7)), exif=exif(6)))
    for image in (Image.open(file), Image.open(file).convert("RGB")):
        made = job_of([(image, 0)], tmp_path, image_format=image_format).made(0)
        assert decode(Path(made.path).read_bytes()).size == (7, 9)


class Shade(Pictures):
    def __init__(self, shade: int) -> None:
        super().__init__(10)
        self._shade = shade

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return Image.new("L", (4, 4), self._shade), 0


def test_shard_names_differ_for_different_contents_of_the_same_size(tmp_path: Path) -> None:
    options: dict[str, Any] = {"client": make_client(tmp_path), "bucket": "b", "workers": 1, "progress": False}
    one = upload_cv_dataset(Shade(101), base_folder="one", **options)
    two = upload_cv_dataset(Shade(102), base_folder="two", **options)
    assert one.contents.bytes == two.contents.bytes
    assert one.contents.shards[0].name != two.contents.shards[0].name


def _end(number: int) -> Any:
    os._exit(9)


def test_a_worker_process_that_dies_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"Found: one was killed, .*Use fewer workers"):
        upload_cv_dataset(Bad(_end), client=make_client(tmp_path), bucket="b", workers=2, progress=False)


def test_invalid_options_are_refused(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    for options, message in [
        ({"maxsize": 100}, "maxsize as a whole number of at least 10240"),
        ({"maxcount": 0}, "maxcount"),
        ({"maxsize": "many"}, r"maxsize: Wanted a size in bytes or with a unit, .* Found: 'many'"),
        ({"maxsize": "1kB"}, "maxsize as a whole number of at least 10240"),
        ({"maxsize": float("inf")}, "maxsize as a whole number"),
        ({"seed": 1 << 70}, "seed"),
        ({"base_folder": "../x"}, "a bucket and a folder"),
        ({"workers": -1}, "workers"),
        ({"create_bucket": "yes"}, "create_bucket as True or False"),
        ({"image_format": "gif"}, "image_format"),
        ({"quality": 101}, "quality"),
        ({"client": "http://x"}, "a client from loader.shards.make_client"),
        ({"bucket": ""}, "a bucket and a folder"),
    ]:
        given: dict[str, Any] = {"client": client, "bucket": "b", "progress": False, **options}
        with pytest.raises(OptionError, match=message):
            upload_cv_dataset(Pictures(3), **given)
    with pytest.raises(OptionError, match=r"at least one item\. Found: none"):
        upload_cv_dataset([], client=client, bucket="b", progress=False)
    with pytest.raises(OptionError, match=r"at least one item\. Found: none"):
        upload_cv_dataset((x for x in ()), client=client, bucket="b", progress=False)
    with pytest.raises(OptionError, match=r"a length and items, or an iterable .*Found: int"):
        upload_cv_dataset(5, client=client, bucket="b", progress=False)
    with pytest.raises(OptionError, match="access_key and secret_key, or neither"):
        make_client("http://127.0.0.1:9", "key")
    for url in ("ftp://127.0.0.1", "127.0.0.1:9000", "store:9000/x", ""):
        with pytest.raises(OptionError, match="URL of an S3 endpoint"):
            make_client(url)
    with pytest.raises(OptionError, match="URL of an S3 endpoint with keys"):
        make_client("/tmp/x", "key", "secret")
    assert "secret" not in repr(make_client("http://127.0.0.1:9", "key", "secret"))


def test_shards_of_other_uploads_are_kept_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "b" / "x").mkdir(parents=True)
    (tmp_path / "b" / "x" / "0a1b2c3d-000000.tar").write_bytes(b"of an upload that was killed, with other options")
    upload(make_client(tmp_path), "b", "x", count=20, workers=1)
    assert "also has shards that no manifest names" in caplog.text
    assert "0a1b2c3d-*. Remove them" in caplog.text
    with pytest.raises(OptionError, match=r"Wanted a bucket and a folder in it by their names\. Found: 's3://b', 'x'"):
        upload(make_client(tmp_path), "s3://b", "x", count=20, workers=1)


def test_a_terminated_upload_publishes_nothing_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    root = tmp_path / "b" / "x"
    first = upload(make_client(tmp_path), "b", "x", count=30, workers=1)
    (root / "shards.json").unlink()
    (root / first.contents.shards[1].name).unlink()
    (root / f".{first.contents.shards[1].name}.0123").write_bytes(b"half of a shard")
    again = upload(make_client(tmp_path), "b", "x", count=30, workers=1)
    assert again.contents.shards == first.contents.shards
    assert {path.name for path in root.glob("*.tar")} == {shard.name for shard in again.contents.shards}
    assert not list(root.glob(".*"))
    assert len(samples_in(root)) == 30


def test_two_uploads_to_one_folder_leave_one_of_them_whole(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    options = [{"count": 60, "seed": seed, "overwrite": True, "workers": 1} for seed in (1, 2)]
    both = [fork.Process(target=upload, args=(make_client(tmp_path), "b", "x"), kwargs=one) for one in options]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=120)
    assert [process.exitcode for process in both] == [0, 0]
    for shard in open_shards(str(tmp_path / "b" / "x")).contents.shards:
        data = (tmp_path / "b" / "x" / shard.name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard.sha256
