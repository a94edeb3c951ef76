"""What must hold whatever runs do to tables, one after another, at once, or killed: thousands of random histories.

`make histories` plays more of them.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from etl.ingest.writing.table_rows import Followed, ReplacedBytes, ReplacedStates, TableRows
from etl.tables.metadata_table import MetadataTable
from etl.tables.removal import Remover
from etl.tables.sequence import SPAN, Run
from schemas.features import FeatureView
from tests.support.histories.generate import first_broken, played
from tests.support.histories.jobs import VIEW
from tests.support.histories.machine import (
    Alone,
    Delete,
    Drop,
    Featurize,
    Ingest,
    Operation,
    Put,
    Relabel,
    Repair,
    Together,
    Train,
    Wait,
)
from tests.support.histories.reading import Reading, Split

FILES = (Put("one", "p", "1", "a"), Put("one", "q", "1", "a"))
# in two keyspaces: the repair comes between the two rows of an image
HALF_WRITTEN: list[Operation] = [FILES[0], Together(Alone(Ingest("one")), Alone(Repair()), turns=(0, 0, 0, 1, 1))]


def test_random_histories_break_nothing() -> None:
    assert first_broken(range(500)) is None


FOUND: dict[str, list[Operation]] = {
    "an interrupted deletion is restored, for ingests and for splits": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Delete(("p",)), kill=3),
        Alone(Ingest("one", ("restore",))),
    ],
    "an image is deleted although a run prunes what an interrupted deletion left of it": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Delete(("p",)), kill=3),
        Drop("one", "p"),
        Alone(Ingest("one", ("prune",))),
        Put("one", "p", "1", "a"),
        Alone(Ingest("one")),
    ],
    "labels and replaced bytes of an image go if a run prunes what an interrupted deletion left of it": [
        *FILES,
        Alone(Ingest("one")),
        Put("one", "p", "2", "a"),
        Alone(Ingest("one", ("overwrite", "keep"))),
        Alone(Relabel((("p", "b"),))),
        Alone(Delete(("p",)), kill=3),
        Drop("one", "p"),
        Alone(Ingest("one", ("prune",))),
    ],
    "a prune that was killed has recorded images that later runs still show": [
        *FILES,
        Alone(Ingest("one")),
        Drop("one", "p"),
        Alone(Ingest("one", ("prune",)), kill=4),
        Alone(Ingest("one")),
        Alone(Ingest("one", ("prune",))),
    ],
    "a deletion records the states that images have when it begins": [
        *FILES,
        Alone(Ingest("one")),
        Put("one", "p", "2", "b"),
        Together(Alone(Delete(("p",))), Alone(Ingest("one")), turns=(0, *(1,) * 12)),
    ],
    "two first ingests at once keep the states that they replace of each other": [
        *FILES,
        Put("two", "p", "2", "b"),
        Together(Alone(Ingest("two", ("overwrite",))), Alone(Ingest("one")), turns=(0, *(1,) * 6)),
    ],
    "a prune leaves what a later run has found": [
        *FILES,
        Alone(Ingest("one")),
        Drop("one", "p"),
        Together(Alone(Ingest("one", ("prune",))), Alone(Ingest("one", ("restore",))), turns=(0, 0, 1, 1)),
    ],
    "a value that is written while its image is deleted is gone, or the deletion says so": [
        *FILES,
        Alone(Ingest("one")),
        Together(Alone(Featurize()), Alone(Delete(("p",))), turns=(1, 1, 0, 0, *(1,) * 20)),
    ],
    "labels of images that are deleted before they are written are not left": [
        *FILES,
        Alone(Ingest("one")),
        Together(Alone(Relabel((("p", "b"),))), Alone(Delete(("p",))), turns=(0, *(1,) * 20)),
    ],
    "a version has its labels when a pruned image comes back": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Relabel((("p", "b"),))),
        Drop("one", "p"),
        Alone(Ingest("one", ("prune",))),
        Put("one", "p", "1", "a"),
        Alone(Ingest("one")),
    ],
    "a repair leaves what a running ingest has half written": HALF_WRITTEN,
    "the lineage of a model says what was corrected, replaced and, also in part, deleted": [
        *FILES,
        Put("one", "r", "1", "a"),
        Alone(Ingest("one")),
        Train(has_view=False),
        Alone(Relabel((("r", "b"),))),
        Put("one", "q", "2", "a"),
        Alone(Ingest("one")),
        Train(has_view=True),
        Alone(Relabel((("q", "c"), ("r", "c")))),
        Alone(Delete(("p",)), kill=3),
    ],
    "the same labels are a new version for an image that was replaced": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Relabel((("p", "b"),))),
        Put("one", "p", "2", "a"),
        Alone(Ingest("one")),
        Alone(Relabel((("p", "b"),))),
    ],
    "values do not outlive images that another run lets expire": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Featurize(has_index=True)),
        Alone(Ingest("one", ttl=1000)),
        Wait(1500),
    ],
    "values of images that expire stay if a run makes the images stay": [
        *FILES,
        Alone(Ingest("one", ttl=1000)),
        Alone(Featurize(has_index=True)),
        Alone(Ingest("one", ttl=0)),
        Alone(Featurize(has_index=True)),
        Wait(1500),
        Alone(Relabel((("p", "b"),))),
    ],
    "vectors expire with the values that they are of": [
        *FILES,
        Alone(Ingest("one", ttl=1000)),
        Wait(500),
        Alone(Featurize(has_index=True)),
        Wait(500),
    ],
    "the group of an image ends with it, also if an interrupted deletion of it is restored": [
        *FILES,
        Alone(Ingest("one", ("groups",))),
        Alone(Delete(("p",)), kill=3),
        Alone(Ingest("one", ("restore",), ttl=1000)),
        Wait(1500),
    ],
    "a split as of an earlier run says that images have expired": [
        *FILES,
        Alone(Ingest("one", ttl=1000)),
        Alone(Ingest("one", ttl=3000)),
        Wait(4000),
        Alone(Ingest("one", ttl=3000)),
    ],
    "no values are computed of images that an interrupted deletion left": [
        *FILES,
        Alone(Ingest("one")),
        Drop("one", "p"),
        Alone(Delete(("p",)), kill=3),
        Together(Alone(Featurize()), Alone(Ingest("one", ("prune",))), turns=(1, 1, 0, 0, 1)),
    ],
    "a vector that is written while its image is deleted is gone, or the deletion says so": [
        *FILES,
        Alone(Ingest("one")),
        Alone(Featurize()),
        Together(Alone(Featurize(has_index=True), kill=3), Alone(Delete(("p",))), turns=(0, 0, *(1,) * 20)),
    ],
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("is_one_keyspace", [True, False])
def test_found_histories(name: str, is_one_keyspace: bool) -> None:
    assert played(FOUND[name], is_one_keyspace=is_one_keyspace) is None, name


async def _replaces_nothing(self: ReplacedStates, *_: Any) -> Followed:
    return Followed(since=self.target.run.sequence)


async def _keeps_the_bytes(self: Remover, image: Any) -> None:
    await self.session.write([(self.metadata, (self.removal.run.last_clock, image))], about="")


def _unseen_run(metadata: MetadataTable, view: FeatureView) -> Run:
    return Run(table=metadata.name, sequence=0, clock=2 * time.time_ns() // 1000)


def _changes(**other: int) -> Callable[[Reading, Split], Any]:
    """`Reading.changes` as of another split."""
    changes = Reading.changes
    return lambda reading, split: changes(reading, replace(split, **other))


class _Late:
    """A session that writes nothing, and remembers what it should have written."""

    def __init__(self, session: Any) -> None:
        self.read, self.read_all, self.written = session.read, session.read_all, list[Any]()

    async def write(self, rows: Any, *, about: str) -> None:
        self.written += rows


_ACCEPT = TableRows.accept


async def _copies_late(self: TableRows, *image: Any) -> str | None:
    if self.states is None or self.states.bytes is None:
        return await _ACCEPT(self, *image)
    late: Any = _Late(self.session)
    states = replace(self.states, bytes=replace(self.states.bytes, session=late))
    note = await _ACCEPT(replace(self, states=states), *image)
    for row in late.written:
        await self.session.write([row], about="")
    return note


async def _copies_what_is_there(self: ReplacedBytes, image: Any, *, sha256: bytes, known: int | None) -> int | None:
    row = await self.session.read(self.query, image, about="")
    if row is None or row[0] is None:
        return None
    await self.session.write(
        [(self.insert, (image, known, self.run.sequence, len(row[0]), *row, self.clock))], about=""
    )
    return known


FAULTS: dict[str, tuple[str, Any]] = {
    "deleted images that came back are hidden": (
        "tests.support.histories.reading.is_deleted", lambda since, *, kind, until: kind == "deleted"),
    "what an interrupted deletion left counts as restored": (
        "tests.support.histories.reading.is_deleted", lambda since, *, kind, until: since == 0),
    "all runs have one clock": (
        "etl.tables.sequence.next_clock", lambda **_: 10**15),
    "the first state that a history has counts": (
        "tests.support.histories.reading.state_at", lambda history, *, sequence: history[-1]),
    "runs at the same time do not look for each other": (
        "tests.support.histories.jobs.is_shared", lambda *_, own: False),
    "replaced states are not recorded": (
        "etl.ingest.writing.table_rows.ReplacedStates.follow", _replaces_nothing),
    "a run writes earlier than the one before": (
        "etl.tables.sequence.Run.clock_of", lambda self, attempt: self.clock - 2 * self.sequence * SPAN),
    "a run that removes does not win over its own table's rows": (
        "etl.tables.sequence.Run.last_clock", property(lambda self: self.clock - 2 * SPAN)),
    "a removal leaves the bytes": (
        "etl.tables.removal.Remover.remove", _keeps_the_bytes),
    "values are written later than a deletion": (
        "etl.tables.sequence.Run.task_clock", property(lambda self: self.last_clock + 9 * SPAN)),
    "a removal leaves values": (
        "etl.tables.removal.value_tables", lambda control, metadata: ()),
    "a deletion does not look for values that are written meanwhile": (
        "tests.support.histories.jobs.WRITERS", ("ingest", "repair")),
    "a value counts for other bytes": (
        "tests.support.histories.reading.Reading.value", lambda self, image: next(iter(self.values), None)),
    "a removal leaves labels": (
        "etl.tables.removal.label_tables", lambda control, metadata: ()),
    "a correction counts for other bytes": (
        "tests.support.histories.reading.is_replaced", lambda seen, now: False),
    "a version takes the number of another one": (
        "tests.support.histories.jobs.next_version", lambda *_, **__: 1),
    "bytes are copied after they are replaced": (
        "etl.ingest.writing.table_rows.TableRows.accept", _copies_late),
    "a copy is not compared with what the metadata describes": (
        "etl.ingest.writing.table_rows.ReplacedBytes.keep", _copies_what_is_there),
    "a removal leaves replaced bytes": (
        "etl.tables.removal.kept_in", lambda control, data: None),
    "runs do not record what ran at the same time": (
        "tests.support.histories.machine.overlapping", lambda *_, until: []),
    "values outlive their images": (
        "etl.ingest.writing.table_rows.ends_with", lambda left, *, ttl: True),
    "a run does not know that images of earlier runs expire": (
        "tests.support.histories.jobs.expiring", lambda runs: {}),
    "a split as of a run does not say that images have expired": (
        "tests.support.histories.machine.expired", lambda runs, *, now: []),
    "the lineage of a model compares images with what they are now": (
        "tests.support.histories.reading.Reading.changes", _changes(sequence=10**9)),
    "the lineage of a model does not know later corrections": (
        "tests.support.histories.reading.Reading.changes", _changes(version=10**9)),
    "a removal leaves vectors": (
        "etl.tables.removal.value_tables", lambda control, metadata: (VIEW.table_of(metadata),)),
    "vectors are written as if no other run were there": (
        "tests.support.histories.jobs.index_run", _unseen_run),
}  # fmt: skip


# Each fault replaces a piece of the product, or of the judge where that stands for it.
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[name])
    assert any(map(played, FOUND.values())) or first_broken(range(10_000)) is not None


def test_a_repair_that_ignores_running_ingests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etl.verify.repair.unfinished", lambda runs: [])
    assert played(HALF_WRITTEN, is_one_keyspace=False) is not None
