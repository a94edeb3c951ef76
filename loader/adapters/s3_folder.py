"""Class folders in a bucket as torch's map-style dataset."""

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from formats.pictures import Orientation
from loader.adapters.collation import Sample
from loader.adapters.pictures import check_orientation, decoded_picture
from loader.adapters.undecodable import OnUndecodable
from loader.errors import DecodeError, MissingImageError, OptionError, SplitError
from loader.folder.levels import ClassLevel, check_class_level
from loader.options import check_bools, check_choice, check_int, check_seconds
from loader.s3.client import Client, make_client
from loader.s3.listing import list_classes
from loader.s3.listing_cache import Listing, cached_listing
from loader.s3.reader import ANEW, ObjectReader

if TYPE_CHECKING:
    from loader.adapters.s3_stream import S3ImageStream

ClassNames: TypeAlias = Literal["name", "number"]

_NUMBER = re.compile("[0-9]{1,10}")
_SHOWN = 5
_MOST_READS = 64


@dataclass(frozen=True, slots=True)
class SkippedObject:
    """An object that was left out because it is not a picture.

    Attributes:
        url: The address of the object.
        index: The index of the sample; -1 for an object that the listing left out by its name.
        reason: The message of the error.
    """

    url: str
    index: int
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
        for what, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise OptionError(f"Wanted {what} as a function. Found: {function!r}")
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
        call = None if class_level == "top" else partial(_call, self.bucket, self.prefix)
        self._listing = cached_listing(
            None if isinstance(cache, bool) else cache,
            place=f"{self.address} at {_endpoint(client)}{'' if call else ', topmost folders'}",
            refresh=refresh or not cache or client.is_local,
            make=lambda: list_classes(storage, call=call),
        )
        self.class_to_idx = _numbered(list(self._listing.counts), class_names, self.address)
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
        from loader.adapters.s3_stream import S3ImageStream

        return S3ImageStream(
            self,
            seed=seed,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            decode=decode,
        )


class Samples(Sequence[tuple[str, int]]):
    """``(key, label)`` by index, from a listing: classes in the order of their labels, their files in its order."""

    def __init__(self, listing: Listing, class_to_idx: dict[str, int], prefix: str) -> None:
        self._listing, self._prefix = listing, f"{prefix}/" if prefix else ""
        first_rows = dict(zip(listing.counts, accumulate(listing.counts.values(), initial=0), strict=False))
        names = sorted(class_to_idx, key=lambda name: class_to_idx[name])
        self._counts = [listing.counts[name] for name in names]
        self._starts = list(accumulate(self._counts, initial=0))[:-1]
        self._rows = [first_rows[name] for name in names]
        self._labels = [class_to_idx[name] for name in names]

    def __len__(self) -> int:
        return len(self._listing)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return self._prefix + self.name(index), self.label(index)

    def __repr__(self) -> str:
        return f"Samples({len(self):,}, the first {self[0]!r})"

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """int64 ``(n,)``, read-only."""
        labels = np.repeat(np.array(self._labels, dtype=np.int64), self._counts)
        labels.flags.writeable = False
        return labels

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "labels"}

    def name(self, index: int, /) -> str:
        """The object's name with its class, relative to the folder. Raises IndexError."""
        place, index = self._place(index)
        return self._listing.name(self._rows[place] + index - self._starts[place])

    def size(self, index: int, /) -> int:
        """The bytes of an object when it was listed. Raises IndexError."""
        place, index = self._place(index)
        return self._listing.size(self._rows[place] + index - self._starts[place])

    def label(self, index: int, /) -> int:
        """The label of a sample. Raises IndexError."""
        return self._labels[self._place(index)[0]]

    def _place(self, index: int) -> tuple[int, int]:
        """The class's place among the classes, and the index counted from the front."""
        found = int(index) + len(self) if index < 0 else int(index)
        if not 0 <= found < len(self):
            raise IndexError(f"Wanted an index from {-len(self)} to {len(self) - 1}. Found: {index}")
        return bisect_right(self._starts, found) - 1, found


def _numbered(names: list[str], class_names: ClassNames, address: str) -> dict[str, int]:
    """The labels of class folders, in the order of labels."""
    if class_names == "name":
        return {name: label for label, name in enumerate(names)}
    others = [name for name in names if not _NUMBER.fullmatch(name) or int(name) >= 1 << 31]
    if others:
        shown = ", ".join(map(repr, others[:_SHOWN])) + (", ..." if len(others) > _SHOWN else "")
        raise SplitError(
            f"Wanted class folders in {address} whose names are numbers from 0 to {(1 << 31) - 1}. Found: {shown}. "
            "Use class_names='name' to number the names."
        )
    by_number: dict[int, str] = {}
    for name in names:
        if (other := by_number.setdefault(int(name), name)) != name:
            raise SplitError(f"Wanted one class folder for each number in {address}. Found: {other!r} and {name!r}")
    return {by_number[number]: number for number in sorted(by_number)}


def _call(bucket: str, prefix: str, folder: str, split: str) -> str:
    return f"loader.S3ImageFolder({bucket!r}, {'/'.join(filter(None, (prefix, folder)))!r})"


def _endpoint(client: Client) -> str:
    from formats.stores.s3 import S3Access

    return client.url or S3Access.from_environment().place
