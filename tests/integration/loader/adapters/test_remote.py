"""Shards as an iterable dataset: webdataset-style code on S3, torch's loaders and workers, and without torch."""

import os
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from imagestrata.devstack.servers.s3 import S3
from loader import ShardError
from loader.shards import Client, RemoteDataset, make_client, upload_cv_dataset
from tests.support.pictures import SHADES, picture
from tests.support.services import fresh_name
from tests.support.shard_folders import first_shard, upload

COUNT = 90

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A local folder with a bucket `remote` that contains shards."""
    client = make_client(tmp_path_factory.mktemp("remote"))
    upload(client, "remote", "x", count=COUNT, workers=1)
    return client


def test_existing_webdataset_code_works_unchanged(s3: S3, tmp_path: Path) -> None:
    from torchvision import transforms  # takes seconds, which every process of a run would spend
    from torchvision.datasets import ImageFolder

    for label in range(3):
        (tmp_path / str(label)).mkdir()
        for number in range(30):
            (tmp_path / str(label) / f"{number}.jpg").write_bytes(picture(label, format="JPEG"))
    URL, ACCESS_KEY, SECRET_KEY = s3.endpoint, s3.access_key, s3.secret_key
    bucket, folder = fresh_name("bucket"), "imagenet-val"
    s3.make_bucket(bucket)
    client = make_client(URL, ACCESS_KEY, SECRET_KEY)
    ds = ImageFolder(str(tmp_path))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder=folder, maxsize=1e8, maxcount=100000, workers=2)
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
    dataloader: DataLoader[Any] = DataLoader(dataset, num_workers=2, batch_size=None)
    for _ in range(2):
        sizes = []
        for image, label in dataloader:
            assert image.shape[1:] == (3, 32, 32)
            assert label.dtype == torch.int64
            assert ((image.mean(dim=(1, 2, 3)) * 255 / SHADES).round() == label).all()
            sizes.append(len(image))
        assert sizes == [64, 26]


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_the_order_is_the_same_for_any_number_of_workers(
    request: pytest.FixtureRequest, local: Client, place: str
) -> None:
    client, bucket = local, "remote"
    if place == "bucket":
        s3: S3 = request.getfixturevalue("s3")
        s3.make_bucket(bucket := fresh_name("bucket"))
        client = make_client(s3.endpoint, s3.access_key, s3.secret_key)
        upload(client, bucket, "x", count=COUNT, workers=1)

    def make() -> RemoteDataset:
        keys = RemoteDataset(client, bucket, "x", seed=3, mix=20).map(lambda sample: sample["__key__"])
        return keys.batched(7, collation_fn=list)

    batches = make()
    wanted = [list(batches), list(batches)]
    for workers in (1, 3) if place == "folder" else (2,):
        loader = DataLoader(make(), num_workers=workers, batch_size=None)
        assert [list(loader), list(loader)] == wanted
    assert sorted(chain.from_iterable(wanted[0])) == sorted(chain.from_iterable(wanted[1]))


@pytest.mark.parametrize("steps", [0, 3])
def test_a_stateful_data_loader_resumes_at_the_next_batch(local: Client, steps: int) -> None:
    def make() -> RemoteDataset:
        plain = RemoteDataset(local, "remote", "x", mix=20).map(lambda sample: sample["__key__"])
        return plain.batched(7, collation_fn=list)

    def stateful() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(make(), batch_size=None, num_workers=2)

    batches = stateful()
    taken = list(islice(iter(batches), steps))
    other = stateful()
    other.load_state_dict(batches.state_dict())
    assert taken + list(other) == list(make())


def test_remote_datasets_work_without_torch(local: Client) -> None:
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


def test_a_damaged_shard_is_named_by_workers_too(tmp_path: Path) -> None:
    local = make_client(tmp_path)
    upload(local, "remote", "x", count=30, workers=1)
    shard = first_shard(Path(local.address("remote", "x")))
    shard.write_bytes(shard.read_bytes()[:-600])
    for workers in (0, 2):
        batches = RemoteDataset(local, "remote", "x").batched(10)
        with pytest.raises(ShardError, match=rf"samples [\d,]+ to [\d,]+ in {shard.name} of .*ends 600 bytes earlier"):
            list(DataLoader(batches, num_workers=workers, batch_size=None))
