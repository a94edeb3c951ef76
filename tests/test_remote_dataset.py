"""Shards as an iterable dataset: the field's own lines, decoding and tuples, one order, exact states, without torch."""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from pictures import SHADES, picture
from PIL import Image
from shard_folders import CLASSES, first_shard, upload
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from devstack.s3 import S3
from loader import OptionError, ShardError, SplitError, StateError
from loader.shards import Client, RemoteDataset, make_client, upload_cv_dataset

COUNT = 90

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module", params=["folder", "s3"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    if request.param == "folder":
        client = make_client(tmp_path_factory.mktemp("remote"))
    else:
        server: S3 = request.getfixturevalue("s3")
        server.make_bucket("remote")
        client = make_client(server.endpoint, server.access_key, server.secret_key)
    upload(client, "remote", "x", count=COUNT)
    return client


@pytest.fixture
def local(tmp_path: Path) -> Client:
    upload(make_client(tmp_path), "remote", "x", count=COUNT)
    return make_client(tmp_path)


def keys(dataset: Any) -> list[str]:
    return [sample["__key__"] for sample in dataset]


def test_the_field_s_own_lines_work(s3: S3, tmp_path: Path) -> None:
    for label in range(3):
        (tmp_path / str(label)).mkdir()
        for number in range(30):
            (tmp_path / str(label) / f"{number}.jpg").write_bytes(picture(label, format="JPEG"))
    URL, ACCESS_KEY, SECRET_KEY, bucket, folder = s3.endpoint, s3.access_key, s3.secret_key, "field", "imagenet-val"
    s3.make_bucket(bucket)
    client = make_client(URL, ACCESS_KEY, SECRET_KEY)
    ds = ImageFolder(str(tmp_path))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder=folder, maxsize=1e8, maxcount=100000, workers=3)
    preproc = transforms.Compose(
        [transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = (
        RemoteDataset(client, bucket, folder)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(preproc, lambda x: x)
        .batched(64)
    )
    dataloader: DataLoader[Any] = DataLoader(dataset, num_workers=3, batch_size=None)
    for _ in range(2):
        sizes = []
        for image, label in dataloader:
            assert image.shape[1:] == (3, 32, 32)
            assert label.dtype == torch.int64
            assert ((image.mean(dim=(1, 2, 3)) * 255 / SHADES).round() == label).all()
            sizes.append(len(image))
        assert sizes == [64, 26]


def test_samples_are_dictionaries_of_bytes_and_every_pass_is_another_order(client: Client) -> None:
    dataset = RemoteDataset(client, "remote", "x")
    first = list(dataset)
    assert len(first) == len(dataset) == COUNT
    for sample in first:
        assert list(sample) == ["__key__", "__url__", "png", "cls", "json"]
        assert json.loads(sample["json"])["label"] == int(sample["cls"])
        assert sample["__url__"].endswith(".tar")
    assert dataset.classes == [f"class {label}" for label in range(CLASSES)]
    second = keys(dataset)
    assert sorted(second) == sorted(sample["__key__"] for sample in first)
    assert second != [sample["__key__"] for sample in first]
    dataset.set_epoch(1)
    assert keys(dataset) == second
    in_order = RemoteDataset(client, "remote", "x", shuffle=False, streams=1)
    assert keys(in_order) == sorted(second)


def test_pictures_and_labels_without_batches(client: Client) -> None:
    for image, label in RemoteDataset(client, "remote", "x").decode("pil").to_tuple("jpg;png", "cls"):
        assert isinstance(image, Image.Image)
        assert image.getpixel((4, 4)) == (SHADES * label,) * 3


def test_functions_of_webdataset(client: Client) -> None:
    named = RemoteDataset(client, "remote", "x").decode("rgb8").rename(image="png", label="cls")
    wide = named.map_dict(label=lambda label: label + 100).map(lambda sample: (sample["image"].shape, sample["label"]))
    assert {shape for shape, _ in wide} == {(48, 48, 3)}
    assert {label for _, label in wide} == set(range(100, 100 + CLASSES))
    batches = named.to_tuple("image", "label").batched(40).map(lambda batch: len(batch[0]))
    assert list(batches) == [40, 40, 10]
    own = named.to_tuple("label").batched(40, collation_fn=sum_of)
    assert sum(own) == sum(number % CLASSES for number in range(COUNT))
    assert len(own) == 3


def sum_of(samples: list[Any]) -> int:
    return sum(int(label) for (label,) in samples)


def test_one_order_for_any_number_of_workers(client: Client) -> None:
    dataset = RemoteDataset(client, "remote", "x", seed=3, mix=20).map(lambda sample: sample["__key__"])
    batches = dataset.batched(7, collation_fn=list)
    wanted = [list(batches), list(batches)]
    for workers in (1, 3, 4):
        again = RemoteDataset(client, "remote", "x", seed=3, mix=20).map(lambda sample: sample["__key__"])
        loader = DataLoader(again.batched(7, collation_fn=list), num_workers=workers, batch_size=None)
        assert [list(loader), list(loader)] == wanted
    assert sorted(chain.from_iterable(wanted[0])) == sorted(chain.from_iterable(wanted[1]))


def test_ranks_have_different_samples_and_as_many_batches(local: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        ours = RemoteDataset(local, "remote", "x").map(lambda sample: sample["__key__"]).batched(5, collation_fn=list)
        found.append(list(ours))
    assert {len(batches) for batches in found} == {5}
    count = Counter(key for batches in found for batch in batches for key in batch)
    assert len(count) == COUNT
    assert count.total() == 100
    given = RemoteDataset(local, "remote", "x", rank=3, world_size=4).map(lambda sample: sample["__key__"])
    assert list(given.batched(5, collation_fn=list)) == found[3]
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(OptionError, match=r"RANK and WORLD_SIZE as numbers\. Found: 'first', '4'"):
        RemoteDataset(local, "remote", "x")


@pytest.mark.parametrize("steps", [0, 3, 12])
def test_states_go_on_exactly_in_a_loop_and_under_a_stateful_data_loader(local: Client, steps: int) -> None:
    def make() -> RemoteDataset:
        plain = RemoteDataset(local, "remote", "x", mix=20).map(lambda sample: sample["__key__"])
        return plain.batched(7, collation_fn=list)

    wanted = list(make())
    one = make()
    taken = list(islice(iter(one), steps))
    again = make()
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert taken + list(again) == wanted

    def stateful() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(make(), batch_size=None, num_workers=2)

    batches = stateful()
    taken = list(islice(iter(batches), steps))
    other = stateful()
    other.load_state_dict(batches.state_dict())
    assert taken + list(other) == wanted


def test_a_loop_s_state_goes_on_with_other_ranks_and_datasets_count_alone(local: Client) -> None:
    base = RemoteDataset(local, "remote", "x").map(lambda sample: sample["__key__"])
    one, other = base.batched(8, collation_fn=list), base.map(str)
    before = list(chain.from_iterable(islice(iter(one), 3)))
    assert list(other) == list(base.map(str))
    state = one.state_dict()
    for size, options in [(5, {}), (4, {}), (4, {"mix": 9}), (4, {"streams": 3})]:  # 4: the same batch of all ranks
        after: list[str] = []
        for rank in range(2):
            given: dict[str, Any] = {"rank": rank, "world_size": 2, "last_batch_policy": "PARTIAL", **options}
            ours = RemoteDataset(local, "remote", "x", **given).map(lambda sample: sample["__key__"])
            batches = ours.batched(size, collation_fn=list)
            batches.load_state_dict(state)
            after += chain.from_iterable(batches)
        assert sorted(before + after) == sorted(f"{number:09}" for number in range(COUNT))
    with pytest.raises(StateError, match="Found: None"):
        one.load_state_dict(None)  # type: ignore[arg-type]


def test_webdataset_itself_reads_the_shards(local: Client) -> None:
    root = Path(local.address("remote", "x"))
    tars = [str(path) for path in sorted(root.glob("*.tar"))]
    theirs = webdataset.WebDataset(tars, shardshuffle=False).decode("pil").to_tuple("png", "cls", "__key__")
    found = list(theirs)
    assert [key for _, _, key in found] == [f"{number:09}" for number in range(COUNT)]
    assert all(image.getpixel((4, 4)) == (SHADES * label,) * 3 for image, label, _ in found)


def test_it_works_without_torch(local: Client) -> None:
    script = f"""
import sys
sys.modules["torch"] = None
sys.modules["torch.utils"] = None
from loader.shards import RemoteDataset, make_client
dataset = RemoteDataset(make_client({local.url!r}), "remote", "x").decode("pil").to_tuple("jpg;png", "cls")
first = [label for image, label in dataset]
second = [label for image, label in dataset]
batches = [len(label) for image, label in dataset.batched(40)]
state = dataset.state_dict()
dataset.load_state_dict(state)
print(len(first), sorted(first) == sorted(second), first != second, batches, "torch" in str(type(dataset).__mro__))
"""
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False)
    assert found.stdout == "90 True True [40, 40, 10] False\n", found.stderr


def test_a_shard_that_is_damaged_is_told_by_workers_too(local: Client) -> None:
    shard = first_shard(Path(local.address("remote", "x")))
    shard.write_bytes(shard.read_bytes()[:-600])
    for workers in (0, 2):
        batches = RemoteDataset(local, "remote", "x").batched(10)
        with pytest.raises(ShardError, match=rf"samples [\d,]+ to [\d,]+ in {shard.name} of .*ends 600 bytes earlier"):
            list(DataLoader(batches, num_workers=workers, batch_size=None))


def test_what_cannot_be_is_told(local: Client) -> None:
    with pytest.raises(SplitError, match="a folder of shards at"):
        RemoteDataset(local, "remote", "nowhere")
    with pytest.raises(OptionError, match="a client, as loader"):
        RemoteDataset("http://127.0.0.1", "remote", "x")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="rank and world_size, or neither"):
        RemoteDataset(local, "remote", "x", rank=1)
    dataset = RemoteDataset(local, "remote", "x")
    with pytest.raises(OptionError, match="batch_size"):
        dataset.batched(0)
    with pytest.raises(OptionError, match=r"samples to be batched\. Found: batches"):
        dataset.batched(2).batched(2)
    with pytest.raises(StateError):
        dataset.load_state_dict({"format": 1})
    fewer = dataset.decode("pil").map(refuse_some).to_tuple("png")
    with pytest.raises(ZeroDivisionError):
        list(fewer)
    skipping = RemoteDataset(local, "remote", "x")._with(lambda samples: (one for one in samples if refuse(one)))
    with pytest.raises(OptionError, match=r"functions that give a sample for each\. Found: 0 of 1"):
        list(skipping)


def refuse(sample: Any) -> bool:
    return False


def refuse_some(sample: Any) -> Any:
    return 1 // 0


def test_arrays_are_stacked(local: Client) -> None:
    (images, labels), *_ = RemoteDataset(local, "remote", "x").decode("rgb").to_tuple("png", "cls").batched(8)
    assert (images.shape, images.dtype, labels.dtype) == ((8, 48, 48, 3), np.float32, np.int64)
