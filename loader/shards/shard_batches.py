"""Batches of images and labels, made of the samples of shards."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from formats.shards.sample_metadata import id_in, integer_in
from loader.batch import Batch
from loader.errors import ShardError
from loader.prefetch.batcher import Filled
from loader.shards.shard_stream import ShardSample

log = logging.getLogger(__name__)

NOT_COMPANIONS = ("cls", "json")  # the files of a sample that are no masks and no arrays


@dataclass(frozen=True)
class ShardBatches:
    """Makes a `Batch` of a stream's samples; ``not_taken`` counts the files, by extension, that it has no place for."""

    label_type: str
    not_taken: Counter[str] = field(default_factory=Counter)

    def __call__(self, filled: Filled, epoch: int, /) -> Batch:
        """Raises `ShardError` for a sample without a class number, an id, or a mask or an array."""
        samples = filled.samples
        positions = np.array([one.number for one in samples], dtype=np.int64)
        self._count_others(samples[: len(samples) - filled.repeats])
        labels = np.empty(0, dtype=np.int32)
        blobs: list[bytes] = []
        if self.label_type == "int":
            labels = np.array([_label(one) for one in samples], dtype=np.int32)
        elif self.label_type in ("blob", "multi"):
            blobs = [_companion(one) for one in samples]
        return Batch(
            images=[next(iter(one.members.values())) for one in samples],  # the first file of a sample
            labels=labels,
            ids=np.frombuffer(b"".join(map(_id, samples)), dtype=np.uint8).reshape(-1, 16),
            positions=positions,
            places=positions,  # an epoch has each once
            epoch=epoch,
            step=filled.number,
            repeats=filled.repeats,
            label_blobs=blobs,
        )

    def _count_others(self, samples: Iterable[ShardSample]) -> None:
        """Count the files of samples that have no place in a batch; the first of a kind is a warning of the log."""
        own = 2 if self.label_type in ("blob", "multi") else 1
        for one in samples:
            if len(one.members) <= own:
                continue
            for name in [name for name in one.members if name not in NOT_COMPANIONS][own:]:
                if not self.not_taken[name]:
                    log.warning(
                        "%s of %s has a file .%s, which batches leave out. RemoteDataset gives all files; not_taken "
                        "counts those that are left out.",
                        one.key,
                        one.shard,
                        name,
                    )
                self.not_taken[name] += 1


def _label(sample: ShardSample) -> int:
    try:
        return integer_in(sample.members["cls"])
    except (KeyError, ValueError):
        raise ShardError(
            f"Wanted a class number in {sample.key}.cls of {sample.shard}. Found: {sample.members.get('cls')!r}"
        ) from None


def _companion(sample: ShardSample) -> bytes:
    for name, data in list(sample.members.items())[1:]:
        if name not in NOT_COMPANIONS:
            return data
    raise ShardError(f"Wanted a mask or an array for {sample.key} of {sample.shard}. Found: none")


def _id(sample: ShardSample) -> bytes:
    text = sample.members.get("json", b"")
    try:
        return id_in(text)
    except (ValueError, KeyError, TypeError):
        raise ShardError(f"Wanted an id in {sample.key}.json of {sample.shard}. Found: {text[:60]!r}") from None
