"""Datasets as WebDataset shards on an object store or in a folder: write them once, stream them back::

    from loader.shards import RemoteDataset, make_client, upload_cv_dataset

    client = make_client("https://store:9000", ACCESS_KEY, SECRET_KEY)      # or make_client("/mnt/shards"): a folder
    upload_cv_dataset(ImageFolder("/data/val"), client=client, bucket="images", base_folder="val",
                      maxsize=1e8, maxcount=100_000, workers=30)

    dataset = (RemoteDataset(client, "images", "val")
               .decode("pil")
               .to_tuple("jpg;png", "cls")
               .map_tuple(preproc, lambda label: label)
               .batched(64))
    for images, labels in torch.utils.data.DataLoader(dataset, num_workers=3, batch_size=None):
        ...                                                                 # a new order each pass

    for image, label in RemoteDataset(client, "images", "val").decode("pil").to_tuple("jpg;png", "cls"):
        ...                                                                 # also without torch

``spark-submit jobs/shard.py`` writes larger datasets. `loader.ShardSource` reads shards for DALI.
"""

import typing

from loader.s3.client import Client, make_client
from loader.shards.shard_set import Shards, open_shards
from loader.shards.upload import upload_cv_dataset

if typing.TYPE_CHECKING:
    from loader.adapters.remote import RemoteDataset

__all__ = ["Client", "RemoteDataset", "Shards", "make_client", "open_shards", "upload_cv_dataset"]


def __getattr__(name: str) -> typing.Any:
    if name != "RemoteDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loader.errors import require

    require("webdataset", extra="shards", purpose="RemoteDataset")
    from loader.adapters.remote import RemoteDataset  # with torch, where that is installed: it takes seconds to import

    return RemoteDataset
