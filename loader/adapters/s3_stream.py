"""Class folders in a bucket as torch's iterable dataset: listed, shuffled, distributed, mapped."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from loader.adapters.accelerate import check_not_prepared
from loader.adapters.collation import Sample
from loader.adapters.passes import Pass, Passes, this_worker
from loader.adapters.s3_folder import S3ImageFolder
from loader.errors import DecodeError, OptionError
from loader.options import check_bools, check_int
from loader.order.permutation import epoch_order
from loader.ranks import check_detected, ranks

_PIECE = 4096  # places of the order that are looked up together


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
