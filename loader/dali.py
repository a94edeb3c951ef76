"""The source inside DALI: what a pipeline calls for each batch.

DALI gets the files that it decodes as all other adapters do (`formats.pictures.decoding`). Other images are decoded
here, and DALI gets their pixels as PNM, a format without losses that it only copies.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.adapters.pictures import decoded_picture, size_in_dali
from loader.adapters.undecodable import decode_error
from loader.batch import Batch
from loader.errors import DecodeError, OptionError, TableError, require
from loader.options import check_names, name_of
from loader.order.delivery import Position
from loader.order.draws import Draws
from loader.splits import Split

_DALI_TYPES = {"bool": "BOOL", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "uint64": "UINT64",
               "float32": "FLOAT", "float64": "FLOAT64"}  # fmt: skip

# Random numbers of a batch by name, one for each sample: what a graph takes beside the batch.
Numbers: TypeAlias = Callable[[Draws], Mapping[str, NDArray[Any]]]


class Batches(Protocol):
    """What `EpochReader` needs of a source, whose module imports this one."""

    @property
    def split(self) -> Split:
        """What is read, for errors that name a file of it."""
        ...

    @property
    def metadata(self) -> tuple[str, ...]:
        """The metadata columns of its batches."""
        ...

    @property
    def features(self) -> Mapping[str, NDArray[Any]]:
        """The features of its batches."""
        ...

    @property
    def label_type(self) -> str:
        """The type of its labels."""
        ...

    @property
    def seed(self) -> int:
        """The seed of its order, and of random numbers."""
        ...

    def batches(self, epoch: int, /, *, reader: Position) -> Iterator[Batch]:
        """The batches of an epoch."""
        ...


def dali(module: str) -> Any:
    """A module of DALI. Raises `MissingExtraError` without DALI."""
    return require(f"nvidia.dali.{module}", extra="cuda120", purpose="decoding images", note="For CUDA 13: cuda130.")


class EpochReader:
    """What a DALI pipeline calls for each batch. Up to ``threads`` images are decoded at a time that DALI does not
    decode. A call raises `DecodeError` for one that nothing decodes; its batch is then in `pending`. ``numbers`` gives
    the random numbers of a batch.
    """

    def __init__(
        self,
        source: Batches,
        reader: Position,
        *,
        first_epoch: int = 0,
        threads: int = 4,
        failed: dict[int, Exception | None] | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self._source, self._reader, self._plan, self._threads = source, reader, reader.plan, threads
        # Files that DALI has failed to decode, by their hashes, and why it does not take their pixels, if so.
        self.failed: dict[int, Exception | None] = {} if failed is None else failed
        self._first_epoch, self._numbers = first_epoch, numbers
        self._epoch: int | None = None
        self.is_followed = True
        self._kinds: Mapping[str, tuple[str, int]] = {}  # the type and the dimensions of each array of numbers
        self._batches: Iterator[Batch] = iter(())
        self._again: deque[Batch] = deque()
        # The batches that DALI has taken and not yet delivered: it may be working on them.
        self.pending: deque[Batch] = deque()

    def outputs(self, *, is_followed: bool = True) -> tuple[Any, ...]:
        """Images, labels, metadata, features and random numbers as outputs of the pipeline that is being defined;
        ``is_followed``: whether the caller takes each batch from `given`, otherwise `pending` stays empty.
        """
        fn, types = dali("fn"), dali("types")
        source = self._source
        labels = [] if source.label_type == "none" else [types.INT32 if source.label_type == "int" else types.UINT8]
        one, size = np.zeros(1, dtype=np.int64), np.ones((1, 2), dtype=np.int64)
        numbers = drawn(self._numbers, Draws(seed=0, epoch=0, places=one, sizes=size))
        self._kinds = _kinds(numbers)
        others = [
            getattr(types, _DALI_TYPES[column.dtype.name]) for column in [*source.features.values(), *numbers.values()]
        ]
        dimensions = [1] * (1 + len(labels) + len(source.features)) + [column.ndim - 1 for column in numbers.values()]
        known = {"dtype": [types.UINT8, *labels, *others], "ndim": dimensions} if not source.metadata else {}
        # DALI holds a reference to the arrays until it has read them, so nothing is copied.
        count = len(dimensions) + len(source.metadata)
        self.is_followed = is_followed
        outputs = fn.external_source(self, num_outputs=count, batch_info=True, no_copy=True, **known)
        return tuple(outputs)

    def __call__(self, info: Any) -> tuple[Any, ...]:
        # DALI reads ahead and calls again after the end of an epoch. Then StopIteration is raised again.
        epoch = self._first_epoch + info.epoch_idx
        self._reader.check(self._plan)
        if epoch != self._epoch:
            self._epoch = epoch
            self._batches = self._source.batches(epoch, reader=self._reader)
        batch = self._again.popleft() if self._again else next(self._batches)
        if self.is_followed:
            self.pending.append(batch)
        columns = [_column(batch, name) for name in self._source.metadata]
        files = []
        found, sizes = self._files(batch)
        for place, file in enumerate(found):
            if isinstance(file, Exception):
                raise decode_error(self._source.split, batch, place, file) from file
            files.append(_bytes(file))
        outputs = files, *_labels(batch), *columns, *_features(batch)
        if self._numbers is None:
            return outputs
        draws = Draws(seed=self._source.seed, epoch=epoch, places=batch.places, positions=batch.positions, sizes=sizes)
        arrays = drawn(self._numbers, draws)
        if (kinds := _kinds(arrays)) != self._kinds:
            raise OptionError(
                f"Wanted the same arrays from numbers={name_of(self._numbers)} for each batch, as for one sample: "
                f"(type, dimensions) {dict(self._kinds)}. Found: {kinds}"
            )
        return *outputs, *(arrays[name] for name in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers, the last of `outputs`."""
        return tuple(self._kinds)

    def given(self) -> Batch:
        """The next batch that the pipeline has delivered; records that it has."""
        return self.pending.popleft()

    def repeat(self, batches: Iterable[Batch], *, epoch: int) -> None:
        """Let a new pipeline begin with these batches of an epoch and continue after them."""
        self._again = deque(batches)
        self.pending.clear()
        self._first_epoch = epoch

    def undecodable(self, batch: Batch, *, asks_dali: bool) -> dict[int, Exception]:
        """Why images of a batch, by their places, cannot be decoded; ``asks_dali`` also finds those not known yet,
        which are not given to DALI again.
        """
        errors: dict[int, Exception] = {}
        files, _ = self._files(batch)
        for place, (image, file) in enumerate(zip(batch.images, files, strict=True)):
            if asks_dali and file is image and not _is_decodable(image):
                self.failed[hash(image)] = None
                file = _pnm(image)
            if asks_dali and isinstance(file, bytes) and file is not image and not _is_decodable(file):
                file = DecodeError("which DALI cannot take: it limits the sides of images")
                self.failed[hash(image)] = file
            if isinstance(file, Exception):
                errors[place] = file
        return errors

    def _files(self, batch: Batch) -> tuple[list[bytes | Exception], NDArray[np.int64]]:
        """`files_for_dali` of a batch."""
        return files_for_dali(batch.images, threads=self._threads, failed=self.failed)

    def close(self) -> None:
        """Stop reading the current epoch."""
        self._batches = iter(())
        self._again.clear()
        self.pending.clear()


