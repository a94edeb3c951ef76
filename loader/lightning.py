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

from collections.abc import Callable, Iterator, Mapping
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

    Lightning's checkpoints include the position of the training, as the state of this DataModule and of the iterator:
    ``fit(ckpt_path=...)`` continues with the next image, on the same number of ranks, or on another one that makes the
    same global batch, because Lightning counts batches. This holds whenever Lightning asks for the loader, also for
    ``trainer.estimated_stepping_batches`` in ``configure_optimizers``. A training that continues from a checkpoint
    without a position raises `loader.StateError` instead of starting again with the first image. `setup` and the
    loaders raise what the sources raise, and `loader.OptionError` if there are fewer images than one batch of all
    ranks.

    Args:
        train: Makes the source of the training when it is called with ``batch_size``, ``rank``, ``world_size``,
            ``seed`` and ``last_batch_policy``: `loader.CassandraSource` or `loader.FolderSource` with everything else
            filled in.
        val: Makes the source of the validation, with ``shuffle`` instead of ``last_batch_policy``.
        batch_size: Images of a batch on one rank.
        size: The height and width of the images in pixels.
        seed: The seed of the order.
        cluster: Passed to ``train`` and ``val``, which have none filled in.
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
        cluster: loader.Cluster | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if cluster is not None and any("cluster" in getattr(make, "keywords", ()) for make in (train, val)):
            raise loader.OptionError("Wanted cluster here, or filled in in train and val. Found: both.")
        self._make = {"train": partial(train, last_batch_policy="DROP"), "val": partial(val, shuffle=False)}
        self._usual: dict[str, Any] = {"batch_size": batch_size, "seed": seed}
        self._usual |= {} if cluster is None else {"cluster": cluster}
        self._options: dict[str, Any] = {"size": size, **options}
        self._sources: dict[str, loader.Source] = {}
        self._made: dict[str, loader.ClassificationIterator] = {}
        self._state: Mapping[str, Any] | None = None

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
        self._made.clear()
        self._state = None
        while self._sources:
            self._sources.popitem()[1].close()

    def state_dict(self) -> dict[str, Any]:
        """The position of the training, for Lightning's checkpoints."""
        train = self._made.get("train")
        return {} if train is None else {"train": train.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue the training from a position, whether Lightning has the loader already or asks for it later."""
        if self.trainer is not None and self.trainer.state.fn != "fit":
            return  # an evaluation of a checkpoint, after which a training may begin anew
        self._state = state["train"]
        if (train := self._made.get("train")) is not None:
            train.load_state_dict(self._state)

    def train_dataloader(self) -> loader.ClassificationIterator:
        """The batches of the training: always the same iterator, whose next pass is the next epoch."""
        if "train" not in self._made:
            train = self._made["train"] = self._batches("train")
            if self._state is not None:
                train.load_state_dict(self._state)
        return self._made["train"]

    def val_dataloader(self) -> loader.ClassificationIterator:
        """The batches of the validation."""
        if "val" not in self._made:
            self._made["val"] = self._batches("val")
        return self._made["val"]

    def _batches(self, side: str) -> loader.ClassificationIterator:
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        place: dict[str, Any] = {"device_id": device.index if device.type == "cuda" else None, "output": "torch"}
        options = {"train": side == "train", **place, **self._options}
        if side == "train":
            return _TrainBatches(self._sources[side], self.trainer, **options)
        return loader.ClassificationIterator(self._sources[side], **options)


class _TrainBatches(loader.ClassificationIterator):
    """Batches whose state is what Lightning has trained on, and which do not start again after a checkpoint."""

    def __init__(self, source: loader.Source, trainer: "lightning.Trainer", **options: Any) -> None:
        super().__init__(source, **options)
        self._trainer, self._is_loaded = trainer, False

    def state_dict(self) -> dict[str, Any]:
        """The position; after the last batch of a limited epoch (``limit_train_batches``), the next epoch."""
        if self.given is not None and self._trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            following = self._position.plan.after(self.given.epoch + 1)
            return self._position.recorded(following, between="nothing").to_dict()
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        super().load_state_dict(state)
        self._is_loaded = True

    def __iter__(self) -> Iterator[Any]:
        # Here with the first batch: Lightning makes iterators before it restores a checkpoint.
        if self.given is None and self._trainer.ckpt_path and self._trainer.global_step and not self._is_loaded:
            raise loader.StateError(
                f"Wanted the position of the training data in {self._trainer.ckpt_path}. Found: none was loaded. "
                "Was it saved with another DataModule? To train with this data from the beginning, load only the "
                "weights of the model, and leave out ckpt_path."
            )
        yield from super().__iter__()
