"""The rows of an image in Cassandra: its data row and its metadata row, or a row in the quarantine table.

If a run may replace rows, a task reads the state of an image (its label and the bytes' SHA-256) before it writes the
image, and writes the replaced state to the history in the same mutation as the new one. So a killed task loses no
state. A repeated task finds what its first attempt wrote; the replaced state is in the history already. If replaced
bytes are kept, the task copies them first, in a separate mutation: the server may refuse one with two images.
"""

import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from etl.cassandra.cluster import Cluster
from etl.cassandra.task_sessions import TaskSession, TooLargeError, insert_into, task_session
from etl.ingest.plan import Tables
from etl.ingest.writing.image_rows import METADATA_COLUMNS, ImageRow, image_row
from etl.ingest.writing.preparation import PreparedImage
from etl.pictures.images import RejectedError
from etl.sources.entries import Entry
from etl.tables.current_form import not_migrated
from etl.tables.runs import ingest_time
from etl.tables.sequence import Run
from etl.tables.states import is_deleted, last_removal
from formats.checksums import COLUMN as CHECKSUM
from formats.checksums import checksum
from schemas import TableName
from schemas.tables import check_column, history_of, kept_of

REPLACED = "replaced"  # the kind of rows in the history
_OF_REMOVAL = ("kind", "since", "until")
_OF_BYTES = ("format", "width", "height", "bytes", CHECKSUM)
_NOT_KEPT = "replaced without a copy: the stored bytes were not those that the metadata describes"
_LIMITS = "See max_mutation_size and native_transport_max_frame_size in the server's cassandra.yaml."


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """The tables that images are written to, and the values that all rows of an ingest share."""

    cluster: Cluster
    tables: Tables
    source_name: str
    ingest_id: uuid.UUID
    run: Run
    has_groups: bool = False  # whether the source has the groups; otherwise existing ones are kept
    keeps_groups: bool = False  # whether existing ones are written again, because cells of these rows can expire
    ttl: int = 0  # the seconds after which the rows expire; 0 for never
    replaces: bool = False  # whether rows may be replaced
    values: tuple[TableName, ...] = ()  # with what was computed of images, if these rows or theirs can expire
    restores: bool = False  # whether deleted images are ingested again, also those whose rows are left
    keeps: bool = False  # whether replaced bytes are kept

    @property
    def determined(self) -> list[str]:
        """The columns of the metadata table that are written from the source, by their usual names."""
        left_out = set() if self.tables.label_type == "multi" else {"labels"}
        # Where cells expire, all of a row are written at once. A group that stayed would have another end than its row.
        left_out |= set() if self.has_groups or self.keeps_groups else {"group_id"}
        return [name for name in METADATA_COLUMNS if name not in left_out]

    @asynccontextmanager
    async def open(self) -> AsyncIterator["TableRows"]:
        """Connect. Raises `UnreachableError`, `TableError`."""
        async with task_session(self.cluster) as session:
            yield await TableRows.prepare(session, self, self.run.task_clock)


def ends_with(left: int | None, *, ttl: int) -> bool:
    """Whether values that end with a row, after these seconds (None: never), still do so, or end before it, if the row
    is written with a time to live (0 for none).
    """
    if left is None or not ttl:
        return left is None and not ttl
    return left <= ttl


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedBytes:
    """Copies the bytes of images before a run replaces them."""

    session: TaskSession
    query: Any  # of an image
    copies: Any  # of all copies of an image
    insert: Any
    run: Run
    clock: int  # of the task's writes, in microseconds
    has_mask: bool  # whether images have a mask or an array

    @classmethod
    async def prepare(cls, session: TaskSession, target: TableTarget, clock: int) -> "ReplacedBytes":
        """Prepare the queries and the statement."""
        tables, names = target.tables, target.tables.columns
        kept, has_mask = kept_of(tables.data), tables.label_type in ("multi", "blob")
        mask = [names.label] if has_mask else []
        wanted = ", ".join(f'"{check_column(name)}"' for name in [names.data, *mask])
        copied = ["data", *(["label"] if has_mask else [])]
        query = f'SELECT {wanted} FROM {tables.data.quoted} WHERE "{check_column(names.id)}" = ?'
        return cls(
            session=session,
            query=await session.prepare(query),
            copies=await session.prepare(f"SELECT {', '.join(copied)} FROM {kept.quoted} WHERE id = ?"),
            insert=await session.prepare(insert_into(kept, ["id", CHECKSUM, "until", "bytes", *copied])),
            run=target.run,
            clock=clock,
            has_mask=has_mask,
        )

    async def keep(self, image: uuid.UUID, /, *, sha256: bytes, known: int | None) -> int | None:
        """Copy the bytes of an image, unless they were copied before, and return their checksum. Returns None if there
        are no bytes of this SHA-256 and, if it is known, checksum. Raises `UnreachableError`, `TooLargeError`.
        """
        if self.has_mask and known is None:  # the SHA-256 is of the image alone
            return None
        about = f"the bytes of image {image}, which are replaced"
        row = await self.session.read(self.query, image, about=about)
        if row is not None and (found := checksum_of(row, sha256=sha256)) is not None and known in (None, found):
            values = (image, found, self.run.sequence, sum(map(len, row)), *row, self.clock)
            await self.session.write([(self.insert, values)], about=about)
            return found
        # In two keyspaces, an interrupted task has copied and replaced them. Or a run at the same time has.
        copies = await self.session.read_all(self.copies, image, about=about)
        checksums = (checksum_of(copy, sha256=sha256) for copy in copies)
        return next((one for one in checksums if one is not None and known in (None, one)), None)