def drawn(numbers: Numbers | None, draws: Draws) -> dict[str, NDArray[Any]]:
    """The random numbers of a batch. Raises `OptionError` for what is not one array of numbers by name."""
    if numbers is not None and not callable(numbers):
        raise OptionError(f"Wanted numbers as a function of Draws. Found: {numbers!r}")
    found: Any = {} if numbers is None else numbers(draws)
    if not isinstance(found, Mapping):
        raise OptionError(f"Wanted a dictionary of arrays from numbers={name_of(numbers)}. Found: {found!r}")
    # Copies in the form that DALI takes: it reads them later, whatever the caller writes into its own.
    arrays = {check_names("numbers", [name])[0]: _native(values) for name, values in found.items()}
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != len(draws) or values.dtype.name not in _DALI_TYPES:
            raise OptionError(
                f"Wanted {name} of numbers={name_of(numbers)} as an array of {', '.join(_DALI_TYPES)} with one row for "
                f"each of {len(draws)} samples. Found: {values.dtype.name} {values.shape}"
            )
    return arrays


def _kinds(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, int]]:
    return {name: (values.dtype.name, values.ndim) for name, values in arrays.items()}


def _native(values: Any) -> NDArray[Any]:
    """A copy of an array in the machine's order of bytes, without gaps."""
    found = np.asarray(values)
    return np.array(found, dtype=found.dtype.newbyteorder("="), order="C")


