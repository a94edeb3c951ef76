"""Folders of shards, opened by their manifest."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from formats import StorageError
from formats.retries import Retries
from formats.splits.opened import SplitRows, held_split
from loader.errors import ShardError, SplitError, UnreachableError
from loader.s3.client import Client, told
from loader.splits import Split
from schemas import SchemaError, SplitPart
from schemas.shards import NAME, Shard, ShardManifest

if TYPE_CHECKING:
    from formats.stores.storage import Storage

TIMEOUT_SECONDS = 60.0  # a failing read is repeated for this long, unless a source says otherwise
_SHOWN = 5  # shards in the message
_TOGETHER = 1 << 20  # bytes of one read


@dataclass(frozen=True, slots=True, eq=False)
class Shards(Split):
    """A folder of shards, opened by `open_shards`, for `ShardSource`.

    It is a split whose ids and labels are inside the shards: ``ids`` is empty and ``labels`` is None. It is pickled as
    its address, and opened again where it is unpickled.

    Attributes:
        client: The connection settings.
        bucket: The name of the bucket.
        folder: The folder in it.
        manifest: Samples, classes, shards and their pieces.
    """

    client: Client = field(default_factory=Client)
    bucket: str = ""
    folder: str = ""
    manifest: "ShardManifest | None" = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.contents.samples

    def __repr__(self) -> str:
        return (
            f"Shards({self.address!r}: {len(self):,} images of {self.num_classes} classes in "
            f"{len(self.contents.shards):,} shards, fingerprint {self.fingerprint[:12]})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.client, self.bucket, self.folder, self.fingerprint)

    @property
    def contents(self) -> "ShardManifest":
        """The manifest."""
        assert self.manifest is not None
        return self.manifest

    def verify(self, *, threads: int = 8) -> None:
        """Read all shards and compare their sizes and SHA-256 with the manifest.

        Args:
            threads: How many shards are read at the same time.

        Raises:
            ShardError: Shards differ or are missing; the message names them.
            AccessError: The store refuses access.
            UnreachableError: The store does not answer.
        """
        storage = self.storage()
        try:
            with ThreadPoolExecutor(threads) as pool:
                found = [one for one in pool.map(partial(_difference, storage), self.contents.shards) if one]
        except StorageError as error:
            raise told(error) from None
        if found:
            raise ShardError(
                f"Wanted the {len(self.contents.shards):,} shards of {self.address} as in the manifest. "
                f"Found: {'; '.join(found[:_SHOWN])}{'; ...' if len(found) > _SHOWN else ''}. Write them again."
            )

    def storage(self) -> "Storage":
        """The folder of the shards. Raises `AccessError`, `UnreachableError`."""
        return self.client.storage(self.bucket, self.folder)


def open_shards(address: str, *, client: Client | None = None) -> Shards:
    """Open a folder of shards that jobs/shard.py or `upload_cv_dataset` wrote. Only the manifest is read.

    Args:
        address: ``s3://bucket/prefix`` or a local path.
        client: How to reach S3, by default as the environment says.

    Returns:
        The shards, for `ShardSource`.

    Raises:
        SplitError: There is no manifest, or a newer one.
        AccessError: The store refuses access.
        UnreachableError: The store does not answer.
    """
    text = str(address)
    if text.startswith(("s3://", "s3a://")):
        bucket, _, folder = text.partition("://")[2].partition("/")
        return shards_in(client or Client(), bucket, folder)
    parent, _, name = text.rstrip("/").rpartition("/")
    return shards_in(Client(url=parent or ("/" if text.startswith("/") else ".")), name, "")


def shards_in(client: Client, bucket: str, folder: str) -> Shards:
    """The shards of a folder in a bucket. Raises as `open_shards`."""
    storage = client.storage(bucket, folder)
    try:
        text = storage.read_text(NAME)
        manifest = ShardManifest.from_json(text, place=f"{storage.address}/{NAME}")
    except (FileNotFoundError, NotADirectoryError):
        raise SplitError(
            f"Wanted a folder of shards at {storage.address}. Found: no {NAME} there. Make one with jobs/shard.py or "
            "loader.shards.upload_cv_dataset."
        ) from None
    except StorageError as error:
        raise told(error) from None
    except (SchemaError, UnicodeDecodeError) as error:
        raise SplitError(str(error)) from None
    rows = SplitRows(np.empty((0, 16), dtype=np.uint8), None)
    part = SplitPart(0, manifest.samples, manifest.counts, manifest.fingerprint, ())
    opened = held_split(
        storage.address,
        [(part, rows)],
        num_classes=manifest.num_classes,
        class_names=manifest.class_names,
        label_type=manifest.label_type,
    )
    return Shards(opened, 0, rows, data_table="", client=client, bucket=bucket, folder=folder, manifest=manifest)


def _difference(storage: "Storage", shard: "Shard") -> str | None:
    """What is wrong with a shard."""
    digest, size = hashlib.sha256(), 0
    try:
        with storage.open(shard.name) as file:
            while data := file.read(_TOGETHER):
                digest.update(data)
                size += len(data)
    except FileNotFoundError:
        return f"no {shard.name}"
    if size != shard.bytes:
        return f"{shard.name} of {size:,} bytes instead of {shard.bytes:,}"
    if digest.hexdigest() != shard.sha256:
        return f"{shard.name} of SHA-256 {digest.hexdigest()[:12]} instead of {shard.sha256[:12]}"
    return None


def _open_again(client: Client, bucket: str, folder: str, fingerprint: str) -> Shards:
    # A worker process begins a pass with this. Like reads, it must survive a restart of the store.
    open_it = partial(shards_in, client, bucket, folder)
    found = Retries(seconds=TIMEOUT_SECONDS).run(open_it, UnreachableError)
    if found.fingerprint != fingerprint:
        raise SplitError(
            f"Wanted the shards {found.address} with the fingerprint {fingerprint}, as when they were first opened. "
            f"Found: {found.fingerprint}. The shards were replaced. Open them again."
        )
    return found
