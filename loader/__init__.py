"""Batches for training, from a split and the images in Cassandra::

    import loader

    split = loader.open_split("splits/imagenette", index=0)
    split.show(hosts=["127.0.0.1"])                # some of its images, with their classes
    with loader.CassandraSource(split, hosts=["127.0.0.1"], batch_size=256, seed=0) as source:    # ranks are detected
        for images, labels in loader.ClassificationIterator(source, size=224, train=True):
            ...                                    # float32 (b, 3, 224, 224) and int64 (b,); one epoch a pass

        for batch in source.epoch(0):              # the encoded images, without DALI
            batch.images, batch.labels, batch.ids

        for arrays in loader.GenericIterator(source, graph, names=["images", "boxes"]):
            arrays["boxes"]                        # the outputs of your own DALI graph
        images, labels = source.read()             # inside a DALI pipeline that you run yourself

        dataset = loader.TorchDataset(source, transform=...)     # transforms of PIL images, in worker processes
        for images, labels in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=4):
            ...                                    # the transformed images, and int64 (b,)

        pictures = loader.ImageDataset(split, transform, hosts=["127.0.0.1"])    # by index, for accelerate and samplers
        for images, labels in torch.utils.data.DataLoader(pictures, batch_size=256, shuffle=True, num_workers=4):
            ...

        folder = loader.open_folder("/data/imagenette/train")    # class folders instead of tables; the rest is the same
        source = loader.FolderSource(folder, batch_size=256, seed=0)

        stores = [loader.Cluster(hosts=["127.0.0.1"]), loader.open_shards("s3://bucket/imagenette")]   # of one split
        source = loader.FailoverSource(split, stores=stores, batch_size=256)    # from the first that answers

        mixture = loader.mix_splits({"photos": split, "scans": folder})         # several as one, in exact shares
        source = loader.MixedSource(mixture, shares={"photos": 3, "scans": 1}, batch_size=256)

        shards = loader.open_shards("s3://bucket/imagenette")    # written by jobs/shard.py; see also loader.shards
        source = loader.ShardSource(shards, batch_size=256, seed=0)

        pictures = loader.S3ImageFolder("bucket", "imagenette/train", transform)     # torchvision's ImageFolder on S3
        for images, labels in torch.utils.data.DataLoader(pictures, batch_size=256, shuffle=True, num_workers=4):
            ...                                    # pictures.stream() is the iterable form

        frame = split.to_pandas(metadata=True, metadata_cache="build/metadata")      # ids, labels, paths, ...
        state = source.state_dict()                # in the middle of an epoch; later, on any number of ranks:
        source.load_state_dict(state)              # epoch source.first_epoch continues with the next sample
    loader.History(split, state).seen(image)       # the epochs, steps and ranks that had an image
    loader.record_model("model.pt", training=split)              # beside it: which images it was trained on

DALI, torch and the Cassandra driver are imported when they are first used. Errors::

    LoaderError(ImagestrataError)
    ├── OptionError(ValueError)         an option is out of its range, or two contradict each other
    ├── MissingExtraError(ImportError)  a library is not installed; the message says what to install
    ├── SplitError                      no readable split at the named place
    ├── StateError(ValueError)          a state of another split or order, or of one rank where all are needed
    ├── TableError                      a table is missing, or has other columns than the split names
    ├── AccessError                     user, password, certificates or TLS are refused, or the right to read
    ├── UnreachableError                Cassandra, or a store, does not answer
    ├── MissingImageError               an image of a split, or its metadata, is missing, or too many are
    │   └── DeletedImageError           an image of a split was deleted on purpose
    ├── ChangedImageError               an image has other bytes than when its split was made
    ├── ShardError                      a shard is missing, damaged or does not match its manifest
    ├── DecodeError                     an image or a file of a sample cannot be decoded
    ├── DeliveryError                   an epoch has more or fewer samples than it should, or workers disagree on it
    └── ClosedError                     a source is used after it was closed
"""

import importlib
import typing

from loader.adapters.crops import crop_numbers, crop_window
from loader.adapters.history import History, Replayed, Seen
from loader.adapters.iterators import ClassificationIterator, GenericIterator
from loader.adapters.merging import merge_states
from loader.batch import Batch, Skipped
from loader.cassandra.access import Access
from loader.cassandra.cluster import Cluster
from loader.errors import (
    AccessError,
    ChangedImageError,
    ClosedError,
    DecodeError,
    DeletedImageError,
    DeliveryError,
    LoaderError,
    MissingExtraError,
    MissingImageError,
    OptionError,
    ShardError,
    SplitError,
    StateError,
    TableError,
    UnreachableError,
)
from loader.folder.folders import Folder, open_folder
from loader.mixed.mixture import Mixture, mix_splits
from loader.model_record import record_model
from loader.order.buckets import aspect_buckets
from loader.order.draws import Draws
from loader.prefetch.stats import Stats
from loader.shards.shard_set import Shards, open_shards
from loader.source import Source
from loader.sources import CassandraSource, FailoverSource, FolderSource, MixedSource, ShardSource
from loader.splits import Split, open_rows, open_split
from loader.splits import Views as _Views

if typing.TYPE_CHECKING:
    import PIL.Image
    import pyarrow

    from loader.adapters.image_dataset import ImageDataset
    from loader.adapters.s3_folder import S3ImageFolder, S3ImageStream
    from loader.adapters.torch_dataset import TorchDataset

__all__ = [
    "Access",
    "AccessError",
    "Batch",
    "CassandraSource",
    "ChangedImageError",
    "ClassificationIterator",
    "ClosedError",
    "Cluster",
    "DecodeError",
    "DeletedImageError",
    "DeliveryError",
    "Draws",
    "FailoverSource",
    "Folder",
    "FolderSource",
    "GenericIterator",
    "History",
    "ImageDataset",
    "LoaderError",
    "MissingExtraError",
    "MissingImageError",
    "MixedSource",
    "Mixture",
    "OptionError",
    "Replayed",
    "S3ImageFolder",
    "S3ImageStream",
    "Seen",
    "ShardError",
    "ShardSource",
    "Shards",
    "Skipped",
    "Source",
    "Split",
    "SplitError",
    "StateError",
    "Stats",
    "TableError",
    "TorchDataset",
    "UnreachableError",
    "aspect_buckets",
    "crop_numbers",
    "crop_window",
    "merge_states",
    "mix_splits",
    "open_folder",
    "open_rows",
    "open_shards",
    "open_split",
    "record_model",
]


def _table(split: Split, /, **options: typing.Any) -> "pyarrow.Table":
    from loader.adapters.arrow_table import arrow_table  # pyarrow takes a third of a second to import

    return arrow_table(split, **options)


def _sheet(split: Split, *which: typing.Any, **change: typing.Any) -> "PIL.Image.Image":
    from loader.adapters.split_sheet import sheet_of_split  # needs Pillow

    return sheet_of_split(split, *which, **change)


Split.views = _Views(table=_table, sheet=_sheet)

# These need torch, which takes seconds to import.
_OF_TORCH = {
    "ImageDataset": "image_dataset",
    "S3ImageFolder": "s3_folder",
    "S3ImageStream": "s3_folder",
    "TorchDataset": "torch_dataset",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loader.errors import require

    require("torch", extra="train", purpose=name)
    return getattr(importlib.import_module(f"loader.adapters.{_OF_TORCH[name]}"), name)
