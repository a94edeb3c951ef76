"""States that an ingest replaces: they are written once, with the new state, however often a task is repeated."""

import asyncio
import hashlib
import uuid
from typing import Any

import pytest

from etl.cassandra.control import Control
from etl.errors import TableError
from etl.ingest.plan import Tables
from etl.ingest.writing.preparation import PreparedImage
from etl.ingest.writing.table_rows import TableTarget
from etl.pictures.images import Header
from etl.sources.entries import Entry
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import Run
from schemas import Columns, TableName, image_id
from schemas.tables import (
    LabelType,
    Replication,
    create_data,
    create_history,
    create_keyspace,
    create_metadata,
    create_shared,
    history_of,
)

CLOCK = 1_700_000_000_000_000


@pytest.mark.parametrize("label_type", ["int", "multi", "blob"])
def test_a_replaced_state_is_in_the_history_once(control: Control, keyspace: str, label_type: LabelType) -> None:
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    control.define(create_keyspace(keyspace, Replication.parse("1")))
    control.define(create_data(data, Columns(), label_type=label_type))
    control.define(create_metadata(metadata, Columns(), label_type=label_type))
    control.define(create_history(metadata))
    control.define(create_shared("quarantine", keyspace))
    old, image = new_ingest_id(), image_id(keyspace, b"", b"a.png")
    entry = Entry(image.bytes, b"", b"a.png", "cat", None, b"/a.png", None, 5)

    def write(sequence: int, content: bytes, *, label: int = 0, attempt: int = 0) -> list[Any]:
        """Write a state in a run; the current ``since`` and the history, the newest first."""
        clock = CLOCK + sequence * 1_000_000
        target = TableTarget(
            cluster=control.located,
            tables=Tables(data, metadata, Columns(), label_type=label_type),
            source_name="/tree",
            ingest_id=old,
            run=Run(table=metadata, sequence=sequence, clock=clock + attempt),
            replaces=True,
        )
        labels = [label] if label_type == "multi" else None
        companion = None if label_type == "int" else b"mask"
        header = Header("PNG", 1, 1)
        picture = PreparedImage(content, hashlib.sha256(content).digest(), header, companion, labels, None)

        async def accept() -> None:
            async with target.open() as rows:
                await rows.accept(entry, picture, label if label_type == "int" else None)

        asyncio.run(accept())
        (row,) = control.execute(f"SELECT since, sha256 FROM {metadata.quoted}")
        assert row.sha256 == picture.sha256
        query = f"SELECT until, since, kind, label, labels, sha256, source FROM {history_of(metadata).quoted}"
        return [row.since, *(tuple(one) for one in control.execute(query))]

    def state(until: int, since: int, content: bytes, label: int = 0) -> tuple[Any, ...]:
        of_row = label if label_type == "int" else None
        digest = hashlib.sha256(content).digest()
        return until, since, "replaced", of_row, [label] if label_type == "multi" else None, digest, "/tree"

    assert write(1, b"one") == [1]
    first = state(2, 1, b"one")
    assert write(2, b"two") == [2, first]
    assert write(2, b"two", attempt=1) == [2, first]  # a repeated task
    assert write(2, b"2", attempt=2) == [2, first]  # its file has changed in the meantime
    if label_type == "blob":  # the mask may be another one
        assert write(3, b"2") == [3, state(3, 2, b"2"), first]
        return
    assert write(3, b"2") == [2, first]  # a resumed run, with the same state
    relabelled = state(4, 2, b"2")
    assert write(4, b"2", label=1) == [4, relabelled, first]
    assert write(5, b"five", label=1) == [5, state(5, 4, b"2", 1), relabelled, first]
    assert uuid.UUID(bytes=entry.id) == image
    forget = f"UPDATE {metadata.quoted} USING TIMESTAMP ? SET since = null WHERE id = ?"
    control.execute(forget, (CLOCK + 5_500_000, image))  # as an earlier version
    with pytest.raises(TableError, match=rf"{image} in {metadata} lacks since.*imagestrata migrate -m {metadata}"):
        write(6, b"six")
