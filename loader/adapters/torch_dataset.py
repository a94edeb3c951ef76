"""A source under torch's DataLoader: an iterable dataset whose workers take turns with the batches of a rank."""

import pickle
import random
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, get_args

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from formats.pictures import Orientation
from loader.adapters.accelerate import check_not_prepared, check_sharded
from loader.adapters.collation import collated
from loader.adapters.passes import Pass, Passes, this_worker
from loader.adapters.pictures import check_orientation, decoded_picture
from loader.adapters.undecodable import OnUndecodable, left_out
from loader.batch import Batch
from loader.errors import DeliveryError, LoaderError, OptionError, StateError, closed
from loader.options import check_bools, check_choice, check_int, name_of
from loader.order.delivery import Position
from loader.order.draws import Draws
from loader.source import Source, check_source

_FORMAT = 1
_ANOTHER_STATE = (
    "Wanted a state that was loaded into the dataset before its workers started. "
    "Found: a source with another state. Use TorchDataset.load_state_dict and a new DataLoader."
)


_SHARED_OUT = ("memory_budget", "max_in_flight")
# What a state of shards has besides the global batch size. With other values, a step has other samples.
_DEALT = ("batch_size", "world_size", "streams", "mix")


class TorchDataset(IterableDataset[Any]):
    """The batches of a source for ``DataLoader(dataset, batch_size=None, num_workers=k)``, or a StatefulDataLoader.

    With a ``transform``, a batch is ``(images, labels)``: the transformed images, put together by torch's
    ``default_collate``, and int64 labels ``(b,)``, or the encoded masks or arrays of a split that has these. A split
    without labels gives the images alone. The source's features follow as tensors, in their order. Without a
    transform, batches are `Batch` objects.

    Each pass is the next epoch, starting with the source's first one, with and without ``persistent_workers``;
    `set_epoch` chooses another. Worker j of k delivers steps j, j + k, j + 2k, ... of the rank with its own source,
    which has 1/k of ``memory_budget`` and ``max_in_flight``. torch takes batches from the workers in turn, so they
    come in the order of the epoch for any number of workers. All workers of a pass must read the same epoch: a pass in
    which they do not, or in which one has not started within the source's ``timeout``, ends with `DeliveryError`. What
    a worker skips is recorded in that worker, not in the main process. Where nothing is left of a batch (PARTIAL), the
    worker delivers its next one. When the source is closed, workers raise `ClosedError`, also those that run already.

    **accelerate.** ``prepare`` would divide a rank's share again and lose the rest. Use ``sharded=True`` and a
    DataLoader without ``prepare``; or use `ImageDataset`, which works with it. Several processes raise `OptionError`
    without ``sharded=True``, and with a DataLoader that was prepared.

    **Resuming in the middle of an epoch.** A StatefulDataLoader saves and restores the position, with the same number
    of workers. A DataLoader reads ahead, so your loop counts what it was given; any numbers of workers and ranks can
    continue::

        for step, batch in enumerate(batches, source.first_step(epoch)):        # batches = DataLoader(dataset, ...)
            state = source.state_dict(epoch=epoch, steps=step + 1)              # or batch.epoch, batch.step + 1

        dataset.load_state_dict(state)      # into the dataset, not the source; the next pass is source.first_epoch

    Counting is right if each batch comes: with PARTIAL, one of which all images are left out does not.

    Errors of a worker are raised in the main process with their own class. A pass raises what reading the source
    raises, and `DecodeError` for an image that is not a picture.

    Args:
        source: The source; it must deliver in order. Ranks are those of the source.
        transform: Makes a tensor, or another value that ``default_collate`` takes, of an RGB image of PIL.
        on_undecodable: "raise", or "skip" to leave out images that are not pictures.
        orientation: "upright", or "stored" for images that are not turned by EXIF, as torchvision's ImageFolder gives
            them.
        sharded: Whether the source reads this rank's share; confirm it if there are several processes.
        seed_transforms: Seed the generators of torch (on the CPU), NumPy and Python before each image with a number
            that follows from the source's seed, the epoch and the image's place in it. Random transforms then give the
            same for any ranks, workers and batch size, and after any resume. After the batch, the generators continue
            where they were.

    Raises:
        OptionError: An option is out of its range, or the source has ``in_order=False``. A pass raises it for
            transformed images that do not make a batch, such as tensors of different sizes.
    """

    def __init__(
        self,
        source: Source,
        *,
        transform: Callable[[Any], Any] | None = None,
        on_undecodable: OnUndecodable = "raise",
        orientation: Orientation = "upright",
        sharded: bool = False,
        seed_transforms: bool = False,
    ) -> None:
        check_source(source)
        check_bools(sharded=sharded, seed_transforms=seed_transforms)
        check_choice("on_undecodable", on_undecodable, get_args(OnUndecodable))
        check_orientation(orientation)
        if transform is not None and not callable(transform):
            raise OptionError(f"Wanted transform as a function of a picture. Found: {transform!r}")
        if seed_transforms and transform is None:
            raise OptionError("Wanted a transform with seed_transforms=True. Found: none")
        if not source.in_order:
            raise OptionError("Wanted a source that delivers in order. Found: in_order=False")
        self._source: Source | bytes = source
        self._position: Position | None = source.reader(self)
        self._sharded = sharded
        self._check_sharded()
        self._transform, self._skips, self._orientation = transform, on_undecodable == "skip", orientation
        self._seeds = seed_transforms
        self._own: tuple[Source, Position] | None = None  # in a worker
        self._loaded = source.plan.loaded
        self._loads = 0
        self._resumed: tuple[int, int] | None = None
        self._passes = Passes()
        source.at_close(_closing(weakref.ref(self._passes)))  # the source may outlive many datasets
        self._begun: Pass | None = None
        self._stands: tuple[int, int] | None = None
        self._position.may_leave_out |= self._skips
        self._position.leave(is_elsewhere=True)  # workers deliver batches that the source does not see

    def __repr__(self) -> str:
        return f"TorchDataset({self.source!r}, transform={name_of(self._transform)})"

    @property
    def source(self) -> Source:
        """The source; in a worker process, its copy."""
        if isinstance(self._source, bytes):
            source: Source = pickle.loads(self._source)
            self._source, self._position = source, source.reader(self)
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        # Unpickled on first use, when the worker runs and can report an error.
        if not isinstance(self._source, bytes):
            self._check_sharded()
        packed = self._source if isinstance(self._source, bytes) else pickle.dumps(self._source)
        return {**self.__dict__, "_source": packed, "_position": None, "_own": None, "_begun": None}

    def __len__(self) -> int:
        """The batches of a full epoch on this rank, over all workers."""
        return len(self.source)

    def set_epoch(self, epoch: int, /) -> None:
        """Make the next pass this epoch, as with a DistributedSampler. Later passes count from it."""
        check_not_prepared(self.source.rank, self.source.world_size)
        self._passes.restart(check_int("epoch", epoch, 0))

    def state_dict(self) -> dict[str, Any]:
        """The position of this worker, or of the main process if there are no workers; a StatefulDataLoader calls it.

        After the last batch of an epoch it is the end of that epoch, and the next pass has no batches: a
        StatefulDataLoader knows whether that pass has been.
        """
        number, count = this_worker()
        plan = self.source.plan
        if self._position is not None and not self._position.is_unknown:
            self._position.state()  # raises if several passes are open
        epoch, steps = self._stands or self._where(number, plan.first_epoch)
        assert self._position is not None  # `source` has made one
        begin = self._position.recorded(plan.after(epoch)).to_dict()
        return {"format": _FORMAT, "worker": number, "workers": count, "epoch": epoch, "steps": steps, "begin": begin}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue the next pass from a state of the source, in all workers to come, or from a state of this dataset.

        Workers that are reused from an earlier pass (``persistent_workers``) then raise `StateError`: make a new
        DataLoader. Raises `StateError` also for a state of another split or order, and for a state of this dataset of
        another worker, number of workers or batch size.
        """
        if not isinstance(state, Mapping) or "workers" not in state:
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
                raise StateError(f"Wanted a worker's state from state_dict(). Found: {error}") from None
            if found != wanted:
                raise StateError(
                    f"Wanted the state of (format, worker, workers, global batch) {wanted}. Found: {found}. "
                    "Only states of the source continue with other numbers of workers and ranks."
                )
            plan = self.source.plan  # the order of shards depends on more than that of splits
            other = {name: begin[name] for name in _DEALT if name in begin and begin[name] != getattr(plan, name)}
            if other:
                raise StateError(
                    f"Wanted the state of {', '.join(f'{name} {getattr(plan, name)}' for name in other)}. "
                    f"Found: {', '.join(map(str, other.values()))}. "
                    "Only states of the source continue with other numbers of workers and ranks."
                )
            self.source.load_state_dict(begin)
            # If nothing was left, as with DROP, the state is that of the next epoch.
            self._resumed = at if begin["epoch"] == at[0] else (at[0], len(self.source))
        self._loaded, self._own, self._stands = self.source.plan.loaded, None, None

    def __iter__(self) -> Iterator[Any]:
        self._check_sharded()
        # The epoch is chosen here, before the first batch: a StatefulDataLoader then asks for a state.
        number, count = this_worker()
        if self._loaded != self.source.plan.loaded or self._loads != self._passes.loads:
            # Raised with the first batch: an earlier error would end the worker without a message to the main process.
            return map(_refuse, [StateError(_ANOTHER_STATE)])
        resumed, self._resumed = self._resumed, None
        try:
            begun = self._passes.begin(
                first_epoch=self.source.plan.first_epoch, epoch=None if resumed is None else resumed[0]
            )
        except DeliveryError as error:
            return map(_refuse, [error])
        self._begun = begun
        self._stands = resumed or self._where(number, begun.epoch)
        return self._pass(begun, number, count, *self._stands)

    def end_pass(self) -> None:
        """Wait until all workers of the current pass have started it; call this if you end a pass early.

        Raises `DeliveryError` if they have not within the source's timeout.
        """
        if self._begun is not None:
            self._passes.confirm(self._begun, timeout=self.source.timeout)

    def _check_sharded(self) -> None:
        check_sharded(self.source.rank, self.source.world_size, is_said=self._sharded)

    def _where(self, number: int, epoch: int) -> tuple[int, int]:
        return epoch, self.source.plan.first_step(epoch) + number

    def _pass(self, begun: Pass, number: int, count: int, epoch: int, step: int) -> Iterator[Any]:
        source = self.source
        if get_worker_info() is not None:
            # A copy, also in a forked process, which must not use the connections of its parent's source.
            shares = {name: max(1, getattr(source.options, name) // count) for name in _SHARED_OUT}
            if self._own is None:
                own = source.again(**shares)
                self._own = own, own.reader(self)
            source, position = self._own
        else:
            assert self._position is not None
            position = self._position
        of = position.begin(epoch)
        position.note(epoch, step if count == 1 else None, of=of)
        offset = step - position.plan.first_step(epoch)
        try:
            for batch in source.batches(epoch, offset=offset, every=count, reader=position):
                if self._own is not None and self._passes.is_closed:
                    raise closed()
                self._stands = epoch, batch.step + count
                position.note(epoch, batch.step + 1, of=of)
                if self._transform is None:
                    yield batch
                elif (decoded := self._decoded(source, position, batch)) is not None:
                    rest, images = decoded
                    if self._seeds:
                        draws = Draws(seed=source.seed, epoch=epoch, places=rest.places)
                        yield _transformed(rest, list(_seeded(draws, self._transform, images)))
                    else:
                        yield _transformed(rest, list(map(self._transform, images)))
            self._passes.confirm(begun, timeout=source.timeout)
            position.note(epoch + 1, None, of=of)
        finally:
            position.end(of)

    def _decoded(self, source: Source, position: Position, batch: Batch) -> tuple[Batch, list[Any]] | None:
        """The batch and its decoded images, without those that cannot be decoded; None if nothing is left."""
        images = self._pictures(batch)
        errors = {place: image for place, image in enumerate(images) if isinstance(image, Exception)}
        if not errors:
            return batch, images
        rest = left_out(
            source, batch, errors, skips=self._skips, reader=position,
            is_usable=lambda one: not isinstance(self._pictures(one)[0], Exception),
        )  # fmt: skip
        return None if rest is None else (rest, self._pictures(rest))

    def _pictures(self, batch: Batch) -> list[Any]:
        return [decoded_picture(image, self._orientation) for image in batch.images]


def _seeded(draws: Draws, transform: Callable[[Any], Any], images: Sequence[Any]) -> Iterator[Any]:
    """Transform each image with its own seed."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        for image, seed in zip(images, draws.bits()[:, 0].tolist(), strict=True):
            torch.default_generator.manual_seed(seed >> 1)  # torch.manual_seed would seed all GPUs, which takes longer
            np.random.seed(seed >> 32)
            random.seed(seed)
            yield transform(image)
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])


def _closing(passes: weakref.ref[Passes]) -> Callable[[], None]:
    def close() -> None:
        if (found := passes()) is not None:
            found.close()

    return close


def _refuse(error: LoaderError) -> NoReturn:
    raise error


def _transformed(batch: Batch, images: list[Any]) -> Any:
    found = [collated(images)]
    if len(batch.labels):
        found.append(torch.from_numpy(batch.labels).to(torch.int64))
    elif batch.label_blobs:
        found.append(batch.label_blobs)
    found += [torch.from_numpy(values) for values in batch.features.values()]
    return tuple(found) if len(found) > 1 else found[0]
