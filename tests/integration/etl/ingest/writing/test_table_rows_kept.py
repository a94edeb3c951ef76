"""Bytes that an ingest replaces: they are copied before, also if its task is killed, repeated or not alone."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from etl.cassandra.control import Control
from etl.cassandra.task_sessions import TaskSession
from etl.ingest.plan import Tables
from etl.ingest.writing.preparation import PreparedImage
from etl.ingest.writing.table_rows import TableTarget
from etl.pictures.images import Header
from etl.sources.entries import Entry
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import Run
from formats.checksums import checksum
from schemas import Columns, TableName, image_id
from schemas.tables import LabelType, Replication, create_history, create_keyspace, history_of

CLOCK = 1_700_000_000_000_000


class KilledError(Exception):
    """The end of a task."""


@dataclass
class Writer:
    """Writes an image, in runs that keep replaced bytes."""

    control: Control
    tables: Tables
    ingest: UUID = field(default_factory=new_ingest_id)

    def __post_init__(self) -> None:
        for keyspace in {self.tables.data.keyspace, self.tables.metadata.keyspace}:
            self.control.define(create_keyspace(keyspace, Replication.parse("1")))
        for statement in (*self.tables.definitions.values(), create_history(self.tables.metadata), self.tables.kept[1]):
            self.control.define(statement)
        self.image = image_id("k", b"", b"a.png")

    def write(self, sequence: int, content: bytes, *, label: int = 0, mask: bytes = b"mask", **options: Any) -> Any:
        """Write the image in a run; returns the remark."""
        target = TableTarget(
            cluster=self.control.located, tables=self.tables, source_name="/tree", ingest_id=self.ingest,
            run=Run(table=self.tables.metadata, sequence=sequence, clock=CLOCK + sequence * 1_000_000),
            replaces=True, keeps=True,
        )  # fmt: skip
        kind = self.tables.label_type
        numbers = [label] if kind == "multi" else None
        companion = None if kind == "int" else mask
        header = Header("PNG", len(content), 1)
        made = PreparedImage(content, hashlib.sha256(content).digest(), header, companion, numbers, None)
        entry = Entry(self.image.bytes, b"", b"a.png", "cat", None, b"/a.png", None, len(content))

        async def accept() -> str | None:
            async with replace(target, **options).open() as rows:
                return await rows.accept(entry, made, label if kind == "int" else None)

        return asyncio.run(accept())

    def kept(self) -> dict[int, tuple[Any, ...]]:
        """The copies by checksum: the bytes of image and mask, and their size."""
        rows = self.control.execute(f"SELECT * FROM {self.tables.kept[0].quoted} WHERE id = ?", (self.image,))
        return {row.xxhash64: (row.data, getattr(row, "label", None), row.bytes) for row in rows}

    def history(self) -> list[tuple[Any, ...]]:
        """The replaced states: their last run, what they say of their bytes, and whether these are kept."""
        query = f"SELECT until, width, bytes, xxhash64, kept FROM {history_of(self.tables.metadata).quoted}"
        return sorted(tuple(row) for row in self.control.execute(query))


@pytest.fixture(params=["one keyspace", "two keyspaces"])
def data(request: pytest.FixtureRequest, keyspace: str) -> TableName:
    return TableName(f"{keyspace}_data" if request.param == "two keyspaces" else keyspace, "data")


def writer_of(control: Control, data: TableName, keyspace: str, label_type: LabelType) -> Writer:
    return Writer(control, Tables(data, TableName(keyspace, "metadata"), Columns(), label_type))


@pytest.mark.parametrize("label_type", ["int", "multi", "blob"])
def test_bytes_are_kept_with_their_states(
    control: Control, keyspace: str, data: TableName, label_type: LabelType
) -> None:
    writer = writer_of(control, data, keyspace, label_type)
    mask = None if label_type == "int" else b"mask"
    one, three = (checksum(content, mask) for content in (b"one", b"three"))
    sizes = [len(content) + len(mask or b"") for content in (b"one", b"three")]
    assert writer.write(1, b"one") is None
    assert writer.kept() == {}
    assert writer.write(2, b"three") is None
    assert writer.write(2, b"three") is None  # a repeated task
    assert writer.kept() == {one: (b"one", mask, sizes[0])}
    assert writer.history() == [(2, 3, 3, one, True)]
    writer.write(3, b"three", label=1)  # replaces no bytes, but the label
    states = [(2, 3, 3, one, True), (3, 5, 5, three, None)]
    assert (len(writer.kept()), writer.history()) == (1, states)
    writer.write(4, b"one", label=1)
    assert writer.kept() == {one: (b"one", mask, sizes[0]), three: (b"three", mask, sizes[1])}
    writer.write(5, b"two", label=1, keeps=False)
    assert writer.history() == [*states, (4, 5, 5, three, True), (5, 3, 3, one, None)]
    if mask is not None:  # the image stays, its mask does not
        writer.write(6, b"two", label=2, mask=b"other")
        assert writer.kept()[checksum(b"two", mask)] == (b"two", mask, 7)


@pytest.mark.parametrize("label_type", ["int", "blob"])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_task_that_is_killed_and_repeated_keeps_the_bytes(
    control: Control,
    keyspace: str,
    data: TableName,
    label_type: LabelType,
    writes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = writer_of(control, data, keyspace, label_type)
    mask = None if label_type == "int" else b"mask"
    writer.write(1, b"one")
    done, write = 0, TaskSession.write

    async def killed(self: TaskSession, rows: Sequence[Any], *, about: str) -> None:
        nonlocal done
        if done == writes:
            raise KilledError
        done += 1
        await write(self, rows, about=about)

    with monkeypatch.context() as patch:
        patch.setattr(TaskSession, "write", killed)
        if writes < (2 if data.keyspace == keyspace else 3):
            with pytest.raises(KilledError):
                writer.write(2, b"two", mask=b"other")
        else:
            writer.write(2, b"two", mask=b"other")
    assert writer.write(2, b"two", mask=b"other") is None
    one = checksum(b"one", mask)
    assert writer.kept() == {one: (b"one", mask, 3 + len(mask or b""))}
    assert writer.history() == [(2, 3, 3, one, True)]
    (row,) = control.execute(f"SELECT data FROM {data.quoted}")
    assert row.data == b"two"


@pytest.mark.parametrize("label_type", ["int", "blob"])
def test_bytes_that_are_not_those_of_their_state_are_not_kept(
    control: Control, keyspace: str, data: TableName, label_type: LabelType
) -> None:
    writer = writer_of(control, data, keyspace, label_type)
    writer.write(1, b"one")
    damage = f"UPDATE {data.quoted} USING TIMESTAMP ? SET data = ? WHERE id = ?"
    control.execute(damage, (CLOCK + 1_500_000, b"onf", writer.image))
    note = writer.write(2, b"two")
    assert note == "replaced without a copy: the stored bytes were not those that the metadata describes"
    mask = None if label_type == "int" else b"mask"
    assert (writer.kept(), writer.history()) == ({}, [(2, 3, 3, checksum(b"one", mask), False)])
    # Without a checksum, the writer cannot know whether the stored mask belongs to this state.
    forget = f"UPDATE {writer.tables.metadata.quoted} USING TIMESTAMP ? SET xxhash64 = null WHERE id = ?"
    control.execute(forget, (CLOCK + 2_500_000, writer.image))
    assert (writer.write(3, b"three") is None) == (label_type == "int")
    assert len(writer.kept()) == (label_type == "int")
