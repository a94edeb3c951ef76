"""Batches for Lightning (``pip install 'imagestrata[lightning]'``)::

from functools import partial
from loader.lightning import ClassificationData

train, val = (loader.open_split("splits/digits", index=index) for index in (0, 1))
data = ClassificationData(
    partial(loader.CassandraSource, train, hosts=["127.0.0.1"]),
    partial(loader.CassandraSource, val, hosts=["127.0.0.1"]),
    batch_size=64,
    size=224,
)
lightning.Trainer().fit(model, data)                         # and later, in the middle of an epoch as well:
lightning.Trainer().fit(model, data, ckpt_path="last.ckpt")  # goes on at the very next image
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import lightning

import loader


class ClassificationData(lightning.LightningDataModule):
    """A `loader.ClassificationIterator` each for training and validation, on each of Lightning's ranks.

    ``train`` and ``val`` make a source once they are told ``batch_size`` (of a rank), ``rank``, ``world_size`` and
    ``seed``: `loader.CassandraSource` or `loader.FolderSource` with all else filled in. Batches are those of the
    iterator: float32 ``(b, 3, size, size)`` and int64 ``(b,)``, on the rank's GPU where it has one; ``options`` are its
    other arguments. Training has a new order each epoch, the same on all ranks, and as many whole batches on each;
    validation has every image once, in one order.

    Lightning's checkpoints hold where training stands, because the iterator has a state: ``fit(ckpt_path=...)`` goes on
    at the very next image, on the same number of ranks or another that makes the same global batch; Lightning itself
    counts batches. Raises what the sources raise, and
    `loader.OptionError` for fewer images than one batch of all ranks.
    """

    def __init__(
        self,
        train: Callable[..., loader.Source],
        val: Callable[..., loader.Source],
        *,
        batch_size: int,
        size: int,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self._make = {"train": partial(train, last_batch_policy="DROP"), "val": partial(val, shuffle=False)}
        self._usual = {"batch_size": batch_size, "seed": seed}
        self._options: dict[str, Any] = {"size": size, **options}
        self._sources: dict[str, loader.Source] = {}

    def setup(self, stage: str) -> None:
        """Make the sources; they connect when they are first read."""
        assert self.trainer is not None
        share = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        for side, make in self._make.items():
            if side not in self._sources:
                self._sources[side] = make(**self._usual, **share)
        train = self._sources["train"]
        if not len(train):
            raise loader.OptionError(
                f"Wanted at least one batch of {train.batch_size * train.world_size} images. "
                f"Found: {len(train.split)} in {train.split}. Take a smaller batch_size."
            )

    def teardown(self, stage: str) -> None:
        """Give up connections, and what was read ahead."""
        while self._sources:
            self._sources.popitem()[1].close()

    def train_dataloader(self) -> loader.ClassificationIterator:
        """Batches of training."""
        return self._batches("train")

    def val_dataloader(self) -> loader.ClassificationIterator:
        """Batches of validation."""
        return self._batches("val")

    def _batches(self, side: str) -> loader.ClassificationIterator:
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        place: dict[str, Any] = {"device_id": device.index if device.type == "cuda" else None, "output": "torch"}
        return loader.ClassificationIterator(self._sources[side], train=side == "train", **place, **self._options)
