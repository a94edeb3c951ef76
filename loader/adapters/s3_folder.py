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

from loader.adapters.collation import Sample
from loader.adapters.pictures import decoded_picture
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
    """An object that was left out because it is no picture: its address, its index, and why."""

    url: str
    index: int
    reason: str


class S3ImageFolder(Dataset[Any]):
    """A tree of class folders in a bucket, ``PREFIX/CLASS/**/image``, as torchvision's ImageFolder is one on a disk.

    ``folder[i]`` is ``(picture, label)``: an RGB picture of PIL, or what ``transform`` makes of it, and an int, or what
    ``target_transform`` makes of it. Attributes:

    - ``classes``: the class folders' names; ``class_to_idx``: their labels, a dictionary; ``num_classes``: the highest
      label + 1
    - ``samples``: ``(key, label)`` by index, a sequence that is made as it is looked at; keys are those in the bucket
    - ``targets``: int64 ``(n,)``, labels by index

    With ``class_names="name"`` classes stand in code-point order, and labels are their places: classes, labels and the
    order of samples are ImageFolder's for the same tree. With "number" names are the labels themselves (``007`` is
    7), which stay what they are when classes are added; classes then stand in the order of these. Which files count
    is as for `open_folder`.

    The bucket is listed when the folder is made, class folders side by side and a thousand keys a request; processes of
    a host that make it at once share one listing, and map it from a file of about 60 bytes a key. With ``cache`` (True:
    ``$IMAGESTRATA_CACHE``, or a folder in the user's cache; else a folder) the listing that is there is used, which the
    log says, and the bucket is listed where there is none or with ``refresh=True``. An object that is gone, or has
    another size than when it was listed, is an error.

    A tree whose classes are probably in deeper folders is refused, as `open_folder` does; ``class_level="top"`` takes
    the topmost folders.

    ``client`` is what ``make_client`` gives; None: as the environment says (``AWS_*``). Each process, a worker among
    them, opens connections of its own when it reads. A batch that a DataLoader asks for is read ``reads`` at a time,
    so that a far bucket does not cost a round trip an image; use ``num_workers`` as well, for decoding. ::

        folder = loader.S3ImageFolder("pictures", "imagenet/train", transform)
        for images, labels in torch.utils.data.DataLoader(folder, batch_size=256, shuffle=True, num_workers=8):
            ...

    Objects that are no pictures raise `DecodeError`, or are left out of batches and streams with
    ``on_undecodable="skip"`` and noted in `skipped`, of the process that reads. ``folder[i]`` and a batch of nothing
    else raise it in any case.

    Raises `OptionError` for options out of their range, `AccessError` and `UnreachableError` if the endpoint does not
    let us in, `SplitError` for a place without class folders, for a class without a picture, for names that are no
    numbers, for a cache that cannot be written. Reading raises `MissingImageError`, `AccessError`, `DecodeError`, and
    `UnreachableError` when an object did not come within ``timeout`` seconds, in which it is asked for again and again;
    all name the object. What a transform raises is raised.
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
        reads: int = 16,
        timeout: float = 60.0,
    ) -> None:
        if (bucket_name is None) == (bucket is None):
            raise OptionError(f"Wanted bucket_name, or bucket, its other name. Found: {bucket_name!r} and {bucket!r}")
        name: str = bucket_name if bucket_name is not None else bucket  # type: ignore[assignment]
        if client is not None and not isinstance(client, Client):
            raise OptionError(f"Wanted a client, as make_client gives it. Found: {client!r}")
        if isinstance(name, str) and "://" in name:
            raise OptionError(f"Wanted a bucket by its name alone, and the folder as prefix. Found: {name!r}")
        for what, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise OptionError(f"Wanted {what} as a function. Found: {function!r}")
        check_choice("class_names", class_names, get_args(ClassNames))
        check_class_level(class_level)
        check_choice("on_undecodable", on_undecodable, get_args(OnUndecodable))
        check_bools(refresh=refresh)
        check_int("reads", reads, 1, _MOST_READS)
        check_seconds("timeout", timeout)
        client = client or make_client()
        self.transform, self.target_transform = transform, target_transform
        self.address = client.address(name, prefix)
        self.bucket = self.bucket_name = name.strip("/")
        self.prefix = prefix.strip("/")
        self.timeout = timeout
        storage = client.storage(name, prefix)  # also where a listing is there: it says whether we may read
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
        self._skips = on_undecodable == "skip"
        self.skipped: list[SkippedObject] = []

    def __repr__(self) -> str:
        return f"S3ImageFolder({self.address!r}: {len(self):,} images of {len(self.classes):,} classes)"

    def __len__(self) -> int:
        return len(self._listing)

    @property
    def targets(self) -> NDArray[np.int64]:
        """Labels by index: int64 ``(n,)``."""
        return self.samples.labels

    @property
    def fingerprint(self) -> str:
        """What names and classes are there, in short: the same for the same tree in another bucket."""
        return self._listing.digest

    def __getitem__(self, index: int) -> Any:
        return self.decoded(index, self._whole(index, self._reader.read(self.samples.name(index))))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch, whose objects are read side by side; what torch's DataLoader asks for."""
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
        """Note an object that is no picture in `skipped`; raises the error unless such objects are left out."""
        if not self._skips:
            raise error
        self.skipped.append(SkippedObject(self.url(index), int(index), str(error)))

    def read_ahead(self, indices: Sequence[int] | Iterator[int], /) -> Iterator[tuple[int, bytes]]:
        """Indices and the bytes of their objects, in this order; up to ``reads`` are read beforehand."""
        for index, data in self._reader.read_ahead(indices, self.samples.name):
            yield index, self._whole(index, data)

    def _whole(self, index: int, data: bytes) -> bytes:
        """An object's bytes, if they are as many as when it was listed."""
        if len(data) != (size := self.samples.size(index)):
            raise MissingImageError(
                f"Wanted the {size:,} bytes of {self.url(index)} that were listed. Found: {len(data):,}. "
                f"Was it replaced since? {ANEW}"
            )
        return data

    def decoded(self, index: int, data: bytes, /) -> Sample:
        """The sample that an object's bytes make, transformed. Raises `DecodeError`."""
        picture, label = decoded_picture(data), self.samples.label(index)
        if isinstance(picture, Exception):
            raise DecodeError(
                f"Wanted a picture that PIL can decode at {self.url(index)}. "
                f"Found: {len(data)} bytes that begin with {data[:12]!r}."
            ) from picture
        return Sample(
            (
                picture if self.transform is None else self.transform(picture),
                label if self.target_transform is None else self.target_transform(label),
            )
        )

    def url(self, index: int, /) -> str:
        """The address of a sample, ``s3://bucket/key``; of a local client, its path."""
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
        """The samples as a stream, shuffled and shared out to ranks and workers: an `S3ImageStream`."""
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
            "Say class_names='name' to have names numbered."
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
