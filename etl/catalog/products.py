"""What jobs make from tables: splits, shard sets, exports of features, and models. Each is described from its own files
and registered.

A product keeps its name, its address. If something else is published there, it gets the next version.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import FEATURE_EXPORT, MODEL, SHARD_SET, SPLIT, Entry
from etl.errors import EtlError, TableError
from etl.tables.runs import recorded_runs
from etl.tables.table_records import dataset_of, read_records
from formats import FormatsError, OpenSplit, is_dictionary, open_split
from formats.stores.storage import Storage
from schemas import SchemaError, TableName
from schemas.manifest import NAMES as SPLIT_MANIFESTS
from schemas.models import SUFFIX, ModelRecord
from schemas.offline import NAME as OFFLINE_MANIFEST
from schemas.offline import OfflineManifest
from schemas.shards import NAME as SHARD_MANIFEST
from schemas.shards import ShardManifest

log = logging.getLogger("imagestrata.registry")

FORMAT = 1
"""The format version of documents of products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A split, a shard set, an export of features or a model."""

    kind: str  # `SPLIT`, `SHARD_SET`, `FEATURE_EXPORT` or `MODEL`
    address: str  # its name in the registry
    fingerprint: tuple[str, ...]  # the fingerprints of all splits, or the SHA-256 of a checkpoint or of views' names
    metadata_table: TableName | None  # None if it is not known, as ``data_table``
    data_table: TableName | None
    content: Mapping[str, Any]  # what else the registry's document has

    @property
    def keyspace(self) -> str | None:
        """The keyspace in which it is registered; None if it is not known."""
        table = self.metadata_table or self.data_table
        return None if table is None else table.keyspace

    @property
    def document(self) -> dict[str, Any]:
        """What its files say, as in the registry's document."""
        return {
            "address": self.address,
            "fingerprint": list(self.fingerprint),
            "metadata_table": None if self.metadata_table is None else str(self.metadata_table),
            "data_table": None if self.data_table is None else str(self.data_table),
            **self.content,
        }


def product_at(address: str) -> Product | None:
    """Describe what is at an address, from its files; None if there is no split, no shard set, no export of features
    and no checkpoint with a record. Raises `FormatsError`, `SchemaError`, and `TableError` for a checkpoint with the
    record of another one.
    """
    if is_dictionary(address):
        return _split(open_split(address))
    if os.path.isfile(f"{address}{SUFFIX}") or os.path.isfile(address):
        return model_at(address) if os.path.isfile(f"{address}{SUFFIX}") else None
    storage = Storage(address)
    if any(storage.exists(name) for name in SPLIT_MANIFESTS):
        return _split(open_split(address))
    if storage.exists(SHARD_MANIFEST):
        return shards_in(storage)
    if storage.exists(OFFLINE_MANIFEST):
        return _exported_in(storage)
    return None


def _split(split: OpenSplit) -> Product:
    manifest = split.manifest
    sequence = manifest.sequence if manifest.as_of is None else manifest.as_of
    at_run = {} if sequence is None else {"sequence": sequence}  # versions before it was recorded: found by the time
    checksums = [part.checksums for part in manifest.splits]
    return Product(
        kind=SPLIT,
        address=split.address,
        fingerprint=tuple(split.fingerprints),
        metadata_table=TableName.parse(manifest.metadata_table),
        data_table=TableName.parse(manifest.data_table),
        content={
            "rows": [part.rows for part in manifest.splits],
            "label_type": manifest.label_type,
            "features": list(manifest.features),
            "services": list(manifest.services),
            "label_view": manifest.label_view,
            "options": manifest.options,
            "created": manifest.created or None,  # a dictionary does not say
            **at_run,
            **({"checksums": checksums} if any(checksums) else {}),
        },
    )


def _exported_in(storage: Storage) -> Product:
    """Describe the features in a folder. Its values may be replaced: it is the same as long as its views are."""
    place = f"{storage.address}/{OFFLINE_MANIFEST}"
    manifest = OfflineManifest.from_json(storage.read_text(OFFLINE_MANIFEST), place=place)
    titles = sorted(one.view for one in manifest.views)
    return Product(
        kind=FEATURE_EXPORT,
        address=storage.address,
        fingerprint=(hashlib.sha256("\n".join([manifest.metadata_table, *titles]).encode()).hexdigest(),),
        metadata_table=TableName.parse(manifest.metadata_table),
        data_table=None,
        content={"features": titles, "created": manifest.created},
    )


def shards_in(storage: Storage) -> Product:
    """Describe the shards of a folder. Raises FileNotFoundError, `SchemaError`, `FormatsError`."""
    place = f"{storage.address}/{SHARD_MANIFEST}"
    manifest = ShardManifest.from_json(storage.read_text(SHARD_MANIFEST), place=place)
    table = manifest.source.removeprefix("table:") if manifest.source.startswith("table:") else None
    data, metadata = None if table is None else TableName.parse(table), None
    of_split = manifest.options.get("split")
    split = None if of_split is None else Storage(of_split).address
    if of_split is not None:
        metadata, data = _tables_of_split(str(of_split), data)
    return Product(
        kind=SHARD_SET,
        address=storage.address,
        fingerprint=(manifest.fingerprint,),
        metadata_table=metadata,
        data_table=data,
        content={
            "source": manifest.source,
            "source_fingerprint": manifest.source_fingerprint,
            "split": split,
            "index": manifest.options.get("index"),
            "samples": manifest.samples,
            "shards": len(manifest.shards),
            "options": manifest.options,
            "created": manifest.created,
        },
    )


