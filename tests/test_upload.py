"""Datasets of torch's as shards: packed full, shuffled, the same for any number of workers, and nothing half done."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from begun_uploads import begun
from pictures import picture
from PIL import Image
from shard_folders import Pictures, upload
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

from devstack import ports
from devstack.s3 import S3
from formats.s3 import S3Access
from formats.storage import Storage
from formats.uploads import Upload
from loader import AccessError, OptionError, ShardError, UnreachableError
from loader.shards import Client, make_client, open_shards, upload_cv_dataset
from schemas import image_id


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for label, name in enumerate(["ant", "bee", "Cat"]):
        (root / name).mkdir()
        for number in range(8):
            (root / name / f"{number}.jpg").write_bytes(picture(label, format="JPEG", width=20 + number))
    return root


def samples(root: Path) -> dict[str, dict[str, bytes]]:
    """All files of all shards, by key and extension, as tar reads them."""
    found: dict[str, dict[str, bytes]] = {}
    for shard in sorted(root.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                key, _, extension = member.name.partition(".")
                file = tar.extractfile(member)
                assert file is not None
                found.setdefault(key, {})[extension] = file.read()
    return found


def test_the_files_of_an_image_folder_go_as_they_are(tree: Path, tmp_path: Path) -> None:
    shards = upload_cv_dataset(
        ImageFolder(str(tree)), client=make_client(tmp_path), bucket="b", base_folder="x/y", workers=2, progress=False
    )
    assert (len(shards), shards.num_classes, shards.class_names) == (24, 3, {0: "Cat", 1: "ant", 2: "bee"})
    assert shards.counts == {0: 8, 1: 8, 2: 8}
    found = samples(tmp_path / "b" / "x" / "y")
    assert sorted(found) == [f"{number:09}" for number in range(24)]
    for files in found.values():
        told = json.loads(files["json"])
        assert files["jpg"] == (tree / told["path"]).read_bytes()
        assert told["class"] == told["path"].partition("/")[0]
        assert int(files["cls"]) == told["label"] == sorted(["ant", "bee", "Cat"]).index(told["class"])
        assert told["id"] == str(image_id("", b"", os.fsencode(told["path"])))


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
        assert shard is one.contents.shards[-1] or shard.bytes > 60_000 - 11_000  # a picture of noise has 7 kB
    paths = [int(json.loads(files["json"])["path"]) for _, files in sorted(samples(tmp_path / "b" / "one").items())]
    assert sorted(paths) == list(range(90))
    assert abs(np.corrcoef(paths, np.arange(90))[0, 1]) < 2.58 / np.sqrt(89)
    other = upload(make_client(tmp_path), "b", "other", count=90, seed=1)
    assert other.fingerprint != one.fingerprint


def test_pictures_are_encoded_as_asked(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    for image_format, name in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
        upload(client, "b", image_format, count=6, image_format=image_format)
        for files in samples(tmp_path / "b" / image_format).values():
            image = Image.open(io.BytesIO(files[image_format]))
            number = int(json.loads(files["json"])["path"])
            assert (image.format, image.size) == (name, (48, 48))
            if image_format == "png":
                assert np.array_equal(np.asarray(image), np.asarray(Pictures(6)[number][0]))


def test_on_s3_as_in_a_folder(s3: S3, tmp_path: Path) -> None:
    s3.make_bucket("uploads")
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    there = upload(client, "uploads", "deep/er", count=40)
    here = upload(make_client(tmp_path), "uploads", "deep/er", count=40)
    assert there.contents.shards == here.contents.shards
    storage = Storage("s3://uploads/deep/er", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    for shard in there.contents.shards:
        assert storage.read_bytes(shard.name) == (tmp_path / "uploads" / "deep" / "er" / shard.name).read_bytes()
    names = [path.name for path in (tmp_path / "uploads" / "deep" / "er").iterdir()]
    assert storage.names() == sorted(names)
    assert begun(storage) == []


def test_shards_that_are_there_are_replaced_only_if_that_is_meant(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    upload(client, "b", "x", count=20)
    with pytest.raises(ShardError, match=r"a place without shards at .*/b/x\. Found: 20 images in shards\. Say overw"):
        upload(client, "b", "x", count=30)
    upload(client, "b", "x", count=30, overwrite=True)
    names = {shard.name for shard in open_shards(str(tmp_path / "b" / "x")).contents.shards}
    assert {path.name for path in (tmp_path / "b" / "x").glob("*.tar")} == names
    assert len(samples(tmp_path / "b" / "x")) == 30
    (tmp_path / "b" / "x" / "shards.json").write_text("{}")
    with pytest.raises(ShardError, match="Remove it, or name another folder"):
        upload(client, "b", "x", count=30)


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
    (lambda number: Pictures(1)[0][0], r"item 66 of the dataset as \(picture, class number\)\. Found: "),
    (lambda number: (Pictures(1)[0][0], "cat"), r"class number, 0 or more, as the label of item 66 .*Found: 'cat'"),
    (lambda number: (Pictures(1)[0][0], 1.5), r"as the label of item 66 of the dataset\. Found: 1\.5"),
    (lambda number: (Pictures(1)[0][0], -1), r"as the label of item 66 of the dataset\. Found: -1"),
    (lambda number: (Pictures(1)[0][0], True), r"as the label of item 66 of the dataset\. Found: True"),
    (
        lambda number: (ToTensor()(Pictures(1)[0][0]), 1),
        r"a picture of PIL in item 66 .*Found: Tensor\. Leave",
    ),
    (
        lambda number: (Pictures(1, side=200)[0][0], 1),
        r"fit into a shard of 60,000 bytes.*It is item 66 of the",
    ),
]


@pytest.mark.parametrize(("item", "message"), BAD)
def test_an_item_that_cannot_be_packed_is_named_and_nothing_is_published(
    item: Callable[[int], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ShardError, match=message):
        upload_cv_dataset(
            Bad(item), client=make_client(tmp_path), bucket="b", base_folder="x", maxsize=60_000, workers=2,
            image_format="png", progress=False,
        )  # fmt: skip
    assert not list(tmp_path.rglob("shards.json"))
    assert not list(tmp_path.rglob("*.tar"))


class Halved(ImageFolder):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = super().__getitem__(index)
        return image.resize((8, 8)), 2 - label


def grey(path: str) -> Any:
    return Image.open(path).convert("L").resize((5, 5))


def test_what_a_dataset_makes_of_its_files_is_packed(tree: Path, tmp_path: Path) -> None:
    client = make_client(tmp_path)
    halved, loaded = Halved(str(tree)), ImageFolder(str(tree), loader=grey)
    for name, dataset, size in (("halved", halved, (8, 8)), ("loaded", loaded, (5, 5))):
        upload_cv_dataset(dataset, client=client, bucket="b", base_folder=name, workers=1, progress=False)
        for files in samples(tmp_path / "b" / name).values():
            number = int(json.loads(files["json"])["path"])
            assert Image.open(io.BytesIO(files["jpg"])).size == size
            assert int(files["cls"]) == dataset[number][1]


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "LA", "F", "P"])
def test_pictures_keep_their_kind_or_are_refused(mode: str, tmp_path: Path) -> None:
    image = Image.new("L", (9, 7), 40).convert("I" if mode == "I;16" else mode)
    image = image.convert(mode)
    client, items = make_client(tmp_path), [(image, 0)] * 3
    if mode != "P":
        with pytest.raises(ShardError, match=rf"item 0 of the dataset as .* jpg holds\. Found: mode {mode}"):
            upload_cv_dataset(items, client=client, bucket="b", base_folder="jpg", workers=1, progress=False)
    if mode != "F":
        upload_cv_dataset(
            items, client=client, bucket="b", base_folder="x", workers=1, image_format="png", progress=False
        )
        for files in samples(tmp_path / "b" / "x").values():
            found = Image.open(io.BytesIO(files["png"]))
            assert (found.mode, found.size) == (mode, (9, 7))
            assert found.getpixel((0, 0)) == image.getpixel((0, 0))


class Shade(Pictures):
    def __init__(self, shade: int) -> None:
        super().__init__(10)
        self._shade = shade

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return Image.new("L", (4, 4), self._shade), 0


def test_other_contents_of_the_same_size_have_other_names(tmp_path: Path) -> None:
    options: dict[str, Any] = {"client": make_client(tmp_path), "bucket": "b", "workers": 1, "progress": False}
    one = upload_cv_dataset(Shade(101), base_folder="one", **options)
    two = upload_cv_dataset(Shade(102), base_folder="two", **options)
    assert one.contents.bytes == two.contents.bytes
    assert one.contents.shards[0].name != two.contents.shards[0].name


def _end(number: int) -> Any:
    os._exit(9)


def test_a_process_that_ends_on_its_own_is_told(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"Found: one that ended on its own, .*Take fewer workers"):
        upload_cv_dataset(Bad(_end), client=make_client(tmp_path), bucket="b", workers=2, progress=False)


def test_a_file_that_has_gone_is_named(tree: Path, tmp_path: Path) -> None:
    dataset = ImageFolder(str(tree))
    dataset.samples[3] = (str(tree / "gone.jpg"), 1)
    with pytest.raises(ShardError, match=r"item 3 of the dataset\. Found: FileNotFoundError"):
        upload_cv_dataset(dataset, client=make_client(tmp_path), bucket="b", workers=1, progress=False)


def test_options_that_cannot_be_are_told(tmp_path: Path) -> None:
    client = make_client(tmp_path)
    for options, message in [
        ({"maxsize": 100}, "maxsize as a whole number of at least 10240"),
        ({"maxcount": 0}, "maxcount"),
        ({"maxsize": "1e8"}, r"maxsize as a whole number, as 100000 or 1e5\. Found: '1e8'"),
        ({"maxsize": float("inf")}, "maxsize as a whole number"),
        ({"seed": 1 << 70}, "seed"),
        ({"base_folder": "../x"}, "a bucket and a folder"),
        ({"workers": 0}, "workers"),
        ({"image_format": "gif"}, "image_format"),
        ({"quality": 101}, "quality"),
        ({"client": "http://x"}, "a client, as loader.shards.make_client gives it"),
        ({"bucket": ""}, "a bucket and a folder"),
    ]:
        given: dict[str, Any] = {"client": client, "bucket": "b", "progress": False, **options}
        with pytest.raises(OptionError, match=message):
            upload_cv_dataset(Pictures(3), **given)
    with pytest.raises(OptionError, match=r"at least one item\. Found: none"):
        upload_cv_dataset([], client=client, bucket="b", progress=False)
    with pytest.raises(OptionError, match=r"a length and items\. Found: generator"):
        upload_cv_dataset((x for x in ()), client=client, bucket="b", progress=False)
    with pytest.raises(OptionError, match="access_key and secret_key, or neither"):
        make_client("http://127.0.0.1:9", "key")
    for url in ("ftp://127.0.0.1", "127.0.0.1:9000", "store:9000/x", ""):
        with pytest.raises(OptionError, match="URL of an S3 endpoint"):
            make_client(url)
    with pytest.raises(OptionError, match="URL of an S3 endpoint with keys"):
        make_client("/tmp/x", "key", "secret")
    assert "secret" not in repr(make_client("http://127.0.0.1:9", "key", "secret"))


def test_stores_that_refuse_or_do_not_answer_are_told_before_anything_is_encoded(s3: S3) -> None:
    endpoint = f"http://127.0.0.1:{ports.free(['127.0.0.1'], 1)[0]}"
    cases: list[tuple[Client, str, type[Exception], str]] = [
        (make_client(s3.endpoint, s3.access_key, "wrong"), "uploads", AccessError, "refuses the keys"),
        (make_client(s3.endpoint, s3.access_key, s3.secret_key), "nowhere", AccessError, "no bucket 'nowhere' there"),
        (make_client(endpoint, "a", "b"), "uploads", UnreachableError, "no answer"),
    ]
    for client, bucket, kind, message in cases:
        with pytest.raises(kind, match=message):
            upload_cv_dataset(Bad(_raise), client=client, bucket=bucket, progress=False)


def test_a_store_that_ends_in_mid_upload_is_told_and_a_second_upload_completes(tmp_path: Path) -> None:
    with S3(tmp_path / "s3") as server:
        server.make_bucket("ends")
        client = make_client(server.endpoint, server.access_key, server.secret_key)
        script = (
            "import sys; sys.path.insert(0, 'tests')\n"
            "from shard_folders import upload\nfrom loader.shards import make_client\n"
            f"upload(make_client({server.endpoint!r}, {server.access_key!r}, {server.secret_key!r}), 'ends', 'x', "
            "count=400, maxsize=30_000)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
        bucket = server.folder / "buckets" / "ends"
        deadline = time.monotonic() + 60
        while not list(bucket.rglob("*.tar")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        server.stop()
        _, told = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "UnreachableError: Wanted " in told.splitlines()[-1]
        server.start(tied=True)
        assert not list(bucket.rglob("shards.json"))
        deadline = time.monotonic() + 60
        while True:
            try:
                assert len(upload(client, "ends", "x", count=400, maxsize=30_000)) == 400
                break
            except UnreachableError:  # a busy machine may take its time to answer again
                assert time.monotonic() < deadline


def test_a_killed_upload_publishes_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from shard_folders import upload\nfrom loader.shards import make_client\n"
        f"upload(make_client({str(tmp_path)!r}), 'b', 'x', count=600, maxsize=30_000)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("*.tar")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.rglob("shards.json"))
    shards = upload(make_client(tmp_path), "b", "x", count=600, maxsize=30_000)
    assert len(samples(tmp_path / "b" / "x")) == 600
    names = {shard.name for shard in shards.contents.shards}
    assert {path.name for path in (tmp_path / "b" / "x").glob("*.tar")} == names
    assert not list((tmp_path / "b" / "x").glob(".*"))


def test_what_a_killed_upload_has_begun_on_s3_is_ended_by_the_next(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket("killed")
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    storage = Storage("s3://killed/x", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    strangers = storage.key("0a1b2c3d-000000.tar")
    storage.ask("create_multipart_upload", Key=strangers)
    with monkeypatch.context() as patched:
        patched.setattr(Upload, "_complete", lambda self: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(ShardError, match="one that ended on its own"):
            upload(client, "killed", "x", count=20)
    left = {*begun(storage)} - {strangers}
    assert left
    assert not storage.names()
    shards = upload(client, "killed", "x", count=20)
    assert left <= {storage.key(shard.name) for shard in shards.contents.shards}
    assert begun(storage) == [strangers]


def test_shards_of_other_uploads_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "b" / "x").mkdir(parents=True)
    (tmp_path / "b" / "x" / "0a1b2c3d-000000.tar").write_bytes(b"of an upload that was killed, with other options")
    upload(make_client(tmp_path), "b", "x", count=20)
    assert "shards that no manifest names lie in" in caplog.text
    assert "0a1b2c3d-*; remove them" in caplog.text
    with pytest.raises(OptionError, match=r"Wanted a bucket and a folder in it by their names\. Found: 's3://b', 'x'"):
        upload(make_client(tmp_path), "s3://b", "x", count=20)


def test_two_uploads_to_one_folder_leave_one_of_them_whole(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from shard_folders import upload\nfrom loader.shards import make_client\n"
        f"upload(make_client({str(tmp_path)!r}), 'b', 'x', count=120, seed=int(sys.argv[1]), overwrite=True)\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, seed]) for seed in ("1", "2")]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    for shard in open_shards(str(tmp_path / "b" / "x")).contents.shards:
        data = (tmp_path / "b" / "x" / shard.name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard.sha256
