"""The place where shards are written: published by the manifest, which comes last.

The names of shards begin with a tag that follows from images and options: two runs into one folder never write one
file with different contents, and readers find the shards of one run only, whichever manifest was written last.
"""

import csv
import hashlib
import io
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from etl.errors import OutputExistsError
from etl.secrets import driver_storage
from etl.shards.plan import ShardPlan
from etl.shards.tasks import DONE
from etl.splits.output import code_version
from formats.shards import content_fingerprint, index_name
from formats.storage import Storage
from formats.uploads import abandoned
from schemas import SchemaError
from schemas.shards import NAME as MANIFEST
from schemas.shards import Shard, ShardManifest

log = logging.getLogger(__name__)

REJECTED = "rejected.csv"


class ShardOutput:
    """A folder of shards in the making."""

    def __init__(self, storage: Storage, before: ShardManifest | None, *, plan: ShardPlan) -> None:
        self._storage, self._before, self._plan = storage, before, plan
        self.address = storage.address

    @classmethod
    def open(cls, spark: SparkSession, *, plan: ShardPlan) -> "ShardOutput":
        """Raises `OutputExistsError` if shards are there, unless they may be replaced or gone on with."""
        storage = driver_storage(spark, plan.out)
        before = read_manifest(storage)
        if before is not None and not plan.overwrite and not plan.resume:
            raise OutputExistsError(_exists(storage.address, before))
        return cls(storage, before, plan=plan)

    def published(self, tag: str) -> ShardManifest | None:
        """What an earlier run has published, if --resume finds nothing left to do. Raises `OutputExistsError`."""
        if self._before is None or not self._plan.resume:
            return None
        if all(shard.name.startswith(f"{tag}-") for shard in self._before.shards):
            return self._before
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
    ) -> ShardManifest:
        """Put the manifest in place, then remove what it replaces. Raises `OutputExistsError` if another was first."""
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
        self._tell_rejected(rejected)
        self._storage.publish_text(MANIFEST, manifest.to_json())
        self._tidy(manifest, tag)
        return manifest

    def _tell_rejected(self, rejected: Sequence[Mapping[str, str]]) -> None:
        self._storage.remove(REJECTED)
        if rejected:
            text = io.StringIO(newline="")
            lines = csv.DictWriter(text, ["or_split", "path", "reason"])
            lines.writeheader()
            lines.writerows(sorted(rejected, key=lambda one: (one["or_split"], one["path"])))
            self._storage.publish_text(REJECTED, text.getvalue())

    def _tidy(self, manifest: ShardManifest, tag: str) -> None:
        """Remove shards that the manifest before named, and what killed runs of this one left."""
        names = {shard.name for shard in manifest.shards}
        gone = [] if self._before is None else [one.name for one in self._before.shards if one.name not in names]
        for name in gone:
            self._storage.remove(name)
            self._storage.remove(index_name(name))
        for name in names:
            with suppress(OSError):
                self._storage.remove(name + DONE)
        if self._storage.is_s3:
            prefix = f"{self._storage.key(tag)}-"
            for key, upload in abandoned(self._storage):
                if key.startswith(prefix):
                    self._storage.ask("abort_multipart_upload", Key=key, UploadId=upload)


def read_manifest(storage: Storage) -> ShardManifest | None:
    """The manifest of a folder, None where there is none. Raises `OutputExistsError` for one that cannot be read."""
    try:
        text = storage.read_text(MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return ShardManifest.from_json(text, place=f"{storage.address}/{MANIFEST}")
    except SchemaError as error:
        raise OutputExistsError(f"{error} Remove it, or name another place.") from None


def tag_of(source_fingerprint: str, *, plan: ShardPlan) -> str:
    """What the names of shards begin with: it follows from the images, and from the options that change shards."""
    options = [plan.seed, plan.most_bytes, plan.maxcount, str(plan.recode), plan.compress]
    return hashlib.sha256(json.dumps([1, source_fingerprint, *options]).encode()).hexdigest()[:8]


def source_fingerprint(*, rows: int, first: int, second: int) -> str:
    """The identity of images, their labels, sizes and order, from the sums of `packing.source_sums`."""
    return hashlib.sha256(json.dumps(["images", 1, rows, int(first), int(second)]).encode()).hexdigest()


def reasons(rejected: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How often each kind of reason was given, the most frequent first."""
    return dict(Counter(one["reason"].partition(": ")[0] for one in rejected).most_common())


def _exists(address: str, found: ShardManifest) -> str:
    return (
        f"Wanted a place without shards at {address}. Found: {len(found.shards)} of them, {found.samples:,} images. "
        "Say --overwrite to replace them, or name another place."
    )
