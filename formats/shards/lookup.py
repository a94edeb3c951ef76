"""Finding an image in published shards, by the ids in the metadata of samples and the index files of shards."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from formats.errors import DamagedError
from formats.shards.layout import index_name, indexed_files
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
    guess = () if position is None else _shard_at(manifest, position)
    for shard, number in (*guess, *((shard, None) for shard in manifest.shards)):
        samples = _metadata_of(storage, shard)
        with storage.open(shard.name) as file:
            for key, start, size in samples if number is None else samples[number : number + 1]:
                if _id(file, start, size, shard) == image_id:
                    return ShardPlace(shard.name, key)
    return None


def _shard_at(manifest: ShardManifest, position: int) -> Iterator[tuple[Shard, int]]:
    """The shard of a sample by its number over all shards, and its number there: right unless images were rejected,
    whose numbers are missing. Nothing for a number that is too large.
    """
    for shard in manifest.shards:
        if position < shard.samples:
            yield shard, position
            return
        position -= shard.samples


def _metadata_of(storage: Storage, shard: Shard) -> list[tuple[str, int, int]]:
    """The key of each sample, and where its metadata is: start and size."""
    text = storage.read_text(index_name(shard.name))
    files = [one for sample in indexed_files(text, shard=shard.name) for one in sample]
    return [(one.key, one.start, one.size) for one in files if one.extension == "json"]


def _id(file: IO[bytes], start: int, size: int, shard: Shard) -> bytes:
    file.seek(start)
    try:
        return id_in(file.read(size))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"Wanted the metadata of a sample at {start} in {shard.name}. Found: {error!r}") from None
