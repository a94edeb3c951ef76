"""The source inside DALI: what a pipeline calls for each batch, and which of its images DALI cannot decode."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader.batch import Batch
from loader.errors import TableError, require
from loader.order.delivery import Position

_DALI_TYPES = {"bool": "BOOL", "int32": "INT32", "int64": "INT64", "float32": "FLOAT", "float64": "FLOAT64"}


class Batches(Protocol):
    """What `EpochReader` needs of a source."""

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

    def batches(self, epoch: int, /, *, reader: Position) -> Iterator[Batch]:
        """The batches of an epoch."""
        ...


def dali(module: str) -> Any:
    """A module of DALI. Raises `MissingExtraError` without DALI."""
    return require(f"nvidia.dali.{module}", extra="cuda120", purpose="decoding images", note="For CUDA 13: cuda130.")


class EpochReader:
    """What a DALI pipeline calls for each batch. DALI counts epochs and says which one it needs."""

    def __init__(self, source: Batches, reader: Position, *, first_epoch: int = 0) -> None:
        self._source, self._reader, self._plan = source, reader, reader.plan
        self._first_epoch = first_epoch
        self._epoch: int | None = None
        self._batches: Iterator[Batch] = iter(())
        self._again: deque[Batch] = deque()
        self.pending: deque[Batch] = deque()
        """The batches that DALI has taken and not yet delivered: it may be working on them."""

    def outputs(self) -> tuple[Any, ...]:
        """Images, labels, metadata and features as outputs of the pipeline that is being defined."""
        fn, types = dali("fn"), dali("types")
        source = self._source
        labels = [] if source.label_type == "none" else [types.INT32 if source.label_type == "int" else types.UINT8]
        features = [getattr(types, _DALI_TYPES[column.dtype.name]) for column in source.features.values()]
        known = {"dtype": [types.UINT8, *labels, *features], "ndim": 1} if not source.metadata else {}
        # DALI holds a reference to the arrays until it has read them, so nothing is copied.
        count = 1 + len(labels) + len(source.metadata) + len(features)
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
        self.pending.append(batch)
        columns = [_column(batch, name) for name in self._source.metadata]
        return [_bytes(image) for image in batch.images], *_labels(batch), *columns, *_features(batch)

    def given(self) -> Batch:
        """The next batch that the pipeline has delivered; records that it has."""
        return self.pending.popleft()

    def repeat(self, batches: Iterable[Batch], *, epoch: int) -> None:
        """Let a new pipeline begin with these batches of an epoch and continue after them."""
        self._again = deque(batches)
        self.pending.clear()
        self._first_epoch = epoch

    def close(self) -> None:
        """Stop reading the current epoch."""
        self._batches = iter(())
        self._again.clear()
        self.pending.clear()


def undecodable(batch: Batch) -> list[int]:
    """The places of a batch's images that DALI cannot decode."""
    return [place for place, image in enumerate(batch.images) if not _is_decodable(image)]


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
