"""Batches of a source through a DALI graph: your own, or the usual one for classification."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from loader.adapters.crops import CROP_AREA, check_crop_area
from loader.adapters.graphs import IMAGENET_MEAN, IMAGENET_STD, classification, training_numbers
from loader.adapters.undecodable import OnUndecodable, left_out
from loader.batch import Batch
from loader.dali import EpochReader, Numbers, dali
from loader.errors import DecodeError, OptionError, require
from loader.options import check_bools, check_choice, check_int, check_names, check_numbers, name_of
from loader.source import Source, check_source

Output: TypeAlias = Literal["numpy", "torch"]

# Batches that DALI prepares ahead. The source reads ahead of it; more here would only take memory.
_DEPTH = 2


class GenericIterator:
    """Batches of a source through your own DALI graph: ``{name: array}``, one epoch a pass.

    Samples of one shape become an array ``(b, ...)``, others a list of ``b`` arrays. Each pass is the next epoch,
    starting with the source's first one, also after a pass that you left early. `state_dict` counts the batches that
    you were given, not what DALI has prepared ahead, and not those of other iterators over the source. A pass raises
    what reading the source raises, and `DecodeError` for an image that is not a picture.

    Random ``numbers`` follow from the source's seed, the epoch and the sample's place in it: they are the same for any
    ranks, batch size and threads, and after any resume. DALI's own random operators follow from the seed, the rank, the
    epoch, and the batch at which a pass continues after a state.

    Args:
        source: The source.
        graph: Called while the pipeline is defined, with what `Source.read` gives (images, labels, metadata,
            features), and with the ``numbers`` by their names. It returns as many outputs as there are ``names``.
        names: The names of the outputs.
        numbers: Called for each batch with its `Draws`, and once before, for one sample; returns arrays by name, with
            one row for each sample, such as
            ``lambda draws: {"angle": draws.uniform(low=-10, high=10), "mirror": draws.flips()}``.
        device_id: The GPU that DALI uses; None for the CPU alone, which needs no GPU.
        num_threads: DALI's threads.
        output: "numpy" for read-only arrays, "torch" for tensors, on the GPU ``device_id`` if there is one.
        on_undecodable: "raise", or "skip" to leave out images that are not pictures and record them in the source's
            ``skipped``. DALI's work ahead is then repeated.

    Raises:
        OptionError: An option is out of its range.
        MissingExtraError: DALI or torch is not installed.
    """

    def __init__(
        self,
        source: Source,
        graph: Callable[..., Sequence[Any]],
        *,
        names: Sequence[str],
        numbers: Numbers | None = None,
        device_id: int | None = None,
        num_threads: int = 4,
        output: Output = "numpy",
        on_undecodable: OnUndecodable = "raise",
    ) -> None:
        check_source(source)
        check_int("num_threads", num_threads, 1)
        if device_id is not None:
            check_int("device_id", device_id, 0)
        check_choice("output", output, get_args(Output))
        check_choice("on_undecodable", on_undecodable, get_args(OnUndecodable))
        if output == "numpy" and device_id is not None:
            raise OptionError(f"Wanted output='torch' for batches on a GPU. Found: 'numpy' with device_id={device_id}")
        self._source, self._graph, self._names = source, graph, check_names("names", names)
        self._numbers = numbers
        if not self._names:
            raise OptionError("Wanted names of the graph's outputs. Found: none")
        self._device_id, self._num_threads = device_id, num_threads
        self._output, self._skips = output, on_undecodable == "skip"
        self._library: Any = require("torch", extra="train", purpose="output='torch'") if output == "torch" else np
        dali("pipeline")
        self._position = source.reader(self)
        self._position.may_leave_out |= self._skips
        self._plan, self._next_epoch = self._position.plan, self._position.plan.first_epoch
        self._failed: dict[int, Exception | None] = {}  # of all passes: it takes DALI long to find them
        self.given: Batch | None = None
        """The batch behind the last arrays, with ids, positions, metadata, encoded images."""

    def __repr__(self) -> str:
        where = "" if self._device_id is None else f", device_id={self._device_id}"
        return f"{type(self).__name__}({self._source!r}, {self._what}{where}, output={self._output!r})"

    @property
    def _what(self) -> str:
        """What `repr` says of the graph."""
        return f"{name_of(self._graph)}, names={list(self._names)}"

    def __len__(self) -> int:
        """The batches of one epoch on this rank."""
        return len(self._source)

    def state_dict(self) -> dict[str, Any]:
        """The position of this iterator, after the batch that it delivered last; see `Source.state_dict`."""
        return self._position.state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue the next pass of this iterator from a state; see `Source.load_state_dict`."""
        self._position.load(self._source.plan.going_on(state))

    def __iter__(self) -> Iterator[Any]:
        position, plan = self._position, self._position.plan
        if plan is not self._plan:  # a state was loaded since
            self._plan, self._next_epoch = plan, plan.first_epoch
        epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        number, step = position.begin(epoch), plan.first_step(epoch)
        reader = EpochReader(
            self._source, position, first_epoch=epoch, threads=self._num_threads, failed=self._failed,
            numbers=self._numbers,
        )  # fmt: skip
        pipeline = self._build(reader, epoch, step)
        try:
            while True:
                position.check(plan)
                try:
                    outputs = pipeline.run()
                except StopIteration:
                    break
                except (RuntimeError, DecodeError) as error:
                    reader.repeat(self._without_undecodable(reader, error), epoch=epoch)
                    pipeline = self._build(reader, epoch, step)
                    continue
                self.given = reader.given()
                step = self.given.step + 1
                position.note(epoch, step, self.given.delivered, of=number)  # not what DALI has prepared beyond it
                yield self._convert([self._array(output) for output in outputs])
            position.note(epoch + 1, None, of=number)
        finally:
            position.end(number)
            reader.close()

    def _build(self, reader: EpochReader, epoch: int, step: int) -> Any:
        """A pipeline for the rest of one epoch: one of an earlier epoch would continue its random numbers."""
        pipeline = dali("pipeline").Pipeline(
            batch_size=self._source.batch_size,
            num_threads=self._num_threads,
            device_id=self._device_id,
            seed=_augmentation_seed(self._source.seed, self._source.rank, epoch, step),
            prefetch_queue_depth=_DEPTH,
            exec_dynamic=True,  # outputs own their memory, so no copy is needed
        )
        with pipeline:
            inputs = list(reader.outputs())
            numbers = {name: inputs.pop() for name in reversed(reader.names)}
            found = self._graph(*inputs, **numbers)
            outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            if len(outputs) != len(self._names):
                raise OptionError(f"Wanted outputs {', '.join(self._names)} of the graph. Found: {len(outputs)}")
            pipeline.set_outputs(*outputs)
        pipeline.build()
        return pipeline

    def _without_undecodable(self, reader: EpochReader, error: Exception) -> list[Batch]:
        """The batches that DALI was working on, without the images that cannot be decoded. Raises the error that names
        the first of these, unless they are skipped. Raises DALI's own if it can decode all.
        """
        batches = list(reader.pending)
        failed = len(reader.failed)
        asks_dali = not isinstance(error, DecodeError)
        found = [(batch, reader.undecodable(batch, asks_dali=asks_dali)) for batch in batches]
        if not any(errors for _, errors in found) and len(reader.failed) == failed:
            raise error
        left: list[Batch] = []
        for batch, errors in found:
            rest: Batch | None = batch
            if errors:
                rest = left_out(
                    self._source, batch, errors, skips=self._skips, reader=self._position,
                    is_usable=lambda one: not reader.undecodable(one, asks_dali=True),
                )  # fmt: skip
            if rest is not None:
                left.append(rest)
        return left

    def _array(self, output: Any) -> Any:
        if output.is_dense_tensor():
            return self._library.from_dlpack(output.as_tensor())
        return [self._library.from_dlpack(sample) for sample in output]

    def _convert(self, arrays: list[Any]) -> Any:
        return dict(zip(self._names, arrays, strict=True))


