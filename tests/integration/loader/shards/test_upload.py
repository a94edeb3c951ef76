"""torch datasets are uploaded as shards: an ImageFolder's own files, and uploads to a real bucket that fail.

torchvision is imported by the tests that use it: it takes seconds, which every process of a run would spend.
"""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from formats.stores.uploads import Upload
from imagestrata.devstack.servers.s3 import S3
from loader import AccessError, ShardError, UnreachableError
from loader.shards import Client, make_client, upload_cv_dataset
from schemas import image_id
from tests.support.begun_uploads import begun
from tests.support.pictures import picture
from tests.support.services import fresh_name
from tests.support.shard_folders import Pictures, samples_in, upload


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for label, name in enumerate(["ant", "bee", "Cat"]):
        (root / name).mkdir()
        for number in range(8):
            (root / name / f"{number}.jpg").write_bytes(picture(label, format="JPEG", width=20 + number))
    return root


def test_files_of_an_image_folder_are_uploaded_unchanged(tree: Path, tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    shards = upload_cv_dataset(
        ImageFolder(str(tree)), client=make_client(tmp_path), bucket="b", base_folder="x/y", workers=2, progress=False
    )
    assert (len(shards), shards.num_classes, shards.class_names) == (24, 3, {0: "Cat", 1: "ant", 2: "bee"})
    assert shards.counts == {0: 8, 1: 8, 2: 8}
    found = samples_in(tmp_path / "b" / "x" / "y")
    assert sorted(found) == [f"{number:09}" for number in range(24)]
    for files in found.values():
        told = json.loads(files["json"])
        assert files["jpg"] == (tree / told["path"]).read_bytes()
        assert told["class"] == told["path"].partition("/")[0]
        assert int(files["cls"]) == told["label"] == sorted(["ant", "bee", "Cat"]).index(told["class"])
        assert told["id"] == str(image_id("", b"", os.fsencode(told["path"])))


def grey(path: str) -> Any:
    return Image.open(path).convert("L").resize((5, 5))


def test_images_from_custom_loaders_and_datasets_are_packed(tree: Path, tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    class Halved(ImageFolder):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            image, label = super().__getitem__(index)
            return image.resize((8, 8)), 2 - label

    client = make_client(tmp_path)
    halved, loaded = Halved(str(tree)), ImageFolder(str(tree), loader=grey)
    for name, dataset, size in (("halved", halved, (8, 8)), ("loaded", loaded, (5, 5))):
        upload_cv_dataset(dataset, client=client, bucket="b", base_folder=name, workers=1, progress=False)
        for files in samples_in(tmp_path / "b" / name).values():
            number = int(json.loads(files["json"])["path"])
            assert Image.open(io.BytesIO(files["jpg"])).size == size
            assert int(files["cls"]) == dataset[number][1]


def test_a_deleted_file_is_named(tree: Path, tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(tree))
    dataset.samples[3] = (str(tree / "gone.jpg"), 1)
    with pytest.raises(ShardError, match=r"item 3 of the dataset\. Found: FileNotFoundError"):
        upload_cv_dataset(dataset, client=make_client(tmp_path), bucket="b", workers=1, progress=False)


class Unreadable(Pictures):
    """A dataset whose images cannot be read."""

    def __getitem__(self, number: int) -> tuple[Any, int]:
        raise AssertionError("an item was read")


class Transformed(Pictures):
    """Images as torchvision's own transforms return them."""

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from torchvision.transforms import ToTensor

        image, label = super().__getitem__(number)
        return ToTensor()(image), label


def test_a_dataset_with_transforms_keeps_its_pixels_and_normalized_ones_are_refused(tmp_path: Path) -> None:
    from torchvision.transforms import Normalize

    options: dict[str, Any] = {"client": make_client(tmp_path), "bucket": "b", "progress": False}
    upload_cv_dataset(Transformed(3), base_folder="x", workers=1, image_format="png", **options)
    for files in samples_in(tmp_path / "b" / "x").values():
        number = int(json.loads(files["json"])["path"])
        assert Image.open(io.BytesIO(files["png"])).tobytes() == Pictures(3)[number][0].tobytes()
    normalized = [(Normalize([0.5] * 3, [0.1] * 3)(Transformed(1)[0][0]), 0)]
    with pytest.raises(ShardError, match=r"a tensor of torch\.float32 from -[\d.]+ to [\d.]+\. Remove Normalize"):
        upload_cv_dataset(normalized, workers=0, **options)


def test_a_missing_bucket_is_made_on_request_and_the_error_says_how(s3: S3) -> None:
    client, bucket = make_client(s3.endpoint, s3.access_key, s3.secret_key), fresh_name("bucket")
    with pytest.raises(AccessError, match=rf"no bucket '{bucket}' there\. Create it, or use create_bucket=True"):
        upload(client, bucket, "x", count=3, workers=0)
    assert len(upload(client, bucket, "x", count=3, workers=0, create_bucket=True)) == 3
    assert len(upload(client, bucket, "y", count=4, workers=0, create_bucket=True)) == 4
    with pytest.raises(AccessError, match="the keys are rejected"):
        wrong = make_client(s3.endpoint, s3.access_key, "wrong")
        upload(wrong, fresh_name("bucket"), "x", count=3, workers=0, create_bucket=True)


def test_uploads_to_s3_and_to_a_folder_are_identical(s3: S3, tmp_path: Path) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    there = upload(client, bucket, "deep/er", count=40)
    here = upload(make_client(tmp_path), bucket, "deep/er", count=40)
    assert there.contents.shards == here.contents.shards
    storage = Storage(f"s3://{bucket}/deep/er", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    for shard in there.contents.shards:
        assert storage.read_bytes(shard.name) == (tmp_path / bucket / "deep" / "er" / shard.name).read_bytes()
    names = [path.name for path in (tmp_path / bucket / "deep" / "er").iterdir()]
    assert storage.names() == sorted(names)
    assert begun(storage) == []


def test_stores_that_refuse_or_do_not_answer_are_reported_before_encoding(s3: S3) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    cases: list[tuple[Client, str, type[Exception], str]] = [
        (make_client(s3.endpoint, s3.access_key, "wrong"), bucket, AccessError, "the keys are rejected"),
        (make_client(s3.endpoint, s3.access_key, s3.secret_key), "nowhere", AccessError, "no bucket 'nowhere' there"),
        (make_client("http://127.0.0.1:9", "a", "b"), bucket, UnreachableError, "no answer"),
    ]
    for client, name, kind, message in cases:
        with pytest.raises(kind, match=message):
            upload_cv_dataset(Unreadable(1), client=client, bucket=name, progress=False)


def test_a_store_that_stops_in_mid_upload_is_named_and_a_retry_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3(tmp_path / "s3") as server:
        server.make_bucket("ends")
        client = make_client(server.endpoint, server.access_key, server.secret_key)
        complete = Upload._complete

        def complete_without_a_server(upload: Upload) -> None:
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            complete(upload)

        with monkeypatch.context() as patched:
            patched.setattr(Upload, "_complete", complete_without_a_server)
            with pytest.raises(UnreachableError, match="Wanted "):
                upload(client, "ends", "x", count=30, workers=1)
        server.start(tied=True)
        assert not list((server.folder / "buckets" / "ends").rglob("shards.json"))
        assert len(upload(client, "ends", "x", count=30, workers=1)) == 30


def test_multipart_uploads_of_a_killed_upload_are_aborted_by_the_next(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
    storage = Storage(f"s3://{bucket}/x", S3Access(s3.endpoint, s3.access_key, s3.secret_key))
    strangers = storage.key("0a1b2c3d-000000.tar")
    storage.ask("create_multipart_upload", Key=strangers)
    with monkeypatch.context() as patched:
        patched.setattr(Upload, "_complete", lambda self: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(ShardError, match="one was killed"):
            upload(client, bucket, "x", count=20)
    left = {*begun(storage)} - {strangers}
    assert left
    assert not storage.names()
    shards = upload(client, bucket, "x", count=20)
    assert left <= {storage.key(shard.name) for shard in shards.contents.shards}
    assert begun(storage) == [strangers]
