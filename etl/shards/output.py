"""The place where shards are written: published by the manifest, which comes last.

The names of shards begin with a tag that follows from images and options: two runs into one folder never write one
file with different contents, and readers find the shards of one run only, whichever manifest was written last.
"""

import csv
import hashlib
import io
import json
import logging
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.secrets import driver_storage
from etl.shards.plan import ShardPlan
from etl.splits.output import code_version
from formats.errors import FormatsError
from formats.shards import content_fingerprint, index_name
from formats.storage import Storage
from formats.uploads import abandoned
from schemas import SchemaError
from schemas.shards import NAME as MANIFEST
from schemas.shards import Shard, ShardManifest

log = logging.getLogger(__name__)

REJECTED = "rejected.csv"
_SHARD = re.compile(r"[0-9a-f]{8}-[0-9]{6,}\.tar")


class ShardOutput:
    """A folder of shards in the making."""

    def __init__(self, storage: Storage, before: ShardManifest | None, *, plan: ShardPlan) -> None:
        self._storage, self._before, self._plan = storage, before, plan
        self.address = storage.address

    @classmethod
    def open(cls, spark: SparkSession, *, plan: ShardPlan) -> "ShardOutput":
        """Raises `OutputExistsError` if shards are there, unless they may be replaced or gone on with."""
        storage = driver_storage(spark, plan.out)
        _check_place(storage)
        before = read_manifest(storage)
        if before is not None and not plan.overwrite and not plan.resume:
            raise OutputExistsError(_exists(storage.address, before))
        return cls(storage, before, plan=plan)

    def published(self, tag: str) -> ShardManifest | None:
        """What an earlier run has published, if --resume finds nothing left to do. Raises `OutputExistsError`."""
        if self._before is None or not self._plan.resume:
            return None
        if all(shard.name.startswith(f"{tag}-") for shard in self._before.shards):
            if not (missing := self._missing(self._before.shards)):
                return self._before
            log.warning("The manifest names %d shards that are not there: all are written again.", len(missing))
            return None
        raise OutputExistsError(
            f"Wanted to go on with these images and options at {self.address}. Found: shards of others, whole. "
            "Say --overwrite to replace them."
        )

    def publish(
        self,
        shards: Sequence[Shard],
        counts: Mapping[int, int],
        rejected: Sequence[Mapping[str, str]],
        *,
        tag: str,
        facts: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> tuple[ShardManifest, list[str]]:
        """Put the manifest in place, then remove what it replaces; it, and remarks that are worth a line.

        Raises `OutputExistsError` if another was first, `EtlError` if shards are not there that tasks have written.
        """
        names: Mapping[int, str] = facts["class_names"]
        manifest = ShardManifest(
            **facts,
            samples=sum(shard.samples for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
            num_classes=max([-1, *counts, *names]) + 1 if facts["label_type"] == "int" else 0,
            counts=dict(sorted(counts.items())),
            seed=self._plan.seed,
            fingerprint=content_fingerprint(shards),
            options=options,
            shards=tuple(shards),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            code_version=code_version(),
        )
        now = read_manifest(self._storage)
        if now is not None and now != self._before and now.fingerprint != manifest.fingerprint:
            raise OutputExistsError(f"{_exists(self.address, now)} They were published while this run was under way.")
        if missing := self._missing(shards):
            raise EtlError(
                f"Wanted {len(shards):,} shards at {self.address}. Found: {len(missing):,} are not there, or of "
                f"another size, first {missing[0]}. Does another run write there, or is it a folder that driver and "
                "executors do not share?"
            )
        with _write_errors(self._storage):
            self._tell_rejected(rejected)
            self._storage.publish_text(MANIFEST, manifest.to_json())
        try:
            return manifest, self._tidy(manifest, tag)
        except OSError as error:
            log.warning("What is not needed any more could not be removed: %s", error)
            return manifest, []

    def _missing(self, shards: Sequence[Shard]) -> list[str]:
        """Those of these shards that are not there as they should be, or whose index is not."""
        sizes = self._sizes()
        return [
            shard.name
            for shard in shards
            if sizes.get(shard.name) != shard.bytes or index_name(shard.name) not in sizes
        ]

    def _sizes(self) -> dict[str, int]:
        try:
            return {name: size for name, size, is_folder in self._storage.entries() if not is_folder}
        except FileNotFoundError:
            return {}

    def _tell_rejected(self, rejected: Sequence[Mapping[str, str]]) -> None:
        self._storage.remove(REJECTED)
        if rejected:
            text = io.StringIO(newline="")
            lines = csv.DictWriter(text, ["or_split", "path", "reason"])
            lines.writeheader()
            lines.writerows(sorted(rejected, key=lambda one: (one["or_split"], one["path"])))
            self._storage.publish_text(REJECTED, text.getvalue())

    def _tidy(self, manifest: ShardManifest, tag: str) -> list[str]:
        """Remove shards that the manifest before named, and what killed tasks and runs of this one left.

        What runs of other images or options left, which may be under way, stays; a remark tells of it.
        """
        names = {shard.name for shard in manifest.shards}
        wanted = names | {index_name(name) for name in names}
        before = [] if self._before is None else [shard.name for shard in self._before.shards]
        replaced = {*before, *map(index_name, before)} - wanted
        there = self._sizes()
        notes = (f"{tag}-", f".{tag}-")
        gone = [name for name in there if name in replaced or (name.startswith(notes) and name not in wanted)]
        self._storage.remove_files(gone)
        if self._storage.is_s3:
            prefix = f"{self._storage.key(tag)}-"
            for key, upload in abandoned(self._storage):
                if key.startswith(prefix):
                    with suppress(FileNotFoundError):  # it ended in between
                        self._storage.ask("abort_multipart_upload", Key=key, UploadId=upload)
        others = {name[:8] for name in there.keys() - set(gone) - wanted if _SHARD.fullmatch(name)}
        return [f"shards that no manifest names lie there, too: {', '.join(f'{one}-*' for one in sorted(others))}; "
                "remove them, unless their run is under way"] if others else []  # fmt: skip


def read_manifest(storage: Storage) -> ShardManifest | None:
    """The manifest of a folder, None where there is none. Raises `OutputExistsError` for one that cannot be read."""
    place = f"{storage.address}/{MANIFEST}"
    try:
        return ShardManifest.from_json(storage.read_text(MANIFEST), place=place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except SchemaError as error:
        raise OutputExistsError(f"{str(error).rstrip('.')}. Remove it, or name another place.") from None
    except (UnicodeDecodeError, IsADirectoryError, PermissionError) as error:
        raise OutputExistsError(
            f"Wanted a manifest of shards at {place}. Found: one that cannot be read ({error}). "
            "Remove it, or name another place."
        ) from None


def tag_of(source_fingerprint: str, *, plan: ShardPlan) -> str:
    """What the names of shards begin with: it follows from the images, and from the options that change shards."""
    options = [plan.seed, plan.most_bytes, plan.maxcount, str(plan.recode), plan.compress, plan.check]
    return hashlib.sha256(json.dumps([1, source_fingerprint, *options]).encode()).hexdigest()[:8]


def source_fingerprint(*, rows: int, first: int, second: int) -> str:
    """The identity of images, their labels, sizes and order, from the sums of `packing.source_sums`."""
    return hashlib.sha256(json.dumps(["images", 1, rows, int(first), int(second)]).encode()).hexdigest()


def reasons(rejected: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How often each kind of reason was given, the most frequent first."""
    return dict(Counter(one["reason"].partition(": ")[0] for one in rejected).most_common())


def _check_place(storage: Storage) -> None:
    """Raise `EtlError` for a local place where nothing can be written."""
    if not storage.is_local:
        return
    place = storage.path()
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    probe = f"{place}/.{secrets.token_hex(8)}"
    try:
        os.mkdir(probe)
        os.rmdir(probe)
    except OSError as error:
        found = f"{place}: {error.strerror}" if os.path.isdir(place) else f"{place} is no folder"
        raise EtlError(f"Wanted a folder to write to at {storage.address}. Found: {found}.") from None


@contextmanager
def _write_errors(storage: Storage) -> Iterator[None]:
    try:
        yield
    except FormatsError:
        raise
    except OSError as error:
        raise EtlError(f"Wanted to write {storage.address}/{MANIFEST}. Found: {error.strerror or error}.") from None


def _exists(address: str, found: ShardManifest) -> str:
    return (
        f"Wanted a place without shards at {address}. Found: {len(found.shards)} of them, {found.samples:,} images. "
        "Say --overwrite to replace them, or name another place."
    )
