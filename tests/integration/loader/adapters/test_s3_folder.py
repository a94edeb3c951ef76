"""Class folders in a bucket on a real server: the same as torchvision's on a disk, and errors."""

import gc
import io
import logging
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import loader
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from loader.s3.client import Client, make_client
from tests.support.pictures import texture
from tests.support.s3_access import use
from tests.support.services import fresh_name
from tests.support.transforms import label_of_url, small

# Warnings that a test has more workers than the machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

NAMES = [
    *(f"{name}/{number:02}.png" for name in ("cat", "Dog", "äh & <é>") for number in range(7)),
    *("cat/b/1.png", "cat/a-b/2.PNG", "cat/a/b.png", "cat/a/a.png", "cat/z z%+#?.png", "snake/deep/er/1.png"),
]
BUCKET = fresh_name("bucket")
LEFT_OUT = ["loose.png", "cat/notes.txt", "cat/.hidden.png", ".git/x.png"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket `pictures` on a disk, with a folder `train` of class folders."""
    root = tmp_path_factory.mktemp("tree") / BUCKET / "train"
    for number, name in enumerate(NAMES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(texture(number, width=8 + number % 3, height=6))
    return root


def fill(storage: Storage, files: dict[str, bytes]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.write_bytes(name, files[name]), files))


@pytest.fixture(scope="module")
def client(s3: S3, tree: Path) -> Client:
    """A client of the server; its bucket has the tree and others."""
    s3.make_bucket(BUCKET)
    access = S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    fill(Storage(f"s3://{BUCKET}/train", access), {name: (tree / name).read_bytes() for name in NAMES})
    fill(Storage(f"s3://{BUCKET}/train", access), dict.fromkeys(LEFT_OUT, b"no picture"))
    numbers = {f"{name}/{number}.png": texture(number) for name in ("10", "9", "007") for number in range(5)}
    fill(Storage(f"s3://{BUCKET}/numbers", access), numbers)
    fill(Storage(f"s3://{BUCKET}/twice", access), {"7/a.png": b"1", "07/a.png": b"1"})
    fill(Storage(f"s3://{BUCKET}/empty", access), {"a/a.png": b"1", "b/notes.txt": b"1"})
    fill(Storage(f"s3://{BUCKET}/flat", access), {"a.png": b"1"})
    return make_client(s3.endpoint, s3.access_key, s3.secret_key)


@pytest.fixture
def open_tree(client: Client, tmp_path: Path) -> Callable[..., Any]:
    """Opens a folder of the bucket with a separate cache for each test."""

    def open_tree(prefix: str = "train", *args: Any, **options: Any) -> Any:
        return loader.S3ImageFolder(BUCKET, prefix, *args, **{"client": client, "cache": tmp_path, **options})

    return open_tree


@pytest.mark.parametrize("place", ["bucket", "local"])
def test_an_s3_folder_matches_the_torchvision_image_folder(
    open_tree: Callable[..., Any], tree: Path, place: str
) -> None:
    from torchvision.datasets import ImageFolder  # takes seconds, which every process of a run would spend

    wanted = ImageFolder(str(tree))
    folder = open_tree(client=make_client(tree.parent.parent)) if place == "local" else open_tree("/train/")
    assert folder.classes == wanted.classes == ["Dog", "cat", "snake", "äh & <é>"]
    assert folder.class_to_idx == wanted.class_to_idx
    assert folder.num_classes == 4
    keys = [(f"train/{os.path.relpath(path, tree)}", label) for path, label in wanted.samples]
    assert list(folder.samples) == keys
    assert (folder.samples[2:5], folder.samples[-1], len(folder)) == (keys[2:5], keys[-1], len(keys))
    assert folder.targets.tolist() == wanted.targets
    for (picture, label), (same, its) in zip(folder, wanted, strict=True):
        assert (picture.mode, label) == ("RGB", its)
        assert np.array_equal(picture, same)
    assert folder.url(0).endswith(f"{BUCKET}/train/Dog/00.png")
    for index in (len(folder), -len(folder) - 1):
        with pytest.raises(IndexError, match=rf"from -{len(folder)} to {len(folder) - 1}. Found: {index}"):
            folder[index]


def test_targets_and_pictures_are_transformed(open_tree: Callable[..., Any]) -> None:
    folder = open_tree("train", small, lambda label: -label)
    assert [(image.shape, label) for image, label in folder.__getitems__([0, -1])] == [((2, 2, 3), 0), ((2, 2, 3), -3)]


def test_numeric_class_names_become_labels(open_tree: Callable[..., Any]) -> None:
    folder = open_tree("numbers", class_names="number")
    assert (folder.classes, folder.class_to_idx) == (["007", "9", "10"], {"007": 7, "9": 9, "10": 10})
    assert (folder.num_classes, folder.targets.tolist()) == (11, [7] * 5 + [9] * 5 + [10] * 5)
    assert [(name, label) for name, label in folder.samples] == [
        (f"numbers/{name}/{number}.png", int(name)) for name in ("007", "9", "10") for number in range(5)
    ]
    assert [label for _, label in folder] == folder.targets.tolist()
    assert open_tree("numbers").class_to_idx == {"007": 0, "10": 1, "9": 2}  # of the same listing


@pytest.mark.parametrize(
    ("prefix", "options", "message"),
    [
        ("train", {"class_names": "number"}, r"numbers from 0 to 2147483647\. Found: 'Dog', 'cat', 'snake', 'äh"),
        ("twice", {"class_names": "number"}, r"one class folder for each number in .*Found: '07' and '7'"),
        ("empty", {}, r"an image in each class folder of s3://.*/empty\. Found: none in b"),
        ("flat", {}, r"a folder for every class in s3://.*/flat\. Found: 1 files and no folders"),
        ("nothing", {}, r"a folder for every class in s3://.*/nothing\. Found: nothing and no folders"),
    ],
)
def test_a_place_that_is_not_a_tree_is_refused(
    open_tree: Callable[..., Any], prefix: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(loader.SplitError, match=message):
        open_tree(prefix, **options)
    if prefix == "nothing":
        with pytest.raises(loader.SplitError, match=r"a folder of class folders at .*Found: no such folder"):
            open_tree(prefix, client=make_client("/nowhere"))


def test_wrong_keys_and_missing_buckets_are_named(s3: S3, client: Client, tmp_path: Path) -> None:
    loader.S3ImageFolder(BUCKET, "train", client=client, cache=tmp_path)  # a listing does not grant access
    wrong = make_client(s3.endpoint, s3.access_key, "wrong")
    with pytest.raises(loader.AccessError, match="the keys are rejected"):
        loader.S3ImageFolder(BUCKET, "train", client=wrong, cache=tmp_path)
    with pytest.raises(loader.AccessError, match="no bucket 'nowhere' there"):
        loader.S3ImageFolder("nowhere", "train", client=client, cache=tmp_path)


def test_the_client_is_configured_from_the_environment(
    s3: S3, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(s3, monkeypatch)
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path))
    folder = loader.S3ImageFolder(BUCKET, "numbers")
    assert repr(folder) == f"S3ImageFolder('s3://{BUCKET}/numbers': 15 images of 3 classes)"
    assert len(list((tmp_path / "listings").glob("*.names"))) == 1


def test_more_than_a_page_of_keys_is_listed(s3: S3, client: Client, tmp_path: Path) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    root = s3.folder / "buckets" / bucket  # the server lists the files in it
    for name, count in (("a", 2503), ("b", 1000), ("c", 1)):
        (root / name).mkdir()
        for number in range(count):
            (root / name / f"{number:05}.png").touch()
    folder = loader.S3ImageFolder(bucket, client=client, cache=tmp_path)
    assert [key for key, _ in folder.samples] == [
        f"{name}/{number:05}.png" for name, count in (("a", 2503), ("b", 1000), ("c", 1)) for number in range(count)
    ]
    assert np.bincount(folder.targets).tolist() == [2503, 1000, 1]
    assert len(pickle.dumps(folder)) < 10_000  # the listing stays in the cache


def test_a_listing_is_kept_until_it_is_refreshed(
    s3: S3, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    storage = client.storage(bucket, "x")
    fill(storage, {"a/1.png": b"1", "b/1.png": b"1"})

    def opened(**options: Any) -> Any:
        return loader.S3ImageFolder(bucket, "x", client=client, cache=tmp_path, **options)

    with caplog.at_level(logging.INFO, "loader"):
        first = opened()
        assert f"s3://{bucket}/x: listed 2 files in 2 of 2 classes" in caplog.text
        storage.write_bytes("a/0.png", b"1")
        assert len(opened()) == 2
        assert "using the listing of 20" in caplog.text
        assert "refresh=True" in caplog.text
    assert len(opened(refresh=True)) == len(opened()) == 3
    assert len(first) == len(pickle.loads(pickle.dumps(first))) == 2  # also for other processes that use it
    assert first.samples[0] == ("x/a/1.png", 0)
    old, file = sorted((tmp_path / "listings").glob("*.names"), key=lambda path: path.stat().st_mtime_ns)
    whole = file.read_bytes()
    for damaged in (b"", b"{", b"[]\n", whole[:-1], whole[:-1] + b"x", whole.replace(b'"format": 2', b'"format": 9')):
        caplog.clear()
        file.write_bytes(damaged)
        assert len(opened()) == 3
        assert "a damaged file" in caplog.text
        assert file.read_bytes()[-20:] == whole[-20:]
    os.utime(old, (0, 0))
    opened(refresh=True)  # which removes what was not used for long
    with pytest.raises(loader.SplitError, match=r"the listing of the folder in .*Found: .*No such file"):
        pickle.loads(pickle.dumps(first))
    (tmp_path / "file").touch()
    with pytest.raises(
        loader.SplitError, match=r"a folder for the listing.*Found: .*cache=\.\.\., or \$IMAGESTRATA_CACHE"
    ):
        loader.S3ImageFolder(bucket, "x", client=client, cache=tmp_path / "file")


def test_a_bucket_is_listed_when_the_folder_is_made_unless_a_cache_is_asked_for(
    s3: S3, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path))
    s3.make_bucket(bucket := fresh_name("bucket"))
    storage = client.storage(bucket)
    fill(storage, {"a/1.png": texture(1), "b/1.png": texture(1)})

    def opened(**options: Any) -> Any:
        return loader.S3ImageFolder(bucket_name=bucket, prefix="", transform=small, client=client, **options)

    assert opened().bucket_name == bucket
    fill(storage, {"a/2.png": texture(2)})
    storage.remove("b/1.png")
    assert len(opened(cache=True)) == 2
    with pytest.raises(loader.MissingImageError, match=r"b/1\.png\. Found: no such object.*with refresh=True"):
        opened(cache=True)[1]
    with pytest.raises(loader.SplitError, match="class_level"):
        fill(storage, {"train/a/2.png": texture(2), "train/b/2.png": texture(2)})
        storage.remove("a/1.png")
        storage.remove("a/2.png")
        opened()
    assert opened(class_level="top").classes == ["train"]
    assert len(opened(cache=True)) == 2


def test_an_object_that_has_another_size_than_when_it_was_listed_is_an_error(
    s3: S3, client: Client, tmp_path: Path
) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    storage = client.storage(bucket)
    fill(storage, {"a/1.png": texture(1, width=8), "a/2.png": texture(2, width=8)})
    loader.S3ImageFolder(bucket, client=client, cache=tmp_path)
    storage.write_bytes("a/2.png", texture(2, width=80))
    folder = loader.S3ImageFolder(bucket, "", small, client=client, cache=tmp_path)
    replaced = r"Wanted the [\d,]+ bytes of s3://.*/a/2\.png that were listed\. Found: [\d,]+\..*with refresh=True"
    for read in (lambda: folder[1], lambda: folder.__getitems__([0, 1]), lambda: list(folder.stream())):
        with pytest.raises(loader.MissingImageError, match=replaced):
            read()
    refreshed = loader.S3ImageFolder(bucket, "", small, client=client, cache=tmp_path, refresh=True)
    assert len(list(refreshed.stream())) == 2
    assert refreshed.fingerprint == folder.fingerprint  # of the names


def test_undecodable_objects_are_left_out_on_request(s3: S3, client: Client, tmp_path: Path) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    fill(client.storage(bucket), {"a/0.png": texture(0), "a/1.png": texture(1), "a/2.png": b"no picture at all"})
    folder = loader.S3ImageFolder(bucket, "", small, client=client, cache=tmp_path, on_undecodable="skip")
    batches = [len(labels) for _, labels in DataLoader(folder, batch_size=3)]
    assert (batches, len(list(folder.stream()))) == ([2], 2)
    assert [(one.url, one.index) for one in folder.skipped] == [(f"s3://{bucket}/a/2.png", 2)] * 2
    for alone in (lambda: folder[2], lambda: folder.__getitems__([2])):
        with pytest.raises(loader.DecodeError, match=r"a/2\.png"):
            alone()


def test_folders_that_are_opened_at_once_are_listed_once(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "loader"), ThreadPoolExecutor(4) as pool:
        opened = [pool.submit(loader.S3ImageFolder, BUCKET, "train", client=client, cache=tmp_path) for _ in "1234"]
        assert {len(one.result()) for one in opened} == {len(NAMES)}
    assert caplog.text.count("listed ") == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_open_their_own_connections(open_tree: Callable[..., Any], workers: int) -> None:
    folder = open_tree("train", small)
    wanted = [folder[index] for index in range(len(folder))]  # connections of this process, which workers do not use
    images, labels = zip(*DataLoader(folder, batch_size=4, num_workers=workers), strict=True)
    assert torch.cat(labels).tolist() == folder.targets.tolist()
    assert torch.equal(torch.cat(images), torch.stack([image for image, _ in wanted]))
    stream = folder.stream(shuffle=False)
    found = sorted(
        label for _, labels in DataLoader(stream, batch_size=4, num_workers=workers) for label in labels.tolist()
    )
    assert found == folder.targets.tolist()
    assert folder[0][1] == 0


def keys(stream: Any, **options: Any) -> list[str]:
    """The addresses of a pass, in order."""
    return [url for url, _ in DataLoader(stream.map(_named), batch_size=None, **options)]


def _named(sample: tuple[str, io.BytesIO]) -> tuple[str, int]:
    url, file = sample
    return url, len(file.getvalue())


def test_a_stream_gives_each_sample_once(open_tree: Callable[..., Any]) -> None:
    folder = open_tree()
    urls = [folder.url(index) for index in range(len(folder))]
    for world_size, workers in ((1, 0), (3, 0), (2, 2)):
        streams = [folder.stream(seed=5, rank=rank, world_size=world_size, decode=False) for rank in range(world_size)]
        for epoch in (0, 3):
            for stream in streams:
                stream.set_epoch(epoch)
            found = [keys(stream, num_workers=workers) for stream in streams]
            assert sorted(url for own in found for url in own) == sorted(urls)
            assert list(map(len, found)) == list(map(len, streams))
            # Batches of one are taken from the workers in turn, so the order is that of one rank and process.
            order = [own[place] for place in range(len(found[0])) for own in found if place < len(own)]
            alone = folder.stream(seed=5, decode=False)
            alone.set_epoch(epoch)
            assert order == [url for url, _ in alone] != urls
    even = [folder.stream(rank=rank, world_size=4, drop_last=True, decode=False) for rank in range(4)]
    assert [len(keys(stream)) for stream in even] == [len(folder) // 4] * 4
    assert [url for url, _ in folder.stream(shuffle=False, decode=False)] == urls


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_each_pass_is_the_next_epoch(open_tree: Callable[..., Any], options: dict[str, Any]) -> None:
    stream = open_tree().stream(seed=1, decode=False)
    batches = DataLoader(stream.map(_named), batch_size=None, **options)
    passes = [[url for url, _ in batches] for _ in range(2)]
    stream.set_epoch(0)
    passes.append([url for url, _ in batches])
    assert passes[0] == passes[2] != passes[1]


def test_functions_are_mapped_in_spawned_workers_too(open_tree: Callable[..., Any]) -> None:
    folder = open_tree("numbers", class_names="number")
    pipe = folder.stream(decode=False).map(label_of_url)
    found = [labels for _, labels in DataLoader(pipe, batch_size=4, num_workers=1, multiprocessing_context="spawn")]
    assert sorted(torch.cat(found).tolist()) == folder.targets.tolist()
    doubled = folder.stream(shuffle=False).map(lambda sample: sample[1]).map(lambda label: 2 * label)
    assert list(doubled) == (2 * folder.targets).tolist()
    assert len(doubled) == 15
    with pytest.raises(loader.OptionError, match=r"a function of a sample\. Found: 5"):
        doubled.map(5)


def _rank_of(rank: int, path: str, stream: Any, answers: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    own = stream.folder.stream(decode=False)
    answers.put((own.rank, own.world_size, [url for url, _ in own]))
    torch.distributed.destroy_process_group()


def test_ranks_come_from_torch_or_torchrun(
    open_tree: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = open_tree("numbers").stream()
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    ranks = [fork.Process(target=_rank_of, args=(rank, str(tmp_path / "meet"), stream, answers)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    found = sorted(answers.get(timeout=60) for _ in ranks)
    for rank in ranks:
        rank.join()
    assert [one[:2] for one in found] == [(0, 2), (1, 2)]
    assert len({*found[0][2], *found[1][2]}) == 15
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert (stream.folder.stream().rank, stream.folder.stream().world_size) == (1, 3)
    assert stream.folder.stream(rank=0, world_size=1).world_size == 1
    for wrong in ({"rank": 1}, {"rank": 2, "world_size": 2}, {"seed": "a"}, {"shuffle": 1}):
        with pytest.raises(loader.OptionError, match="Found"):
            stream.folder.stream(**wrong)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(loader.OptionError, match="Wanted RANK and WORLD_SIZE"):
        stream.folder.stream()
    with pytest.raises(loader.OptionError, match=r"loader\.S3ImageFolder\. Found: 'train'"):
        loader.S3ImageStream("train")  # type: ignore[arg-type]


def ends_with(dataset: Any, error: type[Exception], match: str, *, workers: int = 0) -> None:
    """A pass ends with this error. torch's leftovers are cleaned up here, not in a forked worker."""
    with pytest.raises(error, match=match):
        list(DataLoader(dataset, num_workers=workers))
    gc.collect()


def test_missing_and_undecodable_objects_are_named(client: Client, s3: S3, tmp_path: Path) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    storage = client.storage(bucket)
    fill(storage, {"a/0.png": texture(0), "a/1.png": texture(1), "a/2.png": b"no picture at all"})
    folder = loader.S3ImageFolder(bucket, "", small, client=client, cache=tmp_path)
    storage.remove("a/1.png")
    gone = rf"Wanted s3://{bucket}/a/1\.png\. Found: no such object\. Was it deleted since the folder was listed\?"
    bad = rf"Wanted a picture at s3://{bucket}/a/2\.png\. Found: 17 bytes that begin with b'no pic"
    with pytest.raises(loader.MissingImageError, match=gone):
        folder[1]
    with pytest.raises(loader.DecodeError, match=bad):
        folder.__getitems__([0, 2])
    ends_with(folder.stream(shuffle=False), loader.MissingImageError, gone)
    ends_with(folder, loader.MissingImageError, gone, workers=1)
    storage.write_bytes("a/1.png", texture(1))
    ends_with(folder, loader.DecodeError, bad)
    ends_with(folder.stream(shuffle=False), loader.DecodeError, bad)


def _refuse(sample: Any) -> None:
    picture = sample if isinstance(sample, Image.Image) else sample[0]
    raise ZeroDivisionError(f"of {picture.mode}")


def test_exceptions_of_transforms_propagate(open_tree: Callable[..., Any]) -> None:
    folder = open_tree("train", _refuse)
    ends_with(folder, ZeroDivisionError, "of RGB")
    ends_with(folder.stream(), ZeroDivisionError, "of RGB")
    ends_with(open_tree().stream().map(_refuse), ZeroDivisionError, "of RGB")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3]:
    """A server for one test, which may end it."""
    with S3(tmp_path / "s3") as server:
        server.make_bucket("bucket")
        yield server


def test_an_endpoint_that_goes_down_is_retried_and_then_named(server: S3, tmp_path: Path) -> None:
    client = make_client(server.endpoint, server.access_key, server.secret_key)
    fill(client.storage("bucket"), {f"a/{number}.png": texture(number) for number in range(9)})
    folder = loader.S3ImageFolder("bucket", client=client, cache=tmp_path, timeout=30, reads=2)
    samples = iter(folder.stream(shuffle=False))
    next(samples)
    server.stop()
    back = threading.Timer(0.5, server.start)
    back.start()
    assert len(list(samples)) == 8  # it was back in time
    back.join()
    hasty = loader.S3ImageFolder("bucket", client=client, cache=tmp_path, timeout=0.5, reads=2)
    samples = iter(hasty.stream(shuffle=False))
    next(samples)
    server.stop()
    missing = r"Wanted s3://bucket/a/\d\.png within 0\.5 s\. Found: no answer\. Is it up"
    started = time.monotonic()
    with pytest.raises(loader.UnreachableError, match=missing):
        list(samples)
    with pytest.raises(loader.UnreachableError, match=missing):
        hasty[8]
    assert time.monotonic() - started < 60
