"""The jobs of a history. Each is a coroutine with a step before every write, in the order of the real job's writes.

The decisions of the driver, which the real jobs make with Spark, are made here in plain Python. Runs, rows, histories
and removals are written by the code of the product.
"""

import hashlib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from etl.cassandra.registry import label_views_of, register_view
from etl.cassandra.task_sessions import insert_into
from etl.deleting.deletion import WRITERS
from etl.errors import ConflictError
from etl.features.computing.tasks import FeatureOrder, Image, Value, ValueRows
from etl.ingest.plan import Tables
from etl.ingest.writing.preparation import PreparedImage
from etl.ingest.writing.table_rows import TableRows, TableTarget
from etl.labels.versions import label_views, next_version
from etl.pictures.images import Header
from etl.sources.entries import Entry
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import RECORDED, Removal, Remover
from etl.tables.runs import is_shared, new_ingest_id, recorded_runs, sequences_by_ingest
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
    add_label_columns,
    create_feature_values,
    create_history,
    create_label_values,
    create_shared,
    history_of,
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
    attempts: int = 0

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

    @property
    def rows(self) -> dict[uuid.UUID, dict[str, Any]]:
        """The rows of the metadata table by id."""
        return {row["id"]: row for row in self.store.rows("k.metadata")}

    @property
    def data(self) -> dict[uuid.UUID, bytes | None]:
        """The bytes of the data table by id; None for a row without an image."""
        return {row["id"]: row["data"] for row in self.store.rows(str(self.tables.data))}

    def read(self) -> Reading:
        """Read the tables."""
        history = history_of(self.tables.metadata)
        there = list(self.store.rows(str(history))) if self.control.columns(history) else []
        runs, values = recorded_runs(self.control, self.tables.metadata), list(self.store.rows(str(self.values)))
        views = label_views(self.control, self.tables.metadata, name=LABEL)
        labels = list(self.store.rows("k.metadata_label")) if "k.metadata_label" in self.store.tables else []
        return Reading(self.rows, there, runs, values, views, labels)

    def opened(self) -> MetadataTable:
        """The metadata table as the driver opens it."""
        spark: Any = None
        return MetadataTable.open(spark, self.control, self.tables.metadata)

    def wrote(self, image: uuid.UUID, run: Run, state: Known | None) -> None:
        """Remember the last run that wrote or removed an image."""
        self.written[run.sequence, image] = state
        if run.sequence >= self.wanted.get(image, (0, None))[0]:
            self.wanted[image] = (run.sequence, state)


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
    retried: int = 0,
    ingest_id: uuid.UUID | None = None,
) -> None:
    """Ingest a source. The task's first attempt ends after ``retried`` images, and a second one writes them all."""
    files, reading = {id_of(path): (path, file) for path, file in world.sources[source].items()}, world.read()
    known = {image: row for image, row in reading.rows.items() if not restore or image not in reading.half_deleted()}
    there = {image: row for image, row in known.items() if image in files}
    if not overwrite and any(row["source"] != source for row in there.values()):
        raise RefusedError("from another source")
    done: set[uuid.UUID] = set()
    if resume or ingest_id is not None:
        done = {
            image for image, row in there.items() if row["source"] == source and row["or_label"] == files[image][1][1]
        }
    others = len(there) - len(done)
    deleted = set() if restore else reading.deleted() & files.keys()
    done |= deleted
    left = {image: one for image, one in files.items() if image not in done}
    await Step()
    if not left and not prune:
        return
    ingest_id = ingest_id or new_ingest_id()
    run = _begin(world, "ingest", source, ingest_id)
    if not restore and len(world.read().deleted() & files.keys()) > len(deleted):
        raise RefusedError("deleted since")
    runs = recorded_runs(world.control, world.tables.metadata)
    follows = bool(others) or is_shared(reading.runs, runs, own=run.sequence)
    if follows:
        world.store.define(create_history(world.tables.metadata))
    await write(world, left, source=source, run=run, ingest_id=ingest_id, follows=follows, restore=restore,
                retried=retried)  # fmt: skip
    if prune:
        await _prune(world, source, found=files.keys(), run=run)
    finish_run(world.control, run)


def _begin(world: World, kind: str, source: str, ingest_id: uuid.UUID) -> Run:
    return take_run(
        world.control, table=world.tables.metadata, kind=kind, dataset="k", source=source, ingest_id=ingest_id
    )


