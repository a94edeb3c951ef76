"""Class folders in a bucket as torch's datasets: by index, and as a stream that ranks and workers share."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset

from formats.pictures import Orientation
from formats.stores.s3 import S3Access
from loader.adapters.accelerate import check_not_prepared
from loader.adapters.collation import Sample
from loader.adapters.passes import Pass, Passes, this_worker
from loader.adapters.pictures import check_orientation, decoded_picture
from loader.adapters.undecodable import OnUndecodable
from loader.errors import DecodeError, MissingImageError, OptionError
from loader.folder.levels import ClassLevel, check_class_level
from loader.options import check_bools, check_choice, check_functions, check_int, check_seconds
from loader.order.permutation import epoch_order
from loader.ranks import check_detected, ranks
from loader.s3.client import Client, make_client
from loader.s3.listing import list_classes
from loader.s3.listing_cache import cached_listing
from loader.s3.reader import ANEW, ObjectReader
from loader.s3.samples import ClassNames, Samples, numbered

_MOST_READS = 64
_PIECE = 4096  # places of the order that are looked up together


@dataclass(frozen=True, slots=True)
class SkippedObject:
    """An object that was left out because it is not a picture."""

    url: str
    index: int  # of the sample; -1 for an object that the listing left out by its name
    reason: str


class S3ImageFolder(Dataset[Any]):
    """A tree of class folders in a bucket, ``PREFIX/CLASS/**/image``, like torchvision's ImageFolder on a disk.

    ``folder[i]`` is ``(image, label)``. The image is an RGB image of PIL, or the result of ``transform``. The label is
    an int, or the result of ``target_transform``::

        folder = loader.S3ImageFolder("pictures", "imagenet/train", transform)
        for images, labels in torch.utils.data.DataLoader(folder, batch_size=256, shuffle=True, num_workers=8):
            ...

    The bucket is listed when the folder is made: several class folders in parallel, a thousand keys per request.
    Processes of a host that list it at the same time share one listing, a memory-mapped file of about 60 bytes per key.
    Objects are images if their names have an extension of an image, and neither they nor a folder above them begin with
    a dot, as for `open_folder`. The others are in ``skipped`` (the first thousand), and their numbers in the log.
    Objects whose names end with a slash only mark folders: a folder with nothing else is no class.

    An object that is missing, or has another size than in the listing, is an error. A tree whose classes are probably
    in deeper folders is refused, as by `open_folder`.

    Each process, and each worker process, opens its own connections when it reads. A batch is read ``reads`` objects at
    a time, so that a distant bucket does not cost a round trip for each image. Use ``num_workers`` as well, for
    decoding. Reading raises `MissingImageError`, `AccessError`, `DecodeError` and `UnreachableError`, which name the
    object. Errors of a transform are raised as they are.

    Args:
        bucket_name: The name of the bucket.
        prefix: The folder with the class folders.
        transform: Called with each RGB image of PIL.
        target_transform: Called with each label.
        bucket: Another name for ``bucket_name``.
        client: The connection settings, from `loader.shards.make_client`; None: as the environment says (``AWS_*``).
        class_names: "name": classes are in code-point order and labels are their places, as in ImageFolder. "number":
            the names of the folders are the labels (``007`` is 7), which do not change when classes are added.
        class_level: "top" takes the topmost folders as the classes in any case.
        cache: A folder for the listing, which is used again; True: ``$IMAGESTRATA_CACHE``, or a folder in your user
            cache.
        refresh: Whether the bucket is listed again although there is a listing.
        on_undecodable: "raise", or "skip" to leave objects that are not pictures out of batches and streams, and record
            them in ``skipped``, in the process that reads. ``folder[i]``, and a batch of nothing else, raise in any
            case.
        orientation: "upright", or "stored" for images that are not turned by EXIF, as torchvision's ImageFolder gives
            them.
        reads: Objects that are read at the same time.
        timeout: Seconds in which a failing request is repeated.

    Attributes:
        classes: The names of the class folders, in the order of their labels.
        class_to_idx: The label of each class.
        num_classes: The highest label + 1.
        samples: ``(key, label)`` by index, computed when you look; keys are those in the bucket.
        skipped: The objects that the listing, and this process, left out.

    Raises:
        OptionError: An option is out of its range.
        AccessError: The endpoint refuses access.
        UnreachableError: The endpoint does not answer.
        SplitError: There are no class folders, a class has no image, names are not numbers, or the cache cannot be
            written.
    """

    def __init__(
        self,
        bucket_name: str | None = None,
        prefix: str = "",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        bucket: str | None = None,
        client: Client | None = None,
        class_names: ClassNames = "name",
        class_level: ClassLevel | None = None,
        cache: bool | str | os.PathLike[str] | None = None,
        refresh: bool = False,
        on_undecodable: OnUndecodable = "raise",
        orientation: Orientation = "upright",
        reads: int = 16,
        timeout: float = 60.0,
    ) -> None:
        if (bucket_name is None) == (bucket is None):
            raise OptionError(
                f"Wanted either bucket_name or bucket, which mean the same. Found: {bucket_name!r} and {bucket!r}"
            )
        name: str = bucket_name if bucket_name is not None else bucket  # type: ignore[assignment]
        if client is not None and not isinstance(client, Client):
            raise OptionError(f"Wanted a client from loader.shards.make_client. Found: {client!r}")
        if isinstance(name, str) and "://" in name:
            raise OptionError(f"Wanted only the name of a bucket, and the folder as prefix. Found: {name!r}")
        check_functions(transform=transform, target_transform=target_transform)
        check_choice("class_names", class_names, get_args(ClassNames))
        check_class_level(class_level)
        check_choice("on_undecodable", on_undecodable, get_args(OnUndecodable))
        check_orientation(orientation)
        check_bools(refresh=refresh)
        check_int("reads", reads, 1, _MOST_READS)
        check_seconds("timeout", timeout)
        client = client or make_client()
        self.transform, self.target_transform = transform, target_transform
        self.address = client.address(name, prefix)
        self.bucket = self.bucket_name = name.strip("/")
        self.prefix = prefix.strip("/")
        self.timeout = timeout
        storage = client.storage(name, prefix)  # also if there is a listing: this checks that we may read
        place = f"{self.address} at {client.url or S3Access.from_environment().place}"
        call = None if class_level == "top" else partial(_call, self.bucket, self.prefix)
        self._listing = cached_listing(
            None if isinstance(cache, bool) else cache,
            place=f"{place}{'' if call else ', topmost folders'}",
            refresh=refresh or not cache or client.is_local,
            make=lambda: list_classes(storage, call=call),
        )
        self.class_to_idx = numbered(list(self._listing.counts), class_names, self.address)
        self.classes = sorted(self.class_to_idx, key=lambda name: self.class_to_idx[name])
        self.num_classes = max(self.class_to_idx.values()) + 1
        self.samples = Samples(self._listing, self.class_to_idx, self.prefix)
        self._reader = ObjectReader(client, name, prefix, reads=reads, timeout=timeout)
        self._skips, self._orientation = on_undecodable == "skip", orientation
        self.skipped = [SkippedObject(self._reader.url(name), -1, why) for name, why in self._listing.skipped]

    def __repr__(self) -> str:
        return f"S3ImageFolder({self.address!r}: {len(self):,} images of {len(self.classes):,} classes)"

    def __len__(self) -> int:
        return len(self._listing)

    @property
    def targets(self) -> NDArray[np.int64]:
        """Labels by index, int64 ``(n,)``."""
        return self.samples.labels

    @property
    def fingerprint(self) -> str:
        """A digest of names and classes. It is the same for the same tree in another bucket."""
        return self._listing.digest

    def __getitem__(self, index: int) -> Any:
        return self.decoded(index, self._whole(index, self._reader.read(self.samples.name(index))))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch; their objects are read in parallel. torch's DataLoader calls this."""
        samples, error = [], None
        for index, data in self.read_ahead(indices):
            try:
                samples.append(self.decoded(index, data))
            except DecodeError as undecodable:
                self.skip(index, undecodable)
                error = undecodable
        if error is not None and not samples:  # torch cannot put a batch of nothing together
            raise error
        return samples

    def skip(self, index: int, error: DecodeError, /) -> None:
        """Record in `skipped` an object that is not a picture; raise the error unless such objects are left out.

        Args:
            index: The index of the sample.
            error: The error of its decoding.

        Raises:
            DecodeError: Objects are not skipped.
        """
        if not self._skips:
            raise error
        self.skipped.append(SkippedObject(self.url(index), int(index), str(error)))

    def read_ahead(self, indices: Sequence[int] | Iterator[int], /) -> Iterator[tuple[int, bytes]]:
        """Indices and the bytes of their objects, in this order; up to ``reads`` of them are read ahead."""
        for index, data in self._reader.read_ahead(indices, self.samples.name):
            yield index, self._whole(index, data)

    def _whole(self, index: int, data: bytes) -> bytes:
        """An object's bytes. Raises `MissingImageError` if their number differs from the listing."""
        if len(data) != (size := self.samples.size(index)):
            raise MissingImageError(
                f"Wanted the {size:,} bytes of {self.url(index)} that were listed. Found: {len(data):,}. "
                f"Was it replaced since? {ANEW}"
            )
        return data

    def decoded(self, index: int, data: bytes, /) -> Sample:
        """Decode an object's bytes and apply the transforms.

        Args:
            index: The index of the sample.
            data: The bytes of its object.

        Returns:
            The sample, ``(image, label)``.

        Raises:
            DecodeError: The bytes are not a picture.
        """
        picture, label = decoded_picture(data, self._orientation), self.samples.label(index)
        if isinstance(picture, Exception):
            raise DecodeError(
                f"Wanted a picture at {self.url(index)}. "
                f"Found: {len(data)} bytes that begin with {data[:12]!r}, {picture}."
            ) from picture
        return Sample(
            (
                picture if self.transform is None else self.transform(picture),
                label if self.target_transform is None else self.target_transform(label),
            )
        )

    def url(self, index: int, /) -> str:
        """The address of a sample, ``s3://bucket/key``; the path, for a local client."""
        return self._reader.url(self.samples.name(index))

    def stream(
        self,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        decode: bool = True,
    ) -> "S3ImageStream":
        """The samples as a stream, shuffled and distributed to ranks and workers.

        Args:
            seed: The seed of the order.
            shuffle: Whether each epoch has a new order.
            rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither: then they are
                detected.
            world_size: The number of ranks.
            drop_last: Whether the last samples are left out, so that ranks have the same number.
            decode: Whether samples are decoded.

        Returns:
            An `S3ImageStream`.
        """
        return S3ImageStream(
            self,
            seed=seed,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            decode=decode,
        )


