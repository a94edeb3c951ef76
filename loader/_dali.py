"""The source inside DALI: outputs for a pipeline, and a whole pipeline for classification."""

import hashlib
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from uuid import UUID

import numpy as np

from loader._errors import DecodeError, OptionError
from loader._extras import require

if TYPE_CHECKING:
    from loader._source import Batch, CassandraSource

Output: TypeAlias = Literal["numpy", "torch"]

_DEPTH = 2
"""Batches that DALI prepares ahead. The source reads ahead of it; more here would only take memory."""

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


class EpochReader:
    """What a DALI pipeline calls for each batch; DALI's own count of epochs says which epoch it wants."""

    def __init__(self, source: "CassandraSource", *, first_epoch: int = 0) -> None:
        self._source = source
        self._first_epoch = first_epoch
        self._epoch: int | None = None
        self._batches: Iterator[Batch] = iter(())
        self.recent: deque[Batch] = deque(maxlen=_DEPTH + 2)
        """The batches that DALI may be working on, to find the one that fails."""

    def outputs(self) -> tuple[Any, Any]:
        """Images and labels as outputs of the pipeline that is being defined."""
        fn, types = _dali("fn"), _dali("types")
        # DALI keeps the arrays that it is given, and with them the bytes, until it is done: nothing is copied.
        images, labels = fn.external_source(
            self,
            num_outputs=2,
            batch_info=True,
            dtype=[types.UINT8, types.INT32],
            ndim=[1, 1],
            no_copy=True,
        )
        return images, labels

    def __call__(self, info: Any) -> tuple[list[Any], Any]:
        # DALI reads ahead, and calls again behind the end of an epoch: that is no new epoch, but StopIteration again.
        epoch = self._first_epoch + info.epoch_idx
        if epoch != self._epoch:
            self._epoch = epoch
            self._batches = self._source.batches(epoch)
        batch = next(self._batches)
        self.recent.append(batch)
        return [np.frombuffer(image, dtype=np.uint8) for image in batch.images], batch.labels[:, None]

    def close(self) -> None:
        """Give up the epoch that is being read."""
        self._batches = iter(())


