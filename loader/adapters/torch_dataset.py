"""The source under torch's DataLoader: an iterable dataset whose workers take turns at the batches of a rank."""

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, get_args

import torch
from torch.utils.data import IterableDataset, get_worker_info

from loader.adapters.accelerate import check_not_prepared, check_sharded
from loader.adapters.collation import collated
from loader.adapters.passes import Pass, Passes, this_worker
from loader.adapters.pictures import decoded_picture
from loader.adapters.undecodable import OnUndecodable, decode_error, left_out
from loader.batch import Batch
from loader.errors import DeliveryError, LoaderError, OptionError, StateError
from loader.options import check_bools, check_choice, check_int, name_of
from loader.source import Source, check_source

_FORMAT = 1
_ANOTHER_STATE = (
    "Wanted states to be loaded into the dataset, and workers that begin after that. "
    "Found: a source with another state. Use TorchDataset.load_state_dict and a new DataLoader."
)


_SHARED_OUT = ("memory_budget", "max_in_flight")
_DEALT = ("batch_size", "world_size", "streams", "mix")
"""What a state of shards has beside the size of global batches: with others, the same step is of other samples."""


class TorchDataset(IterableDataset[Any]):
    """The batches of a source for ``DataLoader(dataset, batch_size=None, num_workers=k)``, or a StatefulDataLoader.

    With a ``transform``, which makes an RGB picture of PIL a tensor (or whatever torch's ``default_collate`` takes):
    ``(images, labels)``, the collated images and int64 labels ``(b,)``, or the bytes of the masks or arrays of a split
    that has these; of a split without labels, the images alone. Without a transform: `Batch` objects.

    Each pass is the next epoch, from the source's first on, with and without ``persistent_workers``; `set_epoch` names
    another. Worker j of k delivers steps j, j + k, j + 2k, ... of the rank with a source of its own, which has a k-th
    of ``memory_budget`` and ``max_in_flight``; torch takes from workers in turn, so that batches come in the order of
    the epoch, the same for any number of workers. Workers agree on the epoch: a pass in which they do not, or in which
    one has not begun within the source's ``timeout``, ends with `DeliveryError`. Ranks are those of the source. Images
    that are no pictures are left out with ``on_undecodable="skip"``. What a worker skips is noted there, not in the
    main process; in place of a batch of which nothing is left (PARTIAL), it gives its next one.

    **accelerate.** Its ``prepare`` would share out a rank's share once more and lose the rest. Say ``sharded=True`` and
    use the DataLoader without ``prepare``; `ImageDataset` works with it. Without this, and in a DataLoader that was
    prepared, several processes raise `OptionError`.

    **Going on in the middle of an epoch.** A StatefulDataLoader saves and restores it, with as many workers as before.
    With a DataLoader, which reads ahead, the loop knows what it was given; any numbers of workers and ranks go on::

        for step, batch in enumerate(batches, source.first_step(epoch)):        # batches = DataLoader(dataset, ...)
            state = source.state_dict(epoch=epoch, steps=step + 1)              # or batch.epoch, batch.step + 1

        dataset.load_state_dict(state)      # into the dataset, not the source; the next pass is source.first_epoch

    Errors of a worker are raised in the main process, in their own class. Raises `OptionError` for a source with
    ``in_order=False``; a pass raises what reading the source raises, and `DecodeError` for an image that is no picture.
    """

    def __init__(
        self,
        source: Source,
        *,
        transform: Callable[[Any], Any] | None = None,
        on_undecodable: OnUndecodable = "raise",
        sharded: bool = False,
    ) -> None:
        check_source(source)
        check_bools(sharded=sharded)
        check_choice("on_undecodable", on_undecodable, get_args(OnUndecodable))
        if transform is not None and not callable(transform):
            raise OptionError(f"Wanted transform as a function of a picture. Found: {transform!r}")
        if not source.in_order:
            raise OptionError("Wanted a source that delivers in order. Found: in_order=False")
        self._source: Source | bytes = source
        self._sharded = sharded
        self._check_sharded()
        self._transform, self._skips = transform, on_undecodable == "skip"
        self._own: Source | None = None  # in a worker
        self._loaded = source.plan.loaded
        self._loads = 0
        self._resumed: tuple[int, int] | None = None
        self._passes = Passes()
        self._begun: Pass | None = None
        self._stands: tuple[int, int] | None = None
        source.delivery.leave()  # workers give batches away where the source does not see it

    def __repr__(self) -> str:
        return f"TorchDataset({self.source!r}, transform={name_of(self._transform)})"

    @property
    def source(self) -> Source:
        """The source, in a worker process a copy of it."""
        if isinstance(self._source, bytes):
            source: Source = pickle.loads(self._source)
            self._source = source
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        # Unpickled on first use: where that fails, the worker lives already and can tell.
        if not isinstance(self._source, bytes):
            self._check_sharded()
        packed = self._source if isinstance(self._source, bytes) else pickle.dumps(self._source)
        return {**self.__dict__, "_source": packed, "_own": None, "_begun": None}

    def __len__(self) -> int:
        """The batches of a whole epoch on this rank, over all workers."""
        return len(self.source)

    def set_epoch(self, epoch: int, /) -> None:
        """Let the next pass be this epoch, as with a DistributedSampler; those that follow count on from it."""
        check_not_prepared(self.source.rank, self.source.world_size)
        self._passes.restart(check_int("epoch", epoch, 0))

    def state_dict(self) -> dict[str, Any]:
        """Where this worker, or the main process without workers, stands: what a StatefulDataLoader asks for.

        Behind the last batch of an epoch it is the end of that epoch, which a pass without batches follows: a
        StatefulDataLoader knows whether that pass has been.
        """
        number, count = this_worker()
        epoch, steps = self._stands or self._where(number, self.source.first_epoch)
        begin = self.source.state_dict(epoch=epoch, steps=self.source.first_step(epoch))
        return {"format": _FORMAT, "worker": number, "workers": count, "epoch": epoch, "steps": steps, "begin": begin}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Let the next pass go on from a state of the source, for all workers to come, or from one of this dataset's.

        Workers that live on from an earlier pass (``persistent_workers``) raise `StateError` then: make a new
        DataLoader. Raises `StateError` also for a state of another split or order, or, of this dataset's, of another
        worker, number of workers or size of batches.
        """
        if "workers" not in state:
            self.source.load_state_dict(state)
            self._resumed = None
            self._loads = self._passes.restart(None, is_load=True)
        else:
            number, count = this_worker()
            size = self.source.batch_size * self.source.world_size
            wanted = (_FORMAT, number, count, size)
            try:
                begin, at = state["begin"], (int(state["epoch"]), int(state["steps"]))
                found = (state["format"], state["worker"], state["workers"], begin["global_batch_size"])
            except (KeyError, TypeError) as error:
                raise StateError(f"Wanted a state of a worker, as state_dict() gives it. Found: {error}") from None
            if found != wanted:
                raise StateError(
                    f"Wanted the state of (format, worker, workers, global batch) {wanted}. Found: {found}. "
                    "Only states of the source go on with other numbers of workers and ranks."
                )
            plan = self.source.plan  # the order of shards depends on more than that of splits
            other = {name: begin[name] for name in _DEALT if name in begin and begin[name] != getattr(plan, name)}
            if other:
                raise StateError(
                    f"Wanted the state of {', '.join(f'{name} {getattr(plan, name)}' for name in other)}. "
                    f"Found: {', '.join(map(str, other.values()))}. "
                    "Only states of the source go on with other numbers of workers and ranks."
                )
            self.source.load_state_dict(begin)
            # Where nothing was left, as DROP has it, the state is that of the next epoch.
            self._resumed = at if begin["epoch"] == at[0] else (at[0], len(self.source))
        self._loaded, self._own, self._stands = self.source.plan.loaded, None, None

    def __iter__(self) -> Iterator[Any]:
        self._check_sharded()
        # What is to come is settled here, before the first batch is asked for: StatefulDataLoader wants a state then.
        number, count = this_worker()
        if self._loaded != self.source.plan.loaded or self._loads != self._passes.loads:
            # Raised with the first batch: what fails before ends a worker without a word to the main process.
            return map(_refuse, [StateError(_ANOTHER_STATE)])
        resumed, self._resumed = self._resumed, None
        try:
            begun = self._passes.begin(
                first_epoch=self.source.first_epoch, epoch=None if resumed is None else resumed[0]
            )
        except DeliveryError as error:
            return map(_refuse, [error])
        self._begun = begun
        self._stands = resumed or self._where(number, begun.epoch)
        return self._pass(begun, number, count, *self._stands)

    def end_pass(self) -> None:
        """Wait until all workers of the pass that was begun last have begun it; who ends a pass early calls this.

        Raises `DeliveryError` if they have not within the source's timeout.
        """
        if self._begun is not None:
            self._passes.confirm(self._begun, timeout=self.source.timeout)

    def _check_sharded(self) -> None:
        check_sharded(self.source.rank, self.source.world_size, is_said=self._sharded)

    def _where(self, number: int, epoch: int) -> tuple[int, int]:
        return epoch, self.source.first_step(epoch) + number

    def _pass(self, begun: Pass, number: int, count: int, epoch: int, step: int) -> Iterator[Any]:
        source = self.source
        if get_worker_info() is not None:
            # A copy, also in a forked process, which must not touch what its parent's source has begun.
            shares = {name: max(1, getattr(source.options, name) // count) for name in _SHARED_OUT}
            source = self._own = self._own or source.again(**shares)
        self.source.note(epoch, step if count == 1 else None)
        before: Batch | None = None
        for batch in source.batches(epoch, offset=step - source.first_step(epoch), every=count):
            self._stands = epoch, batch.step + count
            source.note(epoch, batch.step + 1)
            if self._transform is None:
                yield batch
            elif (decoded := self._decoded(source, batch, before)) is not None:
                before, images = decoded
                yield _transformed(before, list(map(self._transform, images)))
        self._passes.confirm(begun, timeout=source.timeout)
        source.note(epoch + 1)

    def _decoded(self, source: Source, batch: Batch, before: Batch | None) -> tuple[Batch, list[Any]] | None:
        """The batch and its pictures, or what is left of both; None if nothing is."""
        images = [decoded_picture(image) for image in batch.images]
        if not (places := [place for place, image in enumerate(images) if isinstance(image, Exception)]):
            return batch, images
        if not self._skips:
            raise decode_error(batch, places[0], "PIL") from images[places[0]]
        rest = left_out(source, batch, places, before=before, library="PIL")
        return None if rest is None else (rest, [decoded_picture(image) for image in rest.images])


def _refuse(error: LoaderError) -> NoReturn:
    raise error


def _transformed(batch: Batch, images: list[Any]) -> Any:
    together = collated(images)
    if len(batch.labels):
        return together, torch.from_numpy(batch.labels).to(torch.int64)
    return (together, batch.label_blobs) if batch.label_blobs else together