def checksum_of(row: tuple[Any, ...], *, sha256: bytes) -> int | None:
    """The checksum of an image, and of its mask or array; None if they are missing or not of this SHA-256."""
    if any(part is None for part in row) or hashlib.sha256(row[0]).digest() != sha256:
        return None
    return checksum(*row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a run writes with the new state of an image."""

    since: int  # the run since which the image has this state
    # the row of the replaced state, if there is one, and the removal of values that would not end with the image
    rows: tuple[tuple[Any, tuple[Any, ...]], ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedStates:
    """Reads the states of images before a run replaces them."""

    session: TaskSession
    target: TableTarget
    query: Any
    insert: Any
    clock: int  # of the task's writes, in microseconds
    removals: Any  # the query of an image's history, if the run ingests deleted images again
    values: list[Any]  # statements that remove what was computed of an image
    bytes: ReplacedBytes | None  # None if they are not kept

    @classmethod
    async def prepare(cls, session: TaskSession, target: TableTarget, clock: int) -> "ReplacedStates":
        """Prepare the query and the statement."""
        tables, columns = target.tables, target.tables.columns
        labels = ["labels"] if tables.label_type == "multi" else []
        state = [columns.label, "or_label", "or_split", "sha256", "source", "since", "ingest_id", *_OF_BYTES, *labels]
        wanted = ", ".join(f'"{check_column(name)}"' for name in state)
        wanted += ", TTL(ingest_id)" if target.values else ""
        query = f'SELECT {wanted} FROM {tables.metadata.quoted} WHERE "{columns.id}" = ?'
        removals = f"SELECT {', '.join(_OF_REMOVAL)} FROM {history_of(tables.metadata).quoted} WHERE id = ?"
        written = ["id", "until", "since", "kind", "label", "or_label", "or_split", "sha256", "source", "at"]
        written += [*_OF_BYTES, "kept", *labels]
        return cls(
            session=session,
            target=target,
            query=await session.prepare(query),
            insert=await session.prepare(insert_into(history_of(tables.metadata), written)),
            clock=clock,
            removals=await session.prepare(removals) if target.restores else None,
            values=[
                await session.prepare(f"DELETE FROM {table.quoted} USING TIMESTAMP ? WHERE id = ?")
                for table in target.values
            ],
            bytes=await ReplacedBytes.prepare(session, target, clock) if target.keeps else None,
        )

    async def follow(self, image: uuid.UUID, new: ImageRow, /) -> Followed:
        """Compare the new state of an image with its current one, and copy the current bytes if they are to be kept and
        differ. Raises `UnreachableError`, `TooLargeError`.
        """
        run, label_type = self.target.run, self.target.tables.label_type
        row = await self.session.read(self.query, image, about=f"the row of image {image}")
        if row is None:
            return Followed(since=run.sequence)
        label, or_label, or_split, sha256, source, since, ingest_id, *rest = row
        gone: tuple[tuple[Any, tuple[Any, ...]], ...] = ()
        if self.values and not ends_with(rest.pop(), ttl=self.target.ttl):
            gone = tuple((statement, (self.clock, image)) for statement in self.values)
        of_bytes, rest = rest[: len(_OF_BYTES)], rest[len(_OF_BYTES) :]
        if since is None:
            since = 0
            if ingest_id is not None:
                metadata = self.target.tables.metadata
                raise not_migrated(f"image {image} in {metadata} lacks since", metadata=metadata)
        if self.removals is not None:
            history = await self.session.read_all(self.removals, image, about=f"the history of image {image}")
            removal = last_removal(dict(zip(_OF_REMOVAL, one, strict=True)) for one in history)
            # The deletion has recorded this state. The image counts as deleted until its row has a later run.
            if removal is not None and is_deleted(since, kind=removal["kind"], until=removal["until"]):
                return Followed(since=run.sequence, rows=gone)
        labels = None if not rest or rest[0] is None else list(rest[0])
        is_same = (label, labels, or_label, bytes(sha256 or b"")) == (new.label, new.labels, new.or_label, new.sha256)
        # The metadata has no hash of the mask alone, so a run that writes an image with a mask replaces its state.
        if is_same and label_type != "blob":
            return Followed(since=since, rows=gone)
        if since >= run.sequence:  # a repeated task, or a later run, whose rows win
            return Followed(since=run.sequence, rows=gone)
        kept, note, known = None, None, of_bytes[-1]
        # What has the same checksum is not replaced. If a later run replaces it, it keeps it for this state too.
        if self.bytes is not None and (known is None or known != new.xxhash64):
            copied = await self.bytes.keep(image, sha256=bytes(sha256 or b""), known=known)
            kept, note = copied is not None, None if copied is not None else _NOT_KEPT
            of_bytes[-1] = known if copied is None else copied
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=run.clock // 1000)
        values = (image, run.sequence, since, REPLACED, label, or_label, or_split, sha256, source, at, *of_bytes, kept)
        more = (labels,) if label_type == "multi" else ()
        return Followed(since=run.sequence, rows=((self.insert, (*values, *more, self.clock)), *gone), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Prepared statements for the three kinds of rows."""

    session: TaskSession
    target: TableTarget
    determined: list[str]  # `TableTarget.determined`
    run: tuple[Any, ...]  # the time and the id of the ingest, in all metadata rows
    times: tuple[int, ...]  # the write time of all rows in microseconds, then their time to live if they have one
    data: Any
    metadata: Any
    quarantine: Any
    states: ReplacedStates | None
    group: Any  # the query of an image's group, if it is to be kept

    @classmethod
    async def prepare(cls, session: TaskSession, target: TableTarget, clock: int) -> "TableRows":
        """Prepare the statements."""
        tables, names = target.tables, target.tables.columns
        data = [names.id, names.data] if tables.label_type == "none" else [names.id, names.data, names.label]
        determined = target.determined
        columns = [names.label if name == "label" else name for name in determined]
        metadata = [names.id, *columns, "ingested_at", "ingest_id", "since"]
        has_ttl = bool(target.ttl)
        states = await ReplacedStates.prepare(session, target, clock) if target.replaces else None
        quarantine = ["ingest_id", "path", "stage", "reason", "bytes"]
        group = f'SELECT group_id FROM {tables.metadata.quoted} WHERE "{check_column(names.id)}" = ?'
        return cls(
            session=session,
            target=target,
            determined=determined,
            run=(ingest_time(target.ingest_id), target.ingest_id),
            times=(clock, target.ttl) if has_ttl else (clock,),
            data=await session.prepare(insert_into(tables.data, data, has_ttl=has_ttl)),
            metadata=await session.prepare(insert_into(tables.metadata, metadata, has_ttl=has_ttl)),
            quarantine=await session.prepare(insert_into(tables.quarantine, quarantine)),
            states=states,
            group=await session.prepare(group) if target.keeps_groups else None,
        )

    async def accept(self, entry: Entry, prepared: PreparedImage, label: int | None) -> str | None:
        """Write the two rows of an image. Returns a remark. Raises `RejectedError` if the server refuses them."""
        target, tables = self.target, self.target.tables
        image, row = uuid.UUID(bytes=entry.id), image_row(entry, prepared, label=label, source_name=target.source_name)
        data: tuple[Any, ...] = (image, prepared.data)
        if tables.label_type != "none":
            data = (*data, row.data_label)
        if self.group is not None:
            known = await self.session.read(self.group, image, about=f"the group of image {image}")
            row = row._replace(group_id=None if known is None else known[0])
        about = f"image {image} ({row.path}) into {tables.data} and {tables.metadata}"
        # In one keyspace, both rows have the same partition key: they are one mutation, applied entirely or not.
        # Otherwise the metadata row is written second, because it means that the image exists.
        is_one_mutation = tables.data.keyspace == tables.metadata.keyspace
        followed = Followed(since=target.run.sequence)
        try:
            if self.states is not None:
                followed = await self.states.follow(image, row)
            metadata = (image, *(getattr(row, name) for name in self.determined), *self.run, followed.since)
            rows = [(self.metadata, (*metadata, *self.times)), *followed.rows]
            data_row = (self.data, (*data, *self.times))
            for together in [[data_row, *rows]] if is_one_mutation else [[data_row], rows]:
                await self.session.write(together, about=about)
        except TooLargeError as error:
            raise RejectedError("too large", f"{error} {_LIMITS}") from None
        return followed.note

    async def reject(self, entry: Entry, *, stage: str, reason: str) -> None:
        """Record in the quarantine table why an image has no rows."""
        row = (self.quarantine, (self.target.ingest_id, entry.name, stage, reason, entry.size, self.times[0]))
        await self.session.write([row], about=f"{entry.name} into {self.target.tables.quarantine}")