class ClassificationIterator:
    """Decoded, cropped and normalised batches of a source: ``(images, labels)``, one epoch a pass.

    ``images``: float32 ``(b, 3, size, size)``, RGB, ``(value / 255 - mean) / std`` for each channel; ``labels``: int64
    ``(b,)``. The last batch of an epoch may be smaller. With ``train=True`` a random crop (``crop_area`` of the
    picture, sides 3:4 to 4:3) is resized to ``size`` and, with ``mirror``, mirrored half the time; otherwise the
    shorter side is resized to ``size * 256 / 224`` and the centre is cropped. Crops follow the source's seed and rank:
    the same passes give the same crops, on any number of threads.

    Each pass is the next epoch, from the source's first on, also after a pass that was left early. `state_dict` counts
    the batches that were given, not what DALI has prepared ahead. ``output="numpy"`` gives read-only arrays;
    ``output="torch"`` gives tensors, on the GPU ``device_id`` where there is one, else on the CPU. Without
    ``device_id`` DALI works on the CPU and needs no GPU.

    Raises `OptionError` for an option out of its range and `MissingExtraError` without DALI or torch; a pass raises
    what reading the source raises, and `DecodeError` for an image that is no picture.
    """

    def __init__(
        self,
        source: "CassandraSource",
        *,
        size: int,
        train: bool,
        crop_area: tuple[float, float] = (0.08, 1.0),
        mirror: bool = True,
        device_id: int | None = None,
        num_threads: int = 4,
        mean: Sequence[float] = _IMAGENET_MEAN,
        std: Sequence[float] = _IMAGENET_STD,
        output: Output = "numpy",
    ) -> None:
        if not (isinstance(size, int) and isinstance(num_threads, int)) or size < 1 or num_threads < 1:
            raise OptionError(f"Wanted size and num_threads of at least 1. Found: {size} and {num_threads}")
        if not 0 < crop_area[0] <= crop_area[1] <= 1:
            raise OptionError(f"Wanted crop_area as two shares of a picture, ascending. Found: {crop_area!r}")
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise OptionError(f"Wanted a mean and a std above 0 for each of R, G, B. Found: {mean!r} and {std!r}")
        if output not in get_args(Output):
            raise OptionError(f"Wanted output as one of {get_args(Output)}. Found: {output!r}")
        if output == "numpy" and device_id is not None:
            raise OptionError(f"Wanted output='torch' for batches on a GPU. Found: 'numpy' with device_id={device_id}")
        self._source = source
        self._size, self._train = size, train
        self._crop_area, self._mirror = crop_area, mirror
        self._device_id, self._num_threads = device_id, num_threads
        self._mean, self._std = [255 * value for value in mean], [255 * value for value in std]
        self._output = output
        self._torch = require("torch", extra="train", purpose="output='torch'") if output == "torch" else None
        _dali("pipeline")
        self._begin()

    def __len__(self) -> int:
        """The batches of one epoch on this rank."""
        return len(self._source)

    def state_dict(self) -> dict[str, Any]:
        """Where delivery stands, behind the batch that was given last; see `CassandraSource.state_dict`."""
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Let the next pass go on from a state; see `CassandraSource.load_state_dict`."""
        self._source.load_state_dict(state)

    def _begin(self) -> None:
        """Start with the source's first epoch, as it is after the state that it has loaded now."""
        self._schedule = self._source._schedule
        self._next_epoch = self._source.first_epoch
        self._source.note(self._next_epoch)
        self._idle: tuple[Any, EpochReader] | None = None

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self._schedule is not self._source._schedule:  # a state was loaded since
            self._begin()
        # A pipeline is kept for the next pass only from a pass that reached its end: after one that was left early,
        # what DALI has prepared ahead belongs to an epoch that is over.
        pipeline, reader = self._idle or self._build()
        self._idle = None
        epoch = self._next_epoch
        self._next_epoch += 1
        self._source.note(epoch)
        try:
            for step in itertools.count(self._source.first_step(epoch)):
                try:
                    images, labels = pipeline.run()
                except StopIteration:
                    break
                except RuntimeError as error:
                    raise _explain(error, reader.recent) from error
                self._source.note(epoch, step + 1)  # what DALI has prepared beyond this batch is not given away
                yield self._convert(images, labels)
        finally:
            reader.close()
        self._source.note(epoch + 1)
        pipeline.reset()
        self._idle = pipeline, reader

    def _build(self) -> tuple[Any, EpochReader]:
        fn, types = _dali("fn"), _dali("types")
        reader = EpochReader(self._source, first_epoch=self._next_epoch)
        is_on_gpu = self._device_id is not None
        pipeline = _dali("pipeline").Pipeline(
            batch_size=self._source.batch_size,
            num_threads=self._num_threads,
            device_id=self._device_id,
            seed=_augmentation_seed(self._source.seed, self._source.rank, self._next_epoch),
            prefetch_queue_depth=_DEPTH,
            exec_dynamic=True,  # outputs own their memory, so that they can be handed on without a copy
        )
        with pipeline:
            files, labels = reader.outputs()
            device = "mixed" if is_on_gpu else "cpu"
            if self._train:
                images = fn.decoders.image_random_crop(
                    files,
                    device=device,
                    output_type=types.RGB,
                    random_area=list(self._crop_area),
                    random_aspect_ratio=[3 / 4, 4 / 3],
                    num_attempts=100,
                )
                images = fn.resize(images, size=[self._size, self._size], interp_type=types.INTERP_TRIANGULAR)
                mirror = fn.random.coin_flip() if self._mirror else 0
            else:
                images = fn.decoders.image(files, device=device, output_type=types.RGB)
                shorter = math.ceil(self._size * 256 / 224)
                images = fn.resize(images, resize_shorter=shorter, interp_type=types.INTERP_TRIANGULAR)
                mirror = 0
            images = fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT,
                output_layout="CHW",
                crop=[self._size, self._size],
                mean=self._mean,
                std=self._std,
                mirror=mirror,
            )
            labels = fn.cast(fn.squeeze(labels, axes=[0]), dtype=types.INT64)
            pipeline.set_outputs(images, labels.gpu() if is_on_gpu else labels)
        pipeline.build()
        return pipeline, reader

    def _convert(self, images: Any, labels: Any) -> tuple[Any, Any]:
        library = np if self._torch is None else self._torch
        return library.from_dlpack(images.as_tensor()), library.from_dlpack(labels.as_tensor())


def _dali(module: str) -> Any:
    return require(f"nvidia.dali.{module}", extra="loader", purpose="decoding images")


def _augmentation_seed(seed: int, rank: int, epoch: int) -> int:
    digest = hashlib.blake2b(f"augmentation 1\0{seed}\0{rank}\0{epoch}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def _explain(error: RuntimeError, batches: Sequence["Batch"]) -> Exception:
    """DALI's error, or one that names the image where decoding one by one finds it."""
    for batch in batches:
        for place, image in enumerate(batch.images):
            if not _is_decodable(image):
                return DecodeError(
                    f"Wanted a picture that DALI can decode as image {UUID(bytes=batch.ids[place].tobytes())} "
                    f"(class {batch.labels[place]}, position {batch.positions[place]}). "
                    f"Found: {len(image)} bytes that begin with {image[:12]!r}"
                )
    return error


def _is_decodable(image: bytes) -> bool:
    fn, types = _dali("fn"), _dali("types")
    pipeline = _dali("pipeline").Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        file = fn.external_source([[np.frombuffer(image, dtype=np.uint8)]], dtype=types.UINT8, ndim=1)
        pipeline.set_outputs(fn.decoders.image(file, output_type=types.RGB))
    try:
        pipeline.run()
    except RuntimeError:
        return False
    return True
