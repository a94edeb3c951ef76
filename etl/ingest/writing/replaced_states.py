"""States of images that an ingest replaces: a label and the bytes' SHA-256, which go to the history.

A task reads the state of an image before it writes the image, and writes the replaced state in the same mutation as the
new one. So a killed task loses no state. A repeated task finds what its first attempt wrote; the replaced state is in
the history already.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from etl.cassandra.task_sessions import TaskSession, insert_into
from etl.ingest.plan import Tables
from etl.tables.metadata_table import is_deleted
from etl.tables.sequence import Run
from schemas.tables import LabelType, check_column, history_of

REPLACED = "replaced"  # the kind of these rows in the history


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an image is to a training: its label and its bytes."""

    label: int | None
    labels: list[int] | None
    or_label: str | None
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedStates:
    """Reads the states of images before a run replaces them."""

    session: TaskSession
    query: Any
    insert: Any
    label_type: LabelType
    run: Run
    clock: int  # of the task's writes, in microseconds
    before: Mapping[uuid.UUID, int]  # the last run of each ingest id, for rows without a run
    removal: Any  # the query of an image's last removal, if the run ingests deleted images again

    @classmethod
    async def prepare(
        cls,
        session: TaskSession,
        *,
        tables: Tables,
        run: Run,
        clock: int,
        before: Mapping[uuid.UUID, int],
        restores: bool,
    ) -> "ReplacedStates":
        """Prepare the query and the statement."""
        columns, label_type = tables.columns, tables.label_type
        labels = ["labels"] if label_type == "multi" else []
        state = [columns.label, "or_label", "or_split", "sha256", "source", "since", "ingest_id", *labels]
        wanted = ", ".join(f'"{check_column(name)}"' for name in state)
        query = f'SELECT {wanted} FROM {tables.metadata.quoted} WHERE "{columns.id}" = ?'
        newest = f"SELECT kind, until FROM {history_of(tables.metadata).quoted} WHERE id = ? LIMIT 1"
        written = ["id", "until", "since", "kind", "label", "or_label", "or_split", "sha256", "source", "at", *labels]
        return cls(
            session=session,
            query=await session.prepare(query),
            insert=await session.prepare(insert_into(history_of(tables.metadata), written)),
            label_type=label_type,
            run=run,
            clock=clock,
            before=before,
            removal=await session.prepare(newest) if restores else None,
        )

    async def follow(self, image: uuid.UUID, state: State, /) -> tuple[int, list[tuple[Any, tuple[Any, ...]]]]:
        """Compare the new state of an image with its current one. Returns the run since which the image has the new
        state, and the row of the history to write with it, if any. Raises `UnreachableError`.
        """
        row = await self.session.read(self.query, image, about=f"the row of image {image}")
        if row is None:
            return self.run.sequence, []
        label, or_label, or_split, sha256, source, since, ingest_id, *rest = row
        if since is None:
            since = 0 if ingest_id is None else self.before.get(uuid.UUID(str(ingest_id)), 0)
        if self.removal is not None:
            removed = await self.session.read(self.removal, image, about=f"the history of image {image}")
            # The deletion has recorded this state. The image counts as deleted until its row has a later run.
            if removed is not None and is_deleted(since, kind=removed[0], until=removed[1]):
                return self.run.sequence, []
        labels = None if not rest or rest[0] is None else list(rest[0])
        found = State(label=label, labels=labels, or_label=or_label, sha256=bytes(sha256 or b""))
        # masks have no hash: a mask that is written again may be another one
        if found == state and self.label_type != "blob":
            return since, []
        if since >= self.run.sequence:  # a repeated task, or a later run, whose rows win
            return self.run.sequence, []
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.run.clock // 1000)
        values = (image, self.run.sequence, since, REPLACED, label, or_label, or_split, sha256, source, at)
        more = (labels,) if self.label_type == "multi" else ()
        return self.run.sequence, [(self.insert, (*values, *more, self.clock))]
