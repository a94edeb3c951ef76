"""The jobs of a history. Each is a coroutine with a step before every write, in the order of the real job's writes.

The decisions of the driver, which the real jobs make with Spark, are made here in plain Python. Runs, rows, histories
and removals are written by the code of the product.
"""

import hashlib
import math
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from etl.cassandra.registry import label_views_of, register_view
from etl.cassandra.task_sessions import insert_into
from etl.deleting.deletion import WRITERS
from etl.errors import ConflictError
from etl.features.computing.tasks import FeatureOrder, Image, Value, ValueRows
from etl.features.vectors.index import index_run
from etl.ingest.destination import check_ttl
from etl.ingest.plan import Tables
from etl.ingest.writing.preparation import PreparedImage
from etl.ingest.writing.table_rows import TableRows, TableTarget
from etl.labels.versions import label_views, next_version
from etl.pictures.images import Header
from etl.sources.entries import Entry
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import RECORDED, Removal, Remover, value_tables
from etl.tables.runs import expiring, is_shared, recorded_runs, sequences_by_ingest
from etl.tables.sequence import Run, finish_run, take_lone_run, take_run
from etl.verify.comparison import MISSING_BLOB, NO_METADATA
from etl.verify.plan import VerifyPlan
from etl.verify.repair import delete_halves
from schemas import Columns, TableName
from schemas.feature_sources import Builtin, Labels
from schemas.features import FeatureView
from schemas.identity import image_id
from schemas.tables import (
    DELETED,
    PRUNED,
    add_columns,
    create_feature_values,
    create_history,
    create_kept,
    create_label_values,
    create_shared,
    create_vectors,
    history_of,
    kept_of,
    label_bucket,
)
from tests.support.histories.clients import FakeControl, FakeSession, Step
from tests.support.histories.reading import Known, Reading, state_of
from tests.support.histories.store import Store

CLASSES = {"a": 0, "b": 1, "c": 2}
LABEL = "label"
VIEW = FeatureView(name="f", version=1, fields={"f": "int"}, source=Builtin("f"), digest="0" * 64)
"""A feature: the number in an image's bytes."""
File = tuple[bytes, str]
"""The bytes of a file and its class."""


class RefusedError(Exception):
    """A job that ended with an error for its user."""


class OvertakenError(RefusedError):
    """A job that was refused because another one has done the same in the meantime."""