class ClassificationIterator(GenericIterator):
    """Decoded, cropped and normalised batches of a source: ``(images, labels)``, one epoch a pass.

    ``images`` is float32 ``(b, 3, size, size)``, RGB, ``(value / 255 - mean) / std`` for each channel; ``labels`` is
    int64 ``(b,)``. The source's features follow, in their order. The last batch of an epoch may be smaller.
    Passes, states and errors are as in `GenericIterator`. Crops and mirroring are random ``numbers`` there: a sample of
    an epoch has the same pixels on any ranks, in any batch, and after any resume; on a GPU, nvJPEG may decode the same
    window slightly differently in another batch.

    Args:
        source: The source; its labels must be class numbers.
        size: The height and width of the output in pixels.
        train: True: a random crop is resized to ``size`` and, with ``mirror``, mirrored half the time. False: the
            shorter side is resized to ``round(size * 256 / 224)`` and the centre is cropped, as by torchvision's
            ``Resize`` and ``CenterCrop``.
        crop_area: The smallest and largest share of the image that a random crop has; its sides are 3:4 to 4:3.
        mirror: Whether random crops are mirrored half the time.
        device_id: The GPU that DALI uses; None for the CPU alone.
        num_threads: DALI's threads.
        mean: The mean of each channel, from 0 to 1.
        std: The standard deviation of each channel.
        output: "numpy" for read-only arrays, "torch" for tensors, on the GPU ``device_id`` if there is one.
        on_undecodable: "raise", or "skip" to leave out images that are not pictures.

    Raises:
        OptionError: An option is out of its range, or the labels are not class numbers.
        MissingExtraError: DALI or torch is not installed.
    """

    def __init__(
        self,
        source: Source,
        *,
        size: int,
        train: bool,
        crop_area: tuple[float, float] = CROP_AREA,
        mirror: bool = True,
        device_id: int | None = None,
        num_threads: int = 4,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        output: Output = "numpy",
        on_undecodable: OnUndecodable = "raise",
    ) -> None:
        check_source(source)
        size = check_int("size", size, 1)
        check_bools(train=train, mirror=mirror)
        check_crop_area(crop_area)
        check_numbers("mean", mean, 3)
        if min(check_numbers("std", std, 3)) <= 0:
            raise OptionError(f"Wanted std above 0 for each of R, G, B. Found: {std!r}")
        if source.label_type != "int":
            raise OptionError(f"Wanted a split with class numbers. Found: labels of type {source.label_type!r}")
        self._size, self._train = size, train
        super().__init__(
            source,
            partial(
                classification,
                size=size,
                mean=mean,
                std=std,
                is_on_gpu=device_id is not None,
                are_vectors=[column.ndim == 2 for column in source.features.values()],
            ),
            names=("images", "labels", *source.features),
            numbers=partial(training_numbers, crop_area=crop_area, mirror=mirror) if train else None,
            device_id=device_id,
            num_threads=num_threads,
            output=output,
            on_undecodable=on_undecodable,
        )

    @property
    def _what(self) -> str:
        return f"size={self._size}, train={self._train}"

    def _convert(self, arrays: list[Any]) -> Any:
        return tuple(arrays)


def _augmentation_seed(seed: int, rank: int, epoch: int, step: int) -> int:
    place = f"{seed}\0{rank}\0{epoch}" + (f"\0{step}" if step else "")
    digest = hashlib.blake2b(f"augmentation 1\0{place}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1
