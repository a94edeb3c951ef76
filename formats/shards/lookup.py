"""Finding an image in published shards, by the ids in the metadata of samples and the index files of shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from formats.errors import DamagedError
from formats.shards.layout import index_name
from formats.shards.sample_metadata import id_in
from formats.stores.storage import Storage
from schemas.shards import Shard, ShardManifest


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Where an image is in shards: the file name of the shard, and the key of the sample."""

    shard: str
    key: str


def find_in_shards(
    storage: Storage, manifest: ShardManifest, image_id: bytes, *, position: int | None = None
) -> ShardPlace | None:
    """Look for an image in shards, in the metadata of samples until it is found; None if no shard has it. The sample at
    the position that it has in the split of the shards is read first. Raises `DamagedError` if an index or a sample
    cannot be read, OSError if the storage does not answer or a file is missing.
    """
    guess = None if position is None else _shard_at(manifest, position)
    if guess is not None:  # right unless images were rejected, whose numbers are missing
        shard, number = guess
        some = _metadata_of(storage, shard)[number : number + 1]
        if (found := _found(storage, shard, some, image_id)) is not None:
            return found
    for shard in manifest.shards:
        if (found := _found(storage, shard, _metadata_of(storage, shard), image_id)) is not None:
            return found
    return None


def _found(
    storage: Storage, shard: Shard, samples: Sequence[tuple[str, int, int]], image_id: bytes
) -> ShardPlace | None:
    with storage.open(shard.name) as file:
        for key, start, size in samples:
            if _id(file, start, size, shard) == image_id:
                return ShardPlace(shard.name, key)
    return None


def _shard_at(manifest: ShardManifest, position: int) -> tuple[Shard, int] | None:
    """The shard of a sample by its number over all shards, and its number there."""
    for shard in manifest.shards:
        if position < shard.samples:
            return shard, position
        position -= shard.samples
    return None


def _metadata_of(storage: Storage, shard: Shard) -> list[tuple[str, int, int]]:
    """The key of each sample, and where its metadata is: start and size."""
    return list(_parsed(storage.read_text(index_name(shard.name)), shard))


def _parsed(text: str, shard: Shard) -> Iterator[tuple[str, int, int]]:
    try:
        for line in text.splitlines()[1:]:
            words = line.split()
            for place in range(0, len(words), 4):
                if words[place] == "json":
                    yield words[place + 3].partition(".")[0], int(words[place + 1]), int(words[place + 2])
    except (IndexError, ValueError) as error:
        raise DamagedError(f"Wanted the index of {shard.name}. Found: {error!r} in {index_name(shard.name)}") from None


def _id(file: IO[bytes], start: int, size: int, shard: Shard) -> bytes:
    file.seek(start)
    try:
        return id_in(file.read(size))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"Wanted the metadata of a sample at {start} in {shard.name}. Found: {error!r}") from None
