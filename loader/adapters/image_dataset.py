"""A split as torch's map-style dataset: images by index; the images of a batch are read in parallel."""

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from formats.pictures import Orientation
from loader.adapters.collation import Sample
from loader.adapters.passes import Passes
from loader.adapters.pictures import check_orientation, decoded_picture
from loader.adapters.undecodable import decode_error
from loader.batch import Batch
from loader.cassandra.cluster import Cluster, ClusterOptions
from loader.errors import OptionError, closed
from loader.mixed.fetchers import fetchers_of
from loader.options import check_functions, check_int, check_seconds, index_in
from loader.prefetch.fetch_thread import fetch_engine
from loader.prefetch.split_batches import batcher_of, read_batch
from loader.prefetch.split_features import open_features
from loader.splits import Split

_ADVICE = "Leave it out with torch.utils.data.Subset."


class ImageDataset(Dataset[Any]):
    """The images of a split by index, for ``DataLoader(dataset, batch_size=b, shuffle=True, num_workers=k)``.

    ``dataset[i]`` is ``(image, label)`` of position i of the split. The image is an RGB image of PIL, or the result of
    ``transform``. The label is an int, an encoded mask or array, or the result of ``target_transform``. A split without
    labels gives only images. The values of ``features`` follow as tensors, in their order.

    Your sampler chooses the order and distributes samples to ranks. Use this dataset with tools that work by index,
    such as accelerate's ``prepare``, Hugging Face's ``Trainer`` and torch's samplers. A source with `TorchDataset`
    reads further ahead, balances ranks and resumes exactly.

    Each process, and each worker process, opens its own connections when it first reads. Reading raises
    `MissingImageError` and `DecodeError`, which name the image, `UnreachableError`, `AccessError`, `TableError`,
    IndexError and, after `close`, `ClosedError`. Errors of a transform are raised as they are.

    Args:
        split: What `open_split` or `open_rows` returned, read from ``cluster``; or what `open_folder` returned, read
            from its files.
        transform: Called with each RGB image of PIL.
        target_transform: Called with each label.
        features: Features that the split was made with (``split.py --features``), or all of a feature service, as
            ``service:NAME``.
        orientation: "upright", or "stored" for images that are not turned by EXIF, as torchvision's ImageFolder gives
            them.
        cluster: The Cassandra to read from, by default the one that ``imagestrata up`` started.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which the read of an image fails.
        max_in_flight: An upper limit for the number of reads in flight, which follows from measurements.
        **where: The arguments of `Cluster`, such as ``hosts``, instead of ``cluster``.

    Raises:
        OptionError: An option is out of its range. A DataLoader raises it for images that do not make a batch, such as
            tensors of different sizes, or images of PIL because there is no ``transform``.
    """

    def __init__(
        self,
        split: Split,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        features: Sequence[str] = (),
        orientation: Orientation = "upright",
        cluster: Cluster | None = None,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
        **where: Unpack[ClusterOptions],
    ) -> None:
        if not isinstance(split, Split):
            raise OptionError(f"Wanted a split from loader.open_split, or a folder. Found: {split!r}")
        check_functions(transform=transform, target_transform=target_transform)
        check_orientation(orientation)
        self.split, self.transform, self.target_transform = split, transform, target_transform
        self._orientation = orientation
        self._features = open_features(split, features)
        self._make_fetcher, read = fetchers_of(split, cluster, where)
        self._where = "" if read is None else f", hosts={list(read.hosts)}, port={read.port}"
        self._budget = check_int("memory_budget", memory_budget, 1)
        self._max_in_flight = check_int("max_in_flight", max_in_flight, 1)
        self._timeout = check_seconds("timeout", timeout)
        self._passes = Passes()  # shared with workers, for `close`
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._engine = fetch_engine(
            self._make_fetcher,
            batcher_of(self.split, batch_size=sys.maxsize),  # each request is one batch
            budget=self._budget,
            max_in_flight=self._max_in_flight,
            timeout=self._timeout,
        )
        self._closing = weakref.finalize(self, self._engine.close)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_engine", "_closing")}
        return kept | {"_features": tuple(self._features)}  # not the arrays

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _features=open_features(state["split"], state["_features"]))
        self._begin()

    def __repr__(self) -> str:
        return f"ImageDataset({self.split!r}{self._where})"

    def __len__(self) -> int:
        return len(self.split)

    @property
    def classes(self) -> list[str]:
        """The names of the classes by their numbers; the number itself where a name is not known."""
        return [self.split.class_names.get(label, str(label)) for label in range(self.split.num_classes)]

    @property
    def targets(self) -> NDArray[np.int64]:
        """Class numbers by index, int64 ``(n,)``. Raises `OptionError` for a split that has none."""
        if self.split.labels is None:
            raise OptionError(f"Wanted a split that knows class numbers. Found: {self.split!r}")
        return self.split.labels.astype(np.int64)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch, read in parallel. torch's DataLoader calls this."""
        positions = [index_in(len(self), index) for index in indices]
        if not positions:
            return []
        if self._is_closed or (get_worker_info() is not None and self._passes.is_closed):
            raise closed()
        batch = read_batch(self._engine, self.split, np.array(positions, dtype=np.int64), features=self._features)
        labels: Sequence[Any] = batch.label_blobs or batch.labels.tolist()
        images = [self._decoded(batch, place) for place in range(len(batch))]
        if labels and self.target_transform is not None:
            labels = list(map(self.target_transform, labels))
        features = [torch.from_numpy(values) for values in batch.features.values()]
        columns: list[Iterable[Any]] = [images, *([labels] if labels else []), *features]
        return [Sample(sample) for sample in zip(*columns, strict=True)] if len(columns) > 1 else images

    def close(self) -> None:
        """Close the connections. You may call it twice. Reading raises `ClosedError` afterwards, also in workers."""
        if not self._is_closed:
            self._engine.close()
            self._passes.close()
            self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _decoded(self, batch: Batch, place: int) -> Any:
        image = decoded_picture(batch.images[place], self._orientation)
        if isinstance(image, Exception):
            raise decode_error(self.split, batch, place, image, _ADVICE) from image
        return image if self.transform is None else self.transform(image)
