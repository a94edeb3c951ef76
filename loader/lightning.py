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
lightning.Trainer().fit(model, data)                         # and later, also in the middle of an epoch:
lightning.Trainer().fit(model, data, ckpt_path="last.ckpt")  # continues with the next image
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import loader
from loader.errors import require

if TYPE_CHECKING:
    import lightning
else:
    lightning = require("lightning", extra="lightning", purpose="loader.lightning")


class ClassificationData(lightning.LightningDataModule):
    """A `loader.ClassificationIterator` each for training and validation, on every rank of Lightning.

    Batches are float32 ``(b, 3, size, size)`` and int64 ``(b,)``, on the rank's GPU if it has one. Training has a new
    order in each epoch, the same on all ranks, and the same number of full batches on each. Validation has every image
    once, in one order.

    Lightning's checkpoints include the position of the training, because the iterator has a state:
    ``fit(ckpt_path=...)`` continues with the next image, on the same number of ranks, or on another one that makes the
    same global batch, because Lightning counts batches. `setup` and the loaders raise what the sources raise, and
    `loader.OptionError` if there are fewer images than one batch of all ranks.

    Args:
        train: Makes the source of the training when it is called with ``batch_size``, ``rank``, ``world_size``,
            ``seed`` and ``last_batch_policy``: `loader.CassandraSource` or `loader.FolderSource` with everything else
            filled in.
        val: Makes the source of the validation, with ``shuffle`` instead of ``last_batch_policy``.
        batch_size: Images of a batch on one rank.
        size: The height and width of the images in pixels.
        seed: The seed of the order.
        **options: Other arguments of `loader.ClassificationIterator`.
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
        """Make the sources. They connect when they are first read."""
        assert self.trainer is not None
        share = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        for side, make in self._make.items():
            if side not in self._sources:
                self._sources[side] = make(**self._usual, **share)
        train = self._sources["train"]
        if not len(train):
            raise loader.OptionError(
                f"Wanted at least one batch of {train.batch_size * train.world_size} images. "
                f"Found: {len(train.split)} in {train.split}. Use a smaller batch_size."
            )

    def teardown(self, stage: str) -> None:
        """Close the sources."""
        while self._sources:
            self._sources.popitem()[1].close()

    def train_dataloader(self) -> loader.ClassificationIterator:
        """The batches of the training."""
        return self._batches("train")

    def val_dataloader(self) -> loader.ClassificationIterator:
        """The batches of the validation."""
        return self._batches("val")

    def _batches(self, side: str) -> loader.ClassificationIterator:
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        place: dict[str, Any] = {"device_id": device.index if device.type == "cuda" else None, "output": "torch"}
        return loader.ClassificationIterator(self._sources[side], train=side == "train", **place, **self._options)