def files_for_dali(
    images: Sequence[bytes], *, threads: int = 4, failed: Mapping[int, Exception | None] | None = None
) -> tuple[list[bytes | Exception], NDArray[np.int64]]:
    """The files that DALI gets for images, or why there is none, and the heights and widths of their pictures. Those
    that it does not decode, or has ``failed`` to decode, are decoded here.
    """
    files: list[bytes | Exception] = list(images)
    sizes = [size_in_dali(image) for image in images]
    failed = failed or {}
    others = [place for place, size in enumerate(sizes) if size is None or (failed and hash(images[place]) in failed)]

    def pixels(place: int) -> bytes | Exception:
        return (failed.get(hash(images[place])) if failed else None) or _pnm(images[place])

    if others:
        with ThreadPoolExecutor(min(threads, len(others))) as pool:
            for place, file in zip(others, pool.map(pixels, others), strict=True):
                files[place], sizes[place] = file, _size(file)
    return files, np.array(sizes, dtype=np.int64).reshape(-1, 2)


def decodable_files(images: Sequence[bytes]) -> tuple[list[NDArray[np.uint8] | None], NDArray[np.int64]]:
    """The files that DALI is sure to decode for images, and the heights and widths of their pictures; None for an image
    that cannot be decoded.
    """
    found = []
    files, sizes = files_for_dali(images)
    for place, (image, file) in enumerate(zip(images, files, strict=True)):
        if file is image and not _is_decodable(image):
            file = _pnm(image)
            sizes[place] = _size(file)
        found.append(_bytes(file) if isinstance(file, bytes) and (file is image or _is_decodable(file)) else None)
    return found, sizes


def _pnm(image: bytes) -> bytes | Exception:
    """An image's pixels as PNM, or why there are none."""
    picture = decoded_picture(image)
    return picture if isinstance(picture, Exception) else as_pnm(np.asarray(picture))


def _size(file: bytes | Exception) -> tuple[int, int]:
    """The height and width of a file of `_pnm`; of no picture, one pixel."""
    return (size_in_dali(file) if isinstance(file, bytes) else None) or (1, 1)


def as_pnm(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels ``(h, w, 3)`` as PNM, a file without losses."""
    height, width, _ = pixels.shape
    return b"P6 %d %d 255\n" % (width, height) + pixels.tobytes()


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _labels(batch: Batch) -> list[Any]:
    if batch.label_blobs:
        return [[_bytes(label) for label in batch.label_blobs]]
    return [batch.labels[:, None]] if len(batch.labels) else []


def _features(batch: Batch) -> list[NDArray[Any]]:
    return [values if values.ndim == 2 else values[:, None] for values in batch.features.values()]


def _column(batch: Batch, name: str) -> list[NDArray[Any]]:
    values = batch.metadata[name]
    if None in values:
        one = UUID(bytes=batch.ids[values.index(None)].tobytes())
        raise TableError(f"Wanted a value of {name} for image {one}, because DALI has no nulls. Found: null")
    if all(isinstance(value, int) for value in values):
        return [np.array([value], dtype=np.int64) for value in values]
    if all(isinstance(value, (int, float)) for value in values):
        return [np.array([value], dtype=np.float64) for value in values]
    return [_bytes(value if isinstance(value, bytes) else str(value).encode()) for value in values]


def _is_decodable(image: bytes) -> bool:
    fn, types = dali("fn"), dali("types")
    pipeline = dali("pipeline").Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        file = fn.external_source([[_bytes(image)]], dtype=types.UINT8, ndim=1)
        pipeline.set_outputs(fn.decoders.image(file, output_type=types.RGB))
    try:
        pipeline.run()
    except RuntimeError:
        return False
    return True