class S3ImageStream(IterableDataset[Any]):
    """The samples of an `S3ImageFolder` as a stream, for ``DataLoader(stream, batch_size=b, num_workers=k)``::

        folder = loader.S3ImageFolder("pictures", "imagenet/train", class_names="number")
        stream = folder.stream(seed=0).map(augment)             # augment takes and returns (image, label)
        for images, labels in torch.utils.data.DataLoader(stream, batch_size=256, num_workers=8):
            ...                                                 # one epoch a pass

    A sample is what the folder gives, ``(image, label)`` after its transforms. With ``decode=False`` it is ``(url,
    file)``, the object's address and its bytes as an open file, as in torch's DataPipes of S3 files::

        def process(sample):
            url, file = sample
            return to_tensor(PIL.Image.open(file).convert("RGB")), int(url.split("/")[-2])

        stream = folder.stream(decode=False).map(process)

    **Order.** The order of an epoch depends only on the listing, ``seed`` and the epoch; with ``shuffle=False`` it is
    the folder's. Rank r of W takes places r, r + W, ... of it, and worker j of k takes the j-th, (j + k)-th, ... of
    these::

        place             0     1     2     3     4     5     6        with W = 2 and k = 2
        rank.worker     0.0   1.0   0.1   1.1   0.0   1.0   0.1

    So each sample comes exactly once per epoch over all ranks and workers, and the numbers of samples of two ranks
    differ by one at most. A worker makes batches of its own samples, so each worker may end with a smaller one.

    Each pass is the next epoch, from 0 on, with and without ``persistent_workers``; `set_epoch` chooses another. All
    workers of a pass read the same epoch, as with `TorchDataset`. Each worker reads up to ``reads`` objects (of the
    folder) ahead. Functions run in its main thread, in order. A pass raises what reading the folder and what the
    functions raise.

    Args:
        folder: The folder.
        seed: The seed of the order.
        shuffle: Whether each epoch has a new order.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither: then they are detected
            when the stream is made.
        world_size: The number of ranks.
        drop_last: Whether the last samples of the order, fewer than ``world_size``, are left out, so that ranks have
            the same number.
        decode: Whether samples are decoded.

    Raises:
        OptionError: An option is out of its range.
    """

    def __init__(
        self,
        folder: S3ImageFolder,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        decode: bool = True,
    ) -> None:
        if not isinstance(folder, S3ImageFolder):
            raise OptionError(f"Wanted a loader.S3ImageFolder. Found: {folder!r}")
        check_bools(shuffle=shuffle, drop_last=drop_last, decode=decode)
        self.folder, self.seed, self.shuffle = folder, check_int("seed", seed), shuffle
        self._has_detected_ranks = rank is None
        self.rank, self.world_size = ranks(rank, world_size)
        self._drop_last, self._decode = drop_last, decode
        self._functions: tuple[Callable[[Any], Any], ...] = ()
        self._passes = Passes()

    def __repr__(self) -> str:
        return (
            f"S3ImageStream({self.folder!r}, seed={self.seed}, shuffle={self.shuffle}, rank={self.rank}, "
            f"world_size={self.world_size})"
        )

    def __len__(self) -> int:
        """The samples of an epoch on this rank, over all workers."""
        return len(share(self._rows, self.rank, self.world_size, 0, 1))

    def map(self, function: Callable[[Any], Any], /) -> "S3ImageStream":
        """A stream with a function applied to each sample. Both streams count the same epochs."""
        if not callable(function):
            raise OptionError(f"Wanted a function of a sample. Found: {function!r}")
        mapped = object.__new__(type(self))
        mapped.__dict__.update(self.__dict__, _functions=(*self._functions, function))
        return mapped

    def set_epoch(self, epoch: int, /) -> None:
        """Make the next pass this epoch, as with a DistributedSampler. Later passes count from it."""
        check_not_prepared(self.rank, self.world_size)
        self._passes.restart(check_int("epoch", epoch, 0))

    def __getstate__(self) -> dict[str, Any]:
        self._check_ranks()  # a spawned worker has no torch.distributed to compare with
        return self.__dict__

    def __iter__(self) -> Iterator[Any]:
        self._check_ranks()
        number, count = this_worker()
        begun = self._passes.begin(first_epoch=0)
        return self._pass(share(self._rows, self.rank, self.world_size, number, count), begun)

    def _check_ranks(self) -> None:
        if self._has_detected_ranks:
            check_detected(self.rank, self.world_size)

    @property
    def _rows(self) -> int:
        """The places of the order that are distributed."""
        rows = len(self.folder)
        return rows - rows % self.world_size if self._drop_last else rows

    def _pass(self, places: range, begun: Pass) -> Iterator[Any]:
        for index, data in self.folder.read_ahead(self._indices(places, begun.epoch)):
            try:
                sample: Any = (
                    self.folder.decoded(index, data) if self._decode else (self.folder.url(index), io.BytesIO(data))
                )
            except DecodeError as error:
                self.folder.skip(index, error)
                continue
            for function in self._functions:
                sample = function(sample)
            yield Sample(sample) if type(sample) is tuple else sample
        self._passes.confirm(begun, timeout=self.folder.timeout)

    def _indices(self, places: range, epoch: int) -> Iterator[int]:
        order = epoch_order(
            len(self.folder), fingerprint=self.folder.fingerprint, seed=self.seed, epoch=epoch, shuffle=self.shuffle
        )
        for start in range(0, len(places), _PIECE):
            piece = np.array(places[start : start + _PIECE], dtype=np.int64)
            yield from (piece if order is None else order(piece)).tolist()


def share(rows: int, rank: int, world_size: int, worker: int, workers: int, /) -> range:
    """The places of ``rows`` that a worker of a rank takes, ascending."""
    return range(rank + world_size * worker, rows, world_size * workers)


def _call(bucket: str, prefix: str, folder: str, split: str) -> str:
    return f"loader.S3ImageFolder({bucket!r}, {'/'.join(filter(None, (prefix, folder)))!r})"
