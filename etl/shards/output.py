"""The output of shards. The manifest, which is written last, publishes them.

The names of shards start with a tag that is computed from the images and the options. So two runs into one folder never
write different contents to the same file, and readers find the shards of a single run, whichever manifest was last.
"""

import hashlib
import json
import logging
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.secrets import driver_storage
from etl.shards.plan import ShardPlan
from etl.shards.tasks import write_errors
from etl.spreadsheets import csv_text
from formats.shards.folder import manifest_of, missing, publish
from formats.stores.storage import Storage
from schemas import SchemaError
from schemas.shards import NAME as MANIFEST
from schemas.shards import Shard, ShardManifest

log = logging.getLogger(__name__)

REJECTED = "rejected.csv"


class ShardOutput:
    """The output of a folder of shards."""

    def __init__(self, spark: SparkSession, *, plan: ShardPlan) -> None:
        """Raises `OutputExistsError` if the folder has shards that may be neither replaced nor resumed."""
        self._plan, self._storage = plan, driver_storage(spark, plan.out)
        self.address = self._storage.address
        _check_place(self._storage)
        self._before = read_manifest(self._storage)
        if self._before is not None and not plan.overwrite and not plan.resume:
            raise OutputExistsError(_exists(self.address, self._before))

    def published(self, tag: str) -> ShardManifest | None:
        """The manifest of an earlier run, if --resume has nothing left to do. Raises `OutputExistsError`."""
        if self._before is None or not self._plan.resume:
            return None
        if all(shard.name.startswith(f"{tag}-") for shard in self._before.shards):
            if not (gone := missing(self._storage, self._before.shards)):
                return self._before
            log.warning("The manifest names %d shards that are missing: all are written again.", len(gone))
            return None
        raise OutputExistsError(
            f"Wanted to resume with these images and options at {self.address}. Found: complete shards of others. "
            "Set --overwrite to replace them."
        )

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of the published shards, by name."""
        return {} if self._before is None else {shard.name: shard.sha256 for shard in self._before.shards}

    def publish(
        self,
        shards: Sequence[Shard],
        counts: Mapping[int, int],
        rejected: Sequence[Mapping[str, str]],
        *,
        tag: str,
        content: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> tuple[ShardManifest, list[str]]:
        """Publish the manifest, then remove what it replaces; return the manifest and remarks for the report. Raises
        `OutputExistsError` if another run published first, `EtlError` if written or published shards are missing.
        """
        manifest = manifest_of(shards, **content, counts=counts, seed=self._plan.seed, options=options)
        now = read_manifest(self._storage)
        if now is not None and now != self._before and now.fingerprint != manifest.fingerprint:
            raise OutputExistsError(f"{_exists(self.address, now)} They were published during this run.")
        if gone := missing(self._storage, shards):
            raise EtlError(
                f"Wanted {len(shards):,} shards at {self.address}. Found: {len(gone):,} are missing or have "
                f"another size, first {gone[0]}. Does another run write there, or is it a folder that the driver and "
                "the executors do not share?"
            )
        columns = ["or_split", "path", "reason"]
        with write_errors(self._storage, MANIFEST):
            if rejected:
                rows = sorted(([one[name] for name in columns] for one in rejected), key=lambda row: row[:2])
                self._storage.publish_text(REJECTED, csv_text(columns, rows))
            others = publish(self._storage, manifest, tag=tag, before=self._before)
            if not rejected:
                self._storage.remove(REJECTED)
        self._check_published(manifest)
        return manifest, [f"there are also shards that no manifest names: {', '.join(f'{one}-*' for one in others)}; "
        "remove them, unless their run is still active"] if others else []  # fmt: skip

    def _check_published(self, manifest: ShardManifest) -> None:
        """Raise `EtlError` if shards are missing that are published: two runs have replaced the same ones at once."""
        now = read_manifest(self._storage) or manifest
        if gone := missing(self._storage, now.shards):
            raise EtlError(
                f"Wanted no other run that writes shards to {self.address}. Found: one that has published there since "
                f"this run began; of {len(now.shards):,} shards, {len(gone):,} are missing now, first {gone[0]}. Run "
                "one of them again, with --overwrite."
            )


def read_manifest(storage: Storage) -> ShardManifest | None:
    """The manifest of a folder, or None. Raises `OutputExistsError` if it cannot be read."""
    place = f"{storage.address}/{MANIFEST}"
    try:
        return ShardManifest.from_json(storage.read_text(MANIFEST), place=place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except SchemaError as error:
        raise OutputExistsError(f"{str(error).rstrip('.')}. Remove it, or use another --out.") from None
    except (UnicodeDecodeError, IsADirectoryError, PermissionError) as error:
        raise OutputExistsError(
            f"Wanted a manifest of shards at {place}. Found: one that cannot be read ({error}). "
            "Remove it, or use another --out."
        ) from None


def tag_of(source_fingerprint: str, *, plan: ShardPlan) -> str:
    """The prefix of the names of shards, computed from the images and the options that affect shards."""
    options = [plan.seed, plan.most_bytes, plan.maxcount, str(plan.recode), plan.compress, plan.check]
    return hashlib.sha256(json.dumps([1, source_fingerprint, *options]).encode()).hexdigest()[:8]


def source_fingerprint(order: NDArray[np.int64], digest: NDArray[np.int64]) -> str:
    """The fingerprint of images, labels, sizes, checksums and order, from what `tasks.measure` found, in any order."""
    rows = np.lexsort((digest, order))
    digester = hashlib.sha256(b"images 1\n")
    for column in (order, digest):
        digester.update(column[rows].astype("<i8").tobytes())
    return digester.hexdigest()


def reasons(rejected: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """The number of each kind of reason, most frequent first."""
    return dict(Counter(one["reason"].partition(": ")[0] for one in rejected).most_common())


def _check_place(storage: Storage) -> None:
    """Raise `EtlError` for a local folder that cannot be written to."""
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
        found = f"{place}: {error.strerror}" if os.path.isdir(place) else f"{place} is not a folder"
        raise EtlError(f"Wanted a folder to write to at {storage.address}. Found: {found}.") from None


def _exists(address: str, found: ShardManifest) -> str:
    return (
        f"Wanted a folder without shards at {address}. Found: {len(found.shards)} of them, {found.samples:,} images. "
        "Set --overwrite to replace them, or use another --out."
    )