@dataclass
class World:
    """The tables, and what a job has done to them."""

    is_one_keyspace: bool = True
    store: Store = field(default_factory=Store)
    sources: dict[str, dict[str, File]] = field(default_factory=lambda: {"one": {}, "two": {}})
    # By image, the last run that wrote or removed it, and what the image is since then. A later run wins.
    wanted: dict[uuid.UUID, tuple[int, Known | None]] = field(default_factory=dict)
    written: dict[tuple[int, uuid.UUID], Known | None] = field(default_factory=dict)  # the same of every run
    deleted: dict[uuid.UUID, int] = field(default_factory=dict)  # by a run that deletes, until a later run restores it
    # Images that were deleted while another run may have written them. The job that deleted them was killed, or told
    # its user to delete them again; until then they may be there or not.
    uncertain: set[uuid.UUID] = field(default_factory=set)
    # Images without a row that a killed deletion has recorded and not removed. Until it runs again, their labels and
    # replaced bytes may be left.
    begun: set[uuid.UUID] = field(default_factory=set)
    attempts: int = 0
    ingests: int = 0

    ends: dict[uuid.UUID, float] = field(default_factory=dict)  # when what is wanted of an image expires
    expired: set[uuid.UUID] = field(default_factory=set)  # the images that expired at any time
    # Whether a run computed values while another one gave images another end: it may have read the earlier end.
    has_raced: bool = False
    last_deletions: dict[uuid.UUID, int] = field(default_factory=dict)  # the last run that deleted each image
    # by the run of each registered version: what it said of images
    versions: dict[int, dict[uuid.UUID, tuple[Any, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.control = FakeControl(self.store)
        self.session: Any = FakeSession(self.store)
        data = TableName("k" if self.is_one_keyspace else "d", "data")
        self.tables = Tables(data, TableName("k", "metadata"), Columns(), "int")
        for statement in self.tables.definitions.values():
            self.store.define(statement)
        self.store.define(create_shared("registry", "k"))
        self.values = VIEW.table_of(self.tables.metadata)
        self.store.define(create_feature_values(self.values, VIEW.fields))
        self.vectors = VIEW.index_table_of(self.tables.metadata)
        self.store.define(create_vectors(self.vectors, 1))

    @property
    def rows(self) -> dict[uuid.UUID, dict[str, Any]]:
        """The rows of the metadata table by id."""
        return {row["id"]: row for row in self.store.rows("k.metadata")}

    @property
    def data(self) -> dict[uuid.UUID, bytes | None]:
        """The bytes of the data table by id; None for a row without an image."""
        return {row["id"]: row["data"] for row in self.store.rows(str(self.tables.data))}

    @property
    def copies(self) -> dict[tuple[uuid.UUID, int], bytes]:
        """The replaced bytes that are kept, by image and checksum."""
        name = str(kept_of(self.tables.data))
        rows = self.store.rows(name) if name in self.store.tables else ()
        return {(row["id"], row["xxhash64"]): row["data"] for row in rows}

    def read(self) -> Reading:
        """Read the tables."""
        history = history_of(self.tables.metadata)
        there = list(self.store.rows(str(history))) if self.control.columns(history) else []
        runs, values = recorded_runs(self.control, self.tables.metadata), list(self.store.rows(str(self.values)))
        views = label_views(self.control, self.tables.metadata, name=LABEL)
        labels = list(self.store.rows("k.metadata_label")) if "k.metadata_label" in self.store.tables else []
        vectors = list(self.store.rows(str(self.vectors)))
        return Reading(self.rows, there, runs, values, views, labels, vectors, self.copies)

    def opened(self) -> MetadataTable:
        """The metadata table as the driver opens it."""
        spark: Any = None
        return MetadataTable.open(spark, self.control, self.tables.metadata)

    def wrote(self, image: uuid.UUID, run: Run, state: Known | None, *, ttl: int = 0) -> None:
        """Remember the last run that wrote or removed an image."""
        self.written[run.sequence, image] = state
        if run.sequence >= self.wanted.get(image, (0, None))[0]:
            self.wanted[image] = (run.sequence, state)
            self.ends[image] = self.store.now + ttl if ttl else float("inf")

    @property
    def now(self) -> datetime:
        """The time of the cluster."""
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.store.now)

    def new_ingest_id(self) -> uuid.UUID:
        """The id of an ingest that begins now."""
        self.ingests += 1
        ticks = int(self.now.timestamp()) * 10**7 + 0x01B21DD213814000
        low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000
        return uuid.UUID(fields=(low, middle, high, 0x80, 0, self.ingests))

    def wait(self, seconds: int) -> None:
        """Let time pass. An image that was deleted, came back and expired counts as deleted as far as the tables know:
        the row that said that it came back is gone.
        """
        before = {image for image, data in self.data.items() if data is not None}
        self.store.now += seconds
        # in two keyspaces, a killed run leaves bytes that end before their row
        self.expired |= before - {image for image, data in self.data.items() if data is not None}
        for image, (sequence, state) in self.wanted.items():
            if state is not None and self.ends[image] <= self.store.now:
                self.wanted[image] = (sequence, None)
                self.expired.add(image)
        for image in self.expired & self.last_deletions.keys() & self.read().deleted() - self.rows.keys():
            self.deleted.setdefault(image, self.last_deletions[image])


def id_of(path: str) -> uuid.UUID:
    """The id of an image."""
    return image_id("k", b"", path.encode())


async def ingest(
    world: World,
    source: str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    prune: bool = False,
    restore: bool = False,
    groups: bool = False,
    ttl: int | None = None,
    keep: bool = False,
    retried: int = 0,
    ingest_id: uuid.UUID | None = None,
) -> None:
    """Ingest a source. The task's first attempt ends after ``retried`` images, and a second one writes them all."""
    plan: Any = SimpleNamespace(tables=world.tables, ingest_id=ingest_id, ttl=ttl, source_name=source)
    try:
        check_ttl(world.control, plan=plan)
    except ConflictError:
        raise RefusedError("another --ttl") from None
    files, reading = {id_of(path): (path, file) for path, file in world.sources[source].items()}, world.read()
    known = {image: row for image, row in reading.rows.items() if not restore or image not in reading.half_deleted()}
    there = {image: row for image, row in known.items() if image in files}
    if not overwrite and any(row["source"] != source for row in there.values()):
        raise RefusedError("from another source")
    done: set[uuid.UUID] = set()
    if resume or ingest_id is not None:
        ttls = expiring(reading.runs)
        done = {
            image for image, row in there.items()
            if row["source"] == source and row["or_label"] == files[image][1][1]
            and ttls.get(str(row["ingest_id"]), 0) == (ttl or 0)
        }  # fmt: skip
    others = len(there) - len(done) + len(reading.half_deleted() & files.keys() if restore else ())
    deleted = set() if restore else reading.deleted() & files.keys()
    done |= deleted
    left = {image: one for image, one in files.items() if image not in done}
    await Step()
    if not left and not prune:
        return
    ingest_id = ingest_id or world.new_ingest_id()
    keep = keep and not ttl and not expiring(recorded_runs(world.control, world.tables.metadata))
    if keep:
        world.store.define(create_kept(world.tables.data, label_type="int"))
    run = _begin(world, "ingest", source, ingest_id, ttl=ttl or 0)
    if not restore and len(world.read().deleted() & files.keys()) > len(deleted):
        raise RefusedError("deleted since")
    runs = recorded_runs(world.control, world.tables.metadata)
    follows = bool(others) or is_shared(reading.runs, runs, own=run.sequence)
    if follows:
        world.store.define(create_history(world.tables.metadata))
    await write(world, left, source=source, run=run, ingest_id=ingest_id, follows=follows, restore=restore,
                groups=groups, ttl=ttl or 0, keep=keep, retried=retried)  # fmt: skip
    if prune:
        await _prune(world, source, found=files.keys(), run=run)
    finish_run(world.control, run)


def _begin(world: World, kind: str, source: str, ingest_id: uuid.UUID, *, ttl: int = 0) -> Run:
    return take_run(
        world.control, table=world.tables.metadata, kind=kind, dataset="k", source=source, ingest_id=ingest_id,
        ttl=ttl or None,
    )  # fmt: skip


async def write(
    world: World,
    files: Mapping[uuid.UUID, tuple[str, File]],
    *,
    source: str,
    run: Run,
    ingest_id: uuid.UUID,
    follows: bool,
    restore: bool,
    groups: bool = False,
    ttl: int = 0,
    keep: bool = False,
    retried: int = 0,
) -> None:
    """Write images, as a task does."""
    runs = recorded_runs(world.control, world.tables.metadata)
    can_expire = bool(ttl or expiring(runs))
    target = TableTarget(
        cluster=world.control.cluster, tables=world.tables, source_name=source, ingest_id=ingest_id, run=run,
        replaces=follows, restores=restore, keeps=keep, ttl=ttl, has_groups=groups,
        keeps_groups=can_expire and not groups and follows,
        values=value_tables(world.control, world.tables.metadata) if can_expire and follows else (),
    )  # fmt: skip
    for last in (retried, len(files)) if retried else (len(files),):
        world.attempts += 1
        rows = await TableRows.prepare(world.session, target, run.clock_of(world.attempts))
        for image, (path, (data, name)) in list(files.items())[:last]:
            digest = hashlib.sha256(data).digest()
            group = f"group of {path}" if groups else None
            entry = Entry(image.bytes, b"", path.encode(), name, group, b"", None, len(data))
            prepared = PreparedImage(data, digest, Header("PNG", 1, 1), None, None, None)
            await rows.accept(entry, prepared, CLASSES[name])
            world.wrote(image, run, (digest, CLASSES[name]), ttl=ttl)
            if restore and world.deleted.get(image, run.sequence) < run.sequence:
                del world.deleted[image]


async def _prune(world: World, source: str, *, found: Collection[uuid.UUID], run: Run) -> None:
    """`stale_rows.prune`."""
    reading = world.read()
    rows = {image: row for image, row in reading.rows.items() if row["source"] == source}
    later = {one for one, last in sequences_by_ingest(reading.runs).items() if last > run.sequence}
    stale = {
        image: row
        for image, row in rows.items()
        if image not in found and row["since"] <= run.sequence and row["ingest_id"] not in later
    }
    half = reading.half_deleted()
    pruned = {image: row for image, row in stale.items() if image not in half}
    await remove(world, pruned, ids=pruned.keys(), run=run, kind=PRUNED)
    await remove(world, {}, ids=stale.keys() & half, run=run, kind=PRUNED, on_request=True)


async def remove(
    world: World,
    states: Mapping[uuid.UUID, Mapping[str, Any]],
    *,
    ids: Collection[uuid.UUID],
    run: Run,
    kind: str,
    on_request: bool = False,
) -> None:
    """`removal.remove_images`."""
    removal = Removal.begin(world.opened(), data=world.tables.data, run=run, on_request=on_request)
    history = history_of(world.tables.metadata)
    known = {(row["id"], row["since"]) for row in world.read().history if row["kind"] == kind == DELETED}
    names = ["id", "until", "kind", *RECORDED]
    for image, row in states.items():
        if (image, row["since"]) not in known:
            values = (image, run.sequence, kind, *(row.get(name) for name in RECORDED))
            await Step()
            world.store.write(insert_into(history, names), (*values, run.clock))
        if kind == DELETED:
            world.last_deletions[image] = run.sequence
            world.deleted[image] = run.sequence
            world.written[run.sequence, image] = None
            world.begun |= set() if image in world.rows else {image}
    remover = await Remover.prepare(world.session, removal)
    for image in ids:
        if kind == DELETED:
            world.last_deletions[image] = run.sequence
        await remover.remove(image)
        world.wrote(image, run, None)
        world.begun -= {image} if on_request else set()
        if kind == DELETED:
            world.deleted[image] = max(run.sequence, world.deleted.get(image, 0))


async def delete(world: World, ids: Collection[uuid.UUID]) -> None:
    """Delete images, as `deletion.run` does."""
    reading = world.read()
    removed = {image: row for image, row in reading.removals().items() if image in ids and image not in reading.rows}
    before = {image for image, row in removed.items() if row["kind"] == DELETED}
    pruned = {image: {"since": 0, "source": removed[image]["source"]} for image in removed.keys() - before}
    states = pruned | {image: reading.rows[image] for image in ids if image in reading.rows}
    await Step()
    if set(ids) - states.keys() - before:
        raise RefusedError("no such images")
    run = take_lone_run(world.opened(), kind="delete", dataset="k")
    states |= {image: row for image, row in world.rows.items() if image in {*states, *before}}
    await remove(world, states, ids=[*states, *before], run=run, kind=DELETED, on_request=True)
    runs = recorded_runs(world.control, world.tables.metadata)
    if any(one.sequence > run.sequence and one.kind in WRITERS for one in runs):
        raise RefusedError("a later run")
    if world.rows.keys() & {*states, *before}:
        raise RefusedError("rows are left")
    finish_run(world.control, run)


async def featurize(world: World, *, has_index: bool = False) -> None:
    """Compute the values that images lack, as `featurizing.run` does."""
    await _compute(world)
    if has_index:
        await _index(world)


async def _index(world: World) -> None:
    """`index.update_index`."""
    reading = world.read()
    indexed = {(row["id"], row["sha256"]) for row in reading.vectors}
    lacking = [row for row in reading.newest_values().values() if (row["id"], row["sha256"]) not in indexed]
    await Step()
    run = None
    if lacking:
        run = index_run(world.opened(), VIEW)
        await Step()
        keys = {(row["id"], row["sequence"]) for row in lacking}
        ends = world.store.ends(str(world.values))
        found = [row for row in world.read().values if (row["id"], row["sequence"]) in keys]
        lasting = {key: max(ends[key]) for key in ends}
        for row in found:
            await Step()
            end = lasting[row["id"], row["sequence"]]
            ttl = 0 if math.isinf(end) else int(end - world.store.now)
            insert = insert_into(world.vectors, ["id", "sha256", "vector"], has_ttl=True)
            world.store.write(insert, (row["id"], row["sha256"], [row["f"]], run.clock, ttl))
    await Step()
    valid = world.read().newest_values().keys()
    await Step()
    for image in [row["id"] for row in world.read().vectors if row["id"] not in valid]:
        run = run or index_run(world.opened(), VIEW)
        await Step()
        delete = f"DELETE FROM {world.vectors.quoted} USING TIMESTAMP ? WHERE id = ?"
        world.store.write(delete, (run.last_clock, image))


async def _compute(world: World) -> None:
    """Compute and write values."""
    reading = world.read()
    lacking = {image: reading.rows[image] for image in reading.visible() if reading.value(image) is None}
    await Step()
    if not lacking:
        return
    ingest_id = world.new_ingest_id()
    order = FeatureOrder(
        cluster=world.control.cluster, data=world.tables.data, metadata=world.tables.metadata, columns=Columns(),
        views=(VIEW,), run=_begin(world, "features", VIEW.title, ingest_id), run_id=ingest_id, timeout=1,
        counters=world.session,
    )  # fmt: skip
    output = await ValueRows.prepare(world.session, order)
    for image, row in lacking.items():
        data = world.data.get(image)
        if data is not None and hashlib.sha256(data).digest() == row["sha256"]:
            ttl = world.store.select(f"SELECT TTL(data) FROM {world.tables.data} WHERE id = ?", (image,))[0][
                "TTL(data)"
            ]
            ends = int(time.time()) + ttl if ttl else 0
            of_image = Image(image.bytes, row["path"], len(data), row["since"], 0, row["sha256"], 1, ends)
            await output.accept([Value(0, of_image, len(data), [int(data)], "")])


async def repair(world: World) -> None:
    """Delete rows without a counterpart, as `verify.py --repair` does without a source."""
    removed, data, rows = world.read().removals().keys(), world.data, world.rows
    halves = [(MISSING_BLOB, image) for image in rows if data.get(image) is None]
    halves += [
        (NO_METADATA, image)
        for image, there in data.items()
        if image not in rows and (there is not None or image not in removed)
    ]
    await Step()
    if not halves:
        return
    plan = VerifyPlan(data_table=world.tables.data, metadata_table=world.tables.metadata, repair=True)
    try:
        delete_halves(halves, table=world.opened(), plan=plan)
    except ConflictError:
        raise RefusedError("an unfinished run") from None
    finally:
        run = recorded_runs(world.control, world.tables.metadata)[0]
        for kind, image in halves:
            if kind == MISSING_BLOB and image not in world.rows:
                world.wanted[image] = (run.sequence, None)


async def rewrite(world: World, source: str) -> None:
    """Write the images of a source that have other rows or bytes again, as `verify.py --repair` does."""
    reading, data = world.read(), world.data
    if expiring(reading.runs):
        raise RefusedError("images expire")
    deleted, wrong = reading.deleted(), {}
    for path, (content, name) in world.sources[source].items():
        image, digest = id_of(path), hashlib.sha256(content).digest()
        row = reading.rows.get(image)
        is_right = row is not None and state_of(row) == (digest, CLASSES[name]) and data.get(image) == content
        if not is_right and image not in deleted and (row is None or row["source"] == source):
            wrong[image] = (path, (content, name))
    await Step()
    if not wrong:
        return
    ingest_id = world.new_ingest_id()
    run = _begin(world, "repair", source, ingest_id)
    world.store.define(create_history(world.tables.metadata))
    chosen = {image: one for image, one in wrong.items() if image not in world.read().deleted()}
    await write(world, chosen, source=source, run=run, ingest_id=ingest_id, follows=True, restore=False)
    finish_run(world.control, run)


async def relabel(world: World, labels: Mapping[str, str]) -> None:
    """Correct the labels of images by path, as `relabelling.run` does."""
    reading = world.read()
    images = {id_of(path): CLASSES[name] for path, name in labels.items()}
    half = reading.half_deleted()
    named = {image: number for image, number in images.items() if image in reading.rows and image not in half}
    await Step()
    if not named or images.keys() - named.keys() - reading.deleted():
        raise RefusedError("no such images")
    control, metadata, digest = world.control, world.tables.metadata, repr(sorted(labels.items()))
    is_same = all(reading.correction(image, reading.views) == number for image, number in named.items())
    if reading.views and reading.views[0].digest == hashlib.sha256(digest.encode()).hexdigest() and is_same:
        return
    world.store.define(create_label_values(metadata.derived(f"_{LABEL}")))
    version = next_version(control, metadata, name=LABEL)
    run = _begin(world, "labels", "labels.csv", world.new_ingest_id())
    view = FeatureView(
        name=LABEL, version=version, fields={LABEL: "int"}, source=Labels("labels.csv"),
        digest=hashlib.sha256(digest.encode()).hexdigest(), sequence=run.sequence,
    )  # fmt: skip
    table, columns = view.table_of(metadata), view.label_columns
    if named.keys() & world.read().deleted():
        raise RefusedError("deleted since")
    await Step()
    world.store.define(add_columns(table, columns))
    said = {image: (number, *state_of(reading.rows[image])) for image, number in named.items()}
    for image, values in said.items():
        await Step()
        world.store.write(
            insert_into(table, ["bucket", "id", *columns]), (label_bucket(image), image, *values, run.clock)
        )
    await Step()
    try:
        register_view(control, view, keyspace="k", kind=label_views_of(metadata))
    except ConflictError:
        raise OvertakenError("another run added this version") from None
    world.versions[run.sequence] = said
    finish_run(control, run)
