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
from etl.tables.metadata_table import is_deleted
from etl.tables.sequence import Run
from schemas import Columns, TableName
from schemas.tables import LabelType, check_column, history_of

REPLACED = "replaced"
"""The kind of these rows in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an image is to a training: its label and its bytes."""

    label: int | None
    labels: list[int] | None
    or_label: str | None
    sha256: bytes


class ReplacedStates:
    """Reads the states of images before a run replaces them."""

    def __init__(
        self,
        session: TaskSession,
        *,
        query: Any,
        insert: Any,
        label_type: LabelType,
        run: Run,
        clock: int,
        before: Mapping[uuid.UUID, int],
        removal: Any,
    ) -> None:
        self._session = session
        self._query = query
        self._removal = removal
        self._insert = insert
        self._label_type = label_type
        self._run = run
        self._clock = clock
        self._before = before

    @classmethod
    async def prepare(
        cls,
        session: TaskSession,
        *,
        metadata: TableName,
        columns: Columns,
        label_type: LabelType,
        run: Run,
        clock: int,
        before: Mapping[uuid.UUID, int],
        restores: bool,
    ) -> "ReplacedStates":
        """Prepare the statements.

        Args:
            session: The session.
            metadata: The metadata table.
            columns: The names of its columns.
            label_type: The type of labels.
            run: The run that writes.
            clock: The write time of all rows, in microseconds.
            before: The last run of each ingest id, for rows without ``since``.
            restores: Whether the run ingests deleted images again.

        Returns:
            The reader.

        Raises:
            TableError: A table lacks columns.
        """
        labels = ["labels"] if label_type == "multi" else []
        state = [columns.label, "or_label", "or_split", "sha256", "source", "since", "ingest_id", *labels]
        wanted = ", ".join(f'"{check_column(name)}"' for name in state)
        query = f'SELECT {wanted} FROM {metadata.quoted} WHERE "{columns.id}" = ?'
        newest = f"SELECT kind, until FROM {history_of(metadata).quoted} WHERE id = ? LIMIT 1"
        written = ["id", "until", "since", "kind", "label", "or_label", "or_split", "sha256", "source", "at", *labels]
        return cls(
            session,
            query=await session.prepare(query),
            insert=await session.prepare(insert_into(history_of(metadata), written)),
            label_type=label_type,
            run=run,
            clock=clock,
            before=before,
            removal=await session.prepare(newest) if restores else None,
        )

    async def follow(self, image: uuid.UUID, state: State, /) -> tuple[int, list[tuple[Any, tuple[Any, ...]]]]:
        """Compare a new state with the current one.

        Args:
            image: The image.
            state: Its new state.

        Returns:
            The run since which the image has the new state, and the row of the history to write with it, if any.

        Raises:
            UnreachableError: All attempts to read failed.
        """
        row = await self._session.read(self._query, image, about=f"the row of image {image}")
        if row is None:
            return self._run.sequence, []
        label, or_label, or_split, sha256, source, since, ingest_id, *rest = row
        if since is None:
            since = 0 if ingest_id is None else self._before.get(uuid.UUID(str(ingest_id)), 0)
        if self._removal is not None:
            removed = await self._session.read(self._removal, image, about=f"the history of image {image}")
            # The history has the state already. With its old run, the image would stay deleted for ever.
            if removed is not None and is_deleted(since, kind=removed[0], until=removed[1]):
                return self._run.sequence, []
        labels = None if not rest or rest[0] is None else list(rest[0])
        found = State(label=label, labels=labels, or_label=or_label, sha256=bytes(sha256 or b""))
        # masks have no hash: a mask that is written again may be another one
        if found == state and self._label_type != "blob":
            return since, []
        if since >= self._run.sequence:  # a repeated task, or a later run, whose rows win
            return self._run.sequence, []
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self._run.clock // 1000)
        values = (image, self._run.sequence, since, REPLACED, label, or_label, or_split, sha256, source, at)
        more = (labels,) if self._label_type == "multi" else ()
        return self._run.sequence, [(self._insert, (*values, *more, self._clock))]
