"""A folder of shards: its manifest, which is written last, and the removal of files that are no longer needed."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from formats import croissant
from formats.origin import code_version, created
from formats.shards.layout import content_fingerprint, index_name
from formats.stores.storage import Storage
from schemas.shards import NAME, Shard, ShardManifest

log = logging.getLogger(__name__)

_SHARD = re.compile(r"[0-9a-f]{8}-[0-9]{6,}\.tar")


def manifest_of(
    shards: Sequence[Shard],
    *,
    label_type: str,
    class_names: Mapping[int, str],
    counts: Mapping[int, int],
    seed: int,
    source: str,
    source_fingerprint: str,
    options: Mapping[str, Any],
) -> ShardManifest:
    """Make the manifest of shards, in their order, that were written just now. ``counts`` has the samples by class
    number, ``source_fingerprint`` identifies the images that went in.
    """
    return ShardManifest(
        samples=sum(shard.samples for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        label_type=label_type,
        num_classes=max([-1, *counts, *class_names]) + 1 if label_type == "int" else 0,
        class_names=class_names,
        counts=dict(sorted(counts.items())),
        seed=seed,
        fingerprint=content_fingerprint(shards),
        source=source,
        source_fingerprint=source_fingerprint,
        options=options,
        shards=tuple(shards),
        created=created(),
        code_version=code_version(),
    )


def missing(storage: Storage, shards: Sequence[Shard]) -> list[str]:
    """The names of shards that are missing, have another size, or have no index. Raises OSError if the folder cannot be
    listed.
    """
    there = _sizes(storage)
    return [
        shard.name for shard in shards if there.get(shard.name) != shard.bytes or index_name(shard.name) not in there
    ]


def publish(storage: Storage, manifest: ShardManifest, *, tag: str, before: ShardManifest | None) -> list[str]:
    """Publish the manifest, then remove the shards of the one ``before`` and what killed runs with the same tag left;
    the tags of other runs, sorted. Raises OSError if the manifest cannot be written.
    """
    name = storage.address.rpartition("/")[2]
    storage.remove(croissant.SHARDS_NAME)  # one of another manifest would be wrong, and one that is missing is not
    storage.publish_text(NAME, manifest.to_json(), files=_files(manifest))
    croissant.write(storage, croissant.SHARDS_NAME, croissant.shards_croissant(manifest, name=name))
    try:
        return _tidy(storage, manifest, tag=tag, before=before)
    except OSError as error:
        log.warning("Could not remove files that are no longer needed: %s", error)
        return []


def _tidy(storage: Storage, manifest: ShardManifest, *, tag: str, before: ShardManifest | None) -> list[str]:
    if storage.read_text(NAME) != manifest.to_json():  # another run has published since, and may use such files
        return []
    wanted = _files(manifest)
    replaced = set() if before is None else _files(before) - wanted
    there = _sizes(storage).keys() - wanted
    # Not the shards of other runs, which may still be running.
    gone = {name for name in there if name in replaced or name.startswith((f"{tag}-", f".{tag}-"))}
    storage.remove_files(gone)
    storage.abandon(f"{tag}-")
    return sorted({name[:8] for name in there - gone if _SHARD.fullmatch(name)})


def _files(manifest: ShardManifest) -> set[str]:
    names = {shard.name for shard in manifest.shards}
    return names | set(map(index_name, names))


def _sizes(storage: Storage) -> dict[str, int]:
    try:
        return {name: size for name, size, is_folder in storage.entries() if not is_folder}
    except FileNotFoundError:
        return {}
