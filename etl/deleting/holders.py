"""What holds images that are to be deleted, besides their tables: registered splits, shards and models, splits that the
user names, and what only the user knows.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.deleting.plan import DeletePlan
from etl.errors import ConflictError, EtlError, one_line
from etl.frames import from_pandas
from etl.splits.taking_part import split_rows
from formats import open_split
from formats.errors import FormatsError
from schemas import SchemaError, TableName

OUTSIDE = {
    "the files of the source": "an ingest leaves them out, but they stay there",
    "metadata caches": "name them with --cache, or make them again with split.py --metadata-ofn --overwrite",
    "features as Parquet": "write them again with featurize.py --offline --overwrite",
    "splits": "ids, labels and stored features stay in them; make them again with split.py --overwrite",
    "opened splits, on each host of a training": "remove $IMAGESTRATA_CACHE, by default ~/.cache/imagestrata/splits",
    "shards, row lists, target folders and dataset versions": "remove them, or make them again",
    "checkpoints": "models have seen the images; train again without them if that matters",
    "snapshots and backups of Cassandra": "remove them: nodetool clearsnapshot",
    "Cassandra's commit logs and SSTables": "the bytes go with a later compaction; to drop them now, run nodetool "
    "flush and nodetool garbagecollect on each node",
    "logs and options of jobs": "they have paths if you wrote conditions or pins with paths, or listed stale rows",
}
"""Where copies of images can be that `delete.py` does not remove, and what to do about them."""
PINNED = "pinned"
"""The tag of registered splits that must not lose images: ``pinned=true``."""
_UNREADABLE = (EtlError, FormatsError, SchemaError, OSError, TypeError, PySparkException, Py4JJavaError)


@dataclass(frozen=True, slots=True)
class Holder:
    """A split that holds images to delete, or that cannot be read."""

    address: str
    images: int | None  # None if it cannot be read
    is_protected: bool  # Pinned or named by the user, so that only ``--force`` deletes its images.
    problem: str = field(default="")  # why it cannot be read

    def __str__(self) -> str:
        if self.images is None:
            return f"{self.address} cannot be read ({self.problem})"
        return f"{self.address} has {self.images:,} of these images"


@dataclass(frozen=True, slots=True)
class _Candidate:
    address: str
    is_protected: bool
    metadata_table: str | None = None
    fingerprints: tuple[str, ...] = ()


def find_holders(spark: SparkSession, control: Control, ids: DataFrame, *, plan: DeletePlan) -> list[Holder]:
    """The splits of the plan's tables that hold images of these ids (16 bytes; persisted), or that cannot be read, by
    address. Runs Spark.
    """
    found = []
    for candidate in _candidates(control, plan=plan):
        if candidate.metadata_table not in (None, str(plan.metadata_table)):
            continue
        images, problem = None, ""
        try:
            rows = _ids_of(spark, candidate, plan=plan)
            images = 0 if rows is None else _count_held(rows, ids)
        except _UNREADABLE as error:
            problem = one_line(error)[:200]
        if images != 0:
            found.append(Holder(candidate.address, images, candidate.is_protected, problem))
    return sorted(found, key=lambda holder: holder.address)


def _count_held(rows: DataFrame, ids: DataFrame) -> int:
    return rows.join(ids, on="id", how="left_semi").distinct().count()


def find_models(spark: SparkSession, control: Control, ids: DataFrame, *, plan: DeletePlan) -> dict[str, int | None]:
    """The number of images of these ids (16 bytes; persisted) by registered model and use, such as ``model.pt@v1
    (training)``; None if its split cannot be read. Runs Spark.
    """
    keyspace = plan.metadata_table.keyspace
    sets = [json.loads(one.document) for one in registry.entries(control, keyspace=keyspace, kind=registry.SHARD_SET)]
    split_of = {print_: (one["split"], one["source_fingerprint"]) for one in sets for print_ in one["fingerprint"]}
    found: dict[str, int | None] = {}
    for entry in registry.entries(control, keyspace=keyspace, kind=registry.MODEL):
        for use, images in json.loads(entry.document)["images"].items():
            is_of_files = images["kind"] == "folders" and not images["metadata_table"]
            if is_of_files or images["metadata_table"] not in ("", str(plan.metadata_table)):
                continue
            address, print_ = split_of.get(images["fingerprint"], (images["address"], images["fingerprint"]))
            count = None
            with suppress(*_UNREADABLE, LookupError):
                count = _count_held(_parts(spark, address)[1][print_], ids)
            if count != 0:
                found[f"{entry.title} ({use})"] = count
    return found


def find_shards(spark: SparkSession, control: Control, ids: DataFrame, *, plan: DeletePlan) -> dict[str, int | None]:
    """The number of images of these ids (16 bytes; persisted) by registered shard set, from the split that it was made
    from; None if that cannot be read, or the set was made from a whole table. Runs Spark.
    """
    keyspace = plan.metadata_table.keyspace
    found: dict[str, int | None] = {}
    for entry in registry.entries(control, keyspace=keyspace, kind=registry.SHARD_SET):
        document = json.loads(entry.document)
        if document["metadata_table"] not in (None, str(plan.metadata_table)):
            continue
        count = None
        if document["split"] is not None:
            with suppress(*_UNREADABLE, LookupError):
                count = _count_held(_parts(spark, document["split"])[1][document["source_fingerprint"]], ids)
        if count != 0:
            found[entry.title] = count
    return found


def check_holders(holders: list[Holder], *, plan: DeletePlan) -> None:
    """Raise `ConflictError` for pinned or named splits that hold images, unless the plan says ``force``."""
    protected = [holder for holder in holders if holder.is_protected]
    if protected and not plan.force:
        raise ConflictError(
            f"Wanted images that no pinned split has, and none of --split. Found: {'; '.join(map(str, protected))}. "
            "Nothing was deleted. --force deletes the images anyway; these splits keep their ids, and training "
            "skips them with on_missing='skip'."
        )


def check_pinned(control: Control, *, metadata: TableName, before: int) -> None:
    """Raise `ConflictError` if a pinned split of this table is of an earlier run than ``before``: it may name bytes of
    states that had ended by then.
    """
    for entry in registry.entries(control, keyspace=metadata.keyspace, kind=registry.SPLIT):
        if not _is_pinned(entry):
            continue
        document = json.loads(entry.document)
        sequence = document.get("sequence")  # not known of splits of earlier versions
        is_of_table = document.get("metadata_table") in (None, str(metadata))
        if is_of_table and (sequence is None or sequence < before):
            raise ConflictError(
                f"Wanted no pinned split of an earlier run than {before}. Found: {entry.name}, of run "
                f"{'unknown' if sequence is None else sequence}, which may name these bytes. Nothing was deleted. "
                "--force deletes them anyway; reading images that were replaced since then fails."
            )


def _is_pinned(entry: registry.Entry) -> bool:
    return entry.tags.get(PINNED, "").lower() == "true"


def _candidates(control: Control, *, plan: DeletePlan) -> Iterator[_Candidate]:
    """Registered splits, each address once, and those of the plan, which must be readable."""
    found: dict[str, _Candidate] = {}
    for entry in registry.entries(control, keyspace=plan.metadata_table.keyspace, kind=registry.SPLIT):
        try:
            document = json.loads(entry.document)
            address = str(document["address"])
        except (ValueError, LookupError, TypeError):
            document, address = {}, entry.name
        is_pinned = _is_pinned(entry)
        prints = document.get("fingerprints") or document.get("fingerprint")
        if not isinstance(prints, list) or not all(isinstance(one, str) for one in prints):
            prints = []
        candidate = _Candidate(address, is_pinned, document.get("metadata_table"), tuple(prints) if is_pinned else ())
        if address not in found or is_pinned:  # the newest version comes first
            found[address] = candidate
    for address in plan.splits:
        place = os.path.abspath(address) if "://" not in address else address
        known = next((one for one in found if one.rstrip("/") in (address.rstrip("/"), place.rstrip("/"))), address)
        found[known] = _Candidate(known, is_protected=True)
    yield from found.values()


def _ids_of(spark: SparkSession, candidate: _Candidate, *, plan: DeletePlan) -> DataFrame | None:
    """The ids of a split; None if it is a split of other tables. Raises errors of `formats` and Spark."""
    metadata_table, parts = _parts(spark, candidate.address)
    if metadata_table not in ("", str(plan.metadata_table)):
        if candidate.metadata_table is None and candidate.is_protected:  # the user named it
            raise ConflictError(f"it is a split of {metadata_table}")
        return None
    if candidate.fingerprints and sorted(candidate.fingerprints) != sorted(parts):
        raise ConflictError("another split was published there since it was pinned")
    return reduce(DataFrame.union, parts.values())


def _parts(spark: SparkSession, address: str) -> tuple[str, dict[str, DataFrame]]:
    """The metadata table of a split, empty if it is not known; and the ids of its parts by fingerprint."""
    split, parts = open_split(address), {}
    for part in split.manifest.splits:
        if split.storage is None:
            ids = pd.Series([row.tobytes() for row in split.rows(part.index).ids], dtype=object)
            parts[part.fingerprint] = from_pandas(spark, pd.DataFrame({"id": ids}), "id BINARY")
        else:
            parts[part.fingerprint] = split_rows(spark, split, part.index).select("id")
    return split.manifest.metadata_table, parts