async def write(
    world: World,
    files: Mapping[uuid.UUID, tuple[str, File]],
    *,
    source: str,
    run: Run,
    ingest_id: uuid.UUID,
    follows: bool,
    restore: bool,
    retried: int,
) -> None:
    """Write images, as a task does."""
    before = sequences_by_ingest(recorded_runs(world.control, world.tables.metadata)) if follows else None
    target = TableTarget(
        cluster=world.control.cluster, tables=world.tables, source_name=source, ingest_id=ingest_id, run=run,
        before=before, restores=restore,
    )  # fmt: skip
    for last in (retried, len(files)) if retried else (len(files),):
        world.attempts += 1
        rows = await TableRows.prepare(world.session, target, run.clock_of(world.attempts))
        for image, (path, (data, name)) in list(files.items())[:last]:
            digest = hashlib.sha256(data).digest()
            entry = Entry(image.bytes, b"", path.encode(), name, None, b"", None, len(data))
            prepared = PreparedImage(data, digest, Header("PNG", 1, 1), None, None, None)
            await rows.accept(entry, prepared, CLASSES[name])
            world.wrote(image, run, (digest, CLASSES[name]))
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
    await remove(world, pruned, ids=stale.keys(), run=run, kind=PRUNED)


async def remove(
    world: World, states: Mapping[uuid.UUID, Mapping[str, Any]], *, ids: Collection[uuid.UUID], run: Run, kind: str
) -> None:
    """`removal.remove_images`."""
    removal = Removal.begin(world.opened(), data=world.tables.data, run=run, labels=kind == DELETED)
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
    remover = await Remover.prepare(world.session, removal)
    for image in ids:
        if kind == DELETED:
            world.last_deletions[image] = run.sequence
        await remover.remove(image)
        world.wrote(image, run, None)
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
    await remove(world, states, ids=[*states, *before], run=run, kind=DELETED)
    runs = recorded_runs(world.control, world.tables.metadata)
    if any(one.sequence > run.sequence and one.kind in WRITERS for one in runs):
        raise RefusedError("a later run")
    if world.rows.keys() & {*states, *before}:
        raise RefusedError("rows are left")
    finish_run(world.control, run)


async def featurize(world: World) -> None:
    """Compute the values that images lack, as `featurizing.run` does."""
    reading = world.read()
    lacking = {image: row for image, row in reading.rows.items() if reading.value(image) is None}
    await Step()
    if not lacking:
        return
    ingest_id = new_ingest_id()
    order = FeatureOrder(
        cluster=world.control.cluster, data=world.tables.data, metadata=world.tables.metadata, columns=Columns(),
        views=(VIEW,), run=_begin(world, "features", VIEW.title, ingest_id), run_id=ingest_id, timeout=1,
        counters=world.session,
    )  # fmt: skip
    output = await ValueRows.prepare(world.session, order)
    for image, row in lacking.items():
        data = world.data.get(image)
        if data is not None and hashlib.sha256(data).digest() == row["sha256"]:
            of_image = Image(image.bytes, row["path"], len(data), row["since"], 0, 0, row["sha256"], 1)
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
    ingest_id = new_ingest_id()
    run = _begin(world, "repair", source, ingest_id)
    world.store.define(create_history(world.tables.metadata))
    chosen = {image: one for image, one in wrong.items() if image not in world.read().deleted()}
    await write(world, chosen, source=source, run=run, ingest_id=ingest_id, follows=True, restore=False, retried=0)
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
    is_same = all(reading.corrected(image) == number for image, number in named.items())
    if reading.views and reading.views[0].digest == hashlib.sha256(digest.encode()).hexdigest() and is_same:
        return
    world.store.define(create_label_values(metadata.derived(f"_{LABEL}")))
    version = next_version(control, metadata, name=LABEL)
    run = _begin(world, "labels", "labels.csv", new_ingest_id())
    view = FeatureView(
        name=LABEL, version=version, fields={LABEL: "int"}, source=Labels("labels.csv"),
        digest=hashlib.sha256(digest.encode()).hexdigest(), sequence=run.sequence,
    )  # fmt: skip
    table, columns = view.table_of(metadata), view.label_columns
    if named.keys() & world.read().deleted():
        raise RefusedError("deleted since")
    await Step()
    world.store.define(add_label_columns(table, columns))
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
        raise RefusedError("another run added this version") from None
    world.versions[run.sequence] = said
    finish_run(control, run)
