"""A folder of shards: published by its manifest, which comes last, and then rid of what nobody needs any more."""

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
    """The manifest of shards that were written just now; `ShardManifest` says what the arguments mean."""
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
    """The names of those shards that are not there as they should be, or whose index is not. Raises OSError."""
    there = _sizes(storage)
    return [
        shard.name for shard in shards if there.get(shard.name) != shard.bytes or index_name(shard.name) not in there
    ]


def publish(storage: Storage, manifest: ShardManifest, *, tag: str, before: ShardManifest | None) -> list[str]:
    """Put the manifest in place, then remove the shards of the one ``before`` it, and what killed runs of its tag left.

    All names of its files begin with ``tag``. Shards of other runs, which may be under way, stay: their tags are given
    back, sorted. Raises OSError if the manifest cannot be written; what cannot be removed is a warning of the log.
    """
    name = storage.address.rpartition("/")[2]
    croissant.write(storage, croissant.SHARDS_NAME, croissant.shards_croissant(manifest, name=name))
    storage.settle(_files(manifest))
    storage.publish_text(NAME, manifest.to_json())
    try:
        return _tidy(storage, manifest, tag=tag, before=before)
    except OSError as error:
        log.warning("What is not needed any more could not be removed: %s", error)
        return []


def _tidy(storage: Storage, manifest: ShardManifest, *, tag: str, before: ShardManifest | None) -> list[str]:
    wanted = _files(manifest)
    replaced = set() if before is None else _files(before) - wanted
    there = _sizes(storage).keys() - wanted
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
