"""What must hold whatever a cluster does to reads, for any ranks, workers, batches, budgets and interruptions: random
epochs on a simulated cluster, in virtual time.

`make simulate` plays more of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loader.cassandra.clients import TableReader
from loader.order.permutation import Sharding
from loader.order.state import Left, State
from loader.prefetch import stream as streams
from loader.prefetch.batcher import InOrder, OutOfOrder, Sample
from loader.prefetch.stream import FetchStream
from loader.source import Source
from tests.support.simulation.cluster import Weather
from tests.support.simulation.plays import first_broken, played
from tests.support.simulation.scenarios import Life, Scenario, scenario


def test_random_epochs_break_nothing() -> None:
    assert first_broken(range(200), [scenario]) is None


FOUND = {
    "a pass that was left out of order is a part of the history": Scenario(
        number=880, rows=4, in_order=False, lives=(Life(ranks=2, tries=1),)
    ),
    "a batch without samples is filled with one that could be read": Scenario(
        number=1013, rows=2, policy="FILL", skips=True, deleted=frozenset({0}),
        lives=(Life(max_in_flight=1, weather=Weather(latency=0.01, outage=(0.03, 200.0))),),
    ),
    "a batch that waits for a sample to fill it does not wait for ever if the budget is small": Scenario(
        number=1883, rows=21, policy="DROP", shuffle=True, skips=True, missing=frozenset({2, 20}),
        lives=(Life(batch_size=2, ranks=2, epochs=2, budget=1),),
    ),
    "an outage does not use up second reads": Scenario(
        rows=33, lives=(Life(timeout=9.0, weather=Weather(lost=1, outage=(0.05, 4.0))),),
    ),
    "out of order, an epoch ends with the first sample that fails, not with a batch of them": Scenario(
        rows=3, in_order=False, lives=(Life(batch_size=3, max_in_flight=1, weather=Weather(outage=(0.0, 200.0))),),
    ),
    "a second stream knows the size of images from the first": Scenario(
        number=7075, rows=37, sizes=(200, 200),
        lives=(Life(workers=2, epochs=1, budget=1, weather=Weather(refused=0.3)),),
    ),
    "a state before an epoch is its beginning, also if it has no batches": Scenario(
        number=2, policy="DROP", lives=(Life(batch_size=2),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_random_epochs_have_found_holds(name: str) -> None:
    assert played(FOUND[name]) is None


def _without(kind: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(kind, name, lambda *_, **__: None)


def _later(left: Left, end: int, *, late: Any = ()) -> Left:
    return _after(left, end + (end > 1 and end < len(left)), late=late)


def _given_up(stream: FetchStream, sample: Sample, error: Exception) -> Any:
    async def stop() -> bool:
        return False

    return stop()


def _also_late(stream: FetchStream, sample: Sample, task: Any) -> None:
    others, sample.readers = sample.readers, 1
    _arrived(stream, sample, task)
    sample.readers = others


def _unfreed(stream: FetchStream, count: int) -> None:
    _free(stream, 0)


def _noted_late(source: Source, epoch: int) -> Iterator[Any]:
    own = source._readers.own
    number = own.begin(epoch)
    for batch in source.batches(epoch):
        yield batch
        own.note(epoch, batch.step + 1, batch.delivered, of=number)
    own.note(epoch + 1, None, of=number)
    own.end(number)


async def _unchecked(reader: TableReader, one: bytes, position: int) -> Any:
    return reader._target.image(one, await reader._row(reader._select, one))


_after, _arrived, _free = Left.after, FetchStream._arrived, FetchStream._free

FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a resume is one sample too far": lambda patch: patch.setattr(Left, "after", _later),
    "a state counts a batch too late": lambda patch: patch.setattr(Source, "_counted", _noted_late),
    "a state forgets what was late": lambda patch: patch.setattr(
        State, "after", lambda state, end, *, late=(): State.following(state) if end >= state.dealt else replace(
            state, start=state.left.after(end).start, pending=(), share=None)),
    "a read is not repeated": lambda patch: patch.setattr(FetchStream, "_try_again", _given_up),
    "a late answer is delivered, too": lambda patch: patch.setattr(FetchStream, "_arrived", _also_late),
    "what was taken still counts": lambda patch: patch.setattr(FetchStream, "_free", _unfreed),
    "the budget does not count": lambda patch: patch.setattr(FetchStream, "_has_room", lambda *_, **__: True),
    "what the consumer waits for needs room": lambda patch: patch.setattr(InOrder, "is_needed", False),
    "no task follows one that has ended": _without(FetchStream, "_fill"),
    "what nobody answers does not fail": lambda patch: patch.setattr(streams, "_LOOK_SECONDS", 1e9),
    "samples that were overtaken are forgotten": _without(OutOfOrder, "_deliver"),
    "all ranks repeat the same samples": lambda patch: patch.setattr(
        Sharding, "repeated", lambda sharding, step, rows: np.arange(sharding.repeats(step)) % rows),
    "what fills a batch may have failed": lambda patch: patch.setattr(
        "loader.prefetch.batcher._check", lambda samples: None),
    "bytes are not compared": lambda patch: patch.setattr(TableReader, "_image", _unchecked),
    "no quorum is asked": lambda patch: patch.setattr(TableReader, "_is_weak", False),
    "an epoch that ends early is not read on": lambda patch: patch.setattr(FetchStream, "_end_epoch", lambda _: None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert any(played(one) for one in map(scenario, range(1000)))