def _tables_of_split(address: str, data: TableName | None) -> tuple[TableName | None, TableName | None]:
    """The metadata and data tables of a split that shards were made from; as given if the split is not there."""
    try:
        found = open_split(address).manifest
    except (FormatsError, SchemaError):
        return None, data
    return TableName.parse(found.metadata_table), data or TableName.parse(found.data_table)


def record_of_model(checkpoint: str) -> ModelRecord:
    """Read the record beside a checkpoint, whose SHA-256 it has if the checkpoint is there. Raises `SchemaError` if the
    record cannot be read, and `TableError` if there is none, or it describes another checkpoint.
    """
    place = f"{checkpoint}{SUFFIX}"
    try:
        with open(place, encoding="utf-8") as file:
            record = ModelRecord.from_json(file.read(), place=place)
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(
            f"Wanted the record of a model at {place}. Found: {error}. training/train.py writes it beside a "
            "checkpoint; in your own loop, call loader.record_model."
        ) from None
    if os.path.exists(checkpoint) and (found := digest_of_file(checkpoint)) != record.sha256:
        raise TableError(
            f"Wanted the checkpoint of SHA-256 {record.sha256[:12]}, which {place} describes. Found: {found[:12]} at "
            f"{checkpoint}. Use the checkpoint and the record of the same training."
        )
    return record


def digest_of_file(path: str) -> str:
    """The SHA-256 of a local file, in hexadecimal. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_at(checkpoint: str) -> Product:
    """Describe a checkpoint from its record. Raises as `record_of_model` does."""
    record = record_of_model(checkpoint)
    tables = [TableName.parse(one.metadata_table) for one in record.images.values() if one.metadata_table]
    data = [TableName.parse(one.data_table) for one in record.images.values() if one.data_table]
    document = json.loads(record.to_json())
    return Product(
        kind=MODEL,
        address=os.path.abspath(checkpoint),
        fingerprint=(record.sha256,),
        metadata_table=tables[0] if tables else None,
        data_table=data[0] if data else None,
        content={name: document[name] for name in document if name not in ("format", "checkpoint", "sha256")},
    )


def register_product(control: Control, product: Product, *, keyspace: str | None = None) -> Entry:
    """Register a product in its keyspace, once: as it is registered, or as the next version of its address. Raises
    `TableError` unless its files or ``keyspace`` name the keyspace, and do not disagree, and `UnreachableError`.
    """
    if keyspace is not None and product.keyspace not in (None, keyspace):
        raise TableError(
            f"Wanted a {product.kind} of keyspace {keyspace}. Found: {product.address}, of {product.keyspace}."
        )
    keyspace = product.keyspace or keyspace
    if keyspace is None:
        raise TableError(
            f"Wanted the keyspace of {product.address}. Found: its files name no table. Add -k KEYSPACE, the keyspace "
            "in which to register it."
        )
    registry.create(control, keyspace=keyspace)
    while True:
        known = registry.entries(control, keyspace=keyspace, kind=product.kind, name=product.address)
        if known and _is_of(known[0], product):
            return known[0]
        entry = Entry(
            kind=product.kind,
            name=product.address,
            version=known[0].version + 1 if known else 1,
            document=json.dumps(_document(control, product, keyspace=keyspace), ensure_ascii=False, sort_keys=True),
        )
        found = registry.register(control, entry, keyspace=keyspace)
        if _is_of(found, product):
            return found


def _is_of(entry: Entry, product: Product) -> bool:
    """Whether a product is what is registered. A split that is made again can have its fingerprint, and other bytes."""
    known, wanted = json.loads(entry.document), product.document
    return all(known.get(name) == wanted.get(name) for name in ("fingerprint", "checksums"))


def _document(control: Control, product: Product, *, keyspace: str) -> dict[str, Any]:
    metadata = product.metadata_table
    if metadata is None and product.data_table is not None:
        records = read_records(control, keyspace=keyspace)
        metadata = next((one.metadata_table for one in records if one.data_table == product.data_table), None)
    return {
        "format": FORMAT,
        "dataset": None if metadata is None else dataset_of(control, metadata),
        "sequence": None if metadata is None else _newest_run(control, metadata, created=product.content["created"]),
        **product.document,
        "metadata_table": None if metadata is None else str(metadata),
    }


def _newest_run(control: Control, metadata: TableName, *, created: str | None) -> int | None:
    """The newest run of a metadata table that had started when a product was written; None if there is none."""
    # Files have the time in whole seconds, Cassandra's times are UTC without saying so.
    end = datetime.now(UTC) if created is None else datetime.fromisoformat(created) + timedelta(seconds=1)
    runs = recorded_runs(control, metadata)
    started = (run.sequence for run in runs if run.started is None or run.started.replace(tzinfo=UTC) < end)
    return max(started, default=None)


def register_output(spark: SparkSession, storage: Storage | None, address: str) -> None:
    """Register what a job has published: shards in ``storage``, or without one, what is at ``address``. If that
    fails, log why, and how to do it later: the output is complete.
    """
    try:
        product = product_at(address) if storage is None else shards_in(storage)
        if product is None or product.keyspace is None:  # shards of files
            log.info("not registered: %s has no tables", address)
            return
        with Control.from_spark(spark) as control:
            entry = register_product(control, product)
        log.info("registered as %s %s in %s.registry", entry.kind, entry.title, product.keyspace)
    except (EtlError, FormatsError, SchemaError, OSError) as error:
        log.warning(
            "warning: %s is complete, but not registered. %s Register it later: imagestrata registry add %s",
            address,
            error,
            address,
        )
