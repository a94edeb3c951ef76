"""What must hold whatever an object store does to reads of shards: random epochs, in virtual time.

`make simulate` plays more of them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from formats.retries import Attempts
from loader.shards.held_pieces import HeldPieces
from loader.shards.pieces import PieceReader
from loader.shards.shard_order import Deal
from loader.shards.shard_schedule import ShardState
from tests.support.simulation.cluster import Weather
from tests.support.simulation.plays import first_broken, played
from tests.support.simulation.scenarios import Life
from tests.support.simulation.shards import ShardScenario, shard_scenario


def test_random_epochs_of_shards_break_nothing() -> None:
    assert first_broken(range(80), [shard_scenario]) is None


FOUND = {
    "an answer that ends early is not the end of the shard": ShardScenario(lives=(Life(weather=Weather(cut=1.0)),)),
    "inflated bytes do not count before there is room for them": ShardScenario(
        number=1181, pieces=(1, 3), sizes=(2000, 8000), is_packed=True, shuffle=True,
        lives=(Life(batch_size=2, budget=1, max_in_flight=1),),
    ),
    "a piece that cannot be read is freed before another takes its place": ShardScenario(
        number=5692, pieces=(1, 1, 3), together=1, shuffle=True, mix=3, ending=frozenset({0}), lives=(Life(budget=1),),
    ),
    "so is one whose shard is gone": ShardScenario(
        number=10049, pieces=(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 2), shuffle=True, mix=5, gone=frozenset({0}),
        lives=(Life(budget=1),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_random_epochs_have_found_holds(name: str) -> None:
    assert played(FOUND[name]) is None


_take, _count, _fetch = HeldPieces.take, HeldPieces._count, PieceReader._fetch
_after, _later = Deal.after, ShardState.later


def _next_sample(held: HeldPieces, samples: Any, wait: Any) -> Any:
    counts = [one.samples for one in held._reader.locations]
    found = _take(held, samples, wait)
    if len(samples) > 1 and counts[samples[0][0]] > 1:
        found[0] = found[-1]
    return found


def _one_byte_later(reader: PieceReader, location: Any, data: Any, start: int, stop: int) -> None:
    _fetch(reader, location, data, start + (start > 0), stop)


def _forgotten_bytes(held: HeldPieces, one: Any, size: int) -> None:
    if size or one.bytes < 5000:
        _count(held, one, size)


def _unfreed(held: HeldPieces) -> None:
    held._held.clear()
    held._idle.clear()


def _lost_window(deal: Deal, steps: int, order: Any) -> Any:
    return _after(deal, steps + 1, order) if steps > 1 else _after(deal, steps, order)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "bytes are not compared": lambda patch: patch.setattr(PieceReader, "_check", lambda *_, **__: None),
    "damaged bytes are not read again": lambda patch: patch.setattr(
        PieceReader, "_fetch", lambda reader, location, data, start, stop: None
        if reader.meter.retries and (start, stop) == (0, location.bytes) and reader._shards.client.store._altered
        else _fetch(reader, location, data, start, stop)),
    "a failed request is not repeated": lambda patch: patch.setattr(Attempts, "again", lambda _: False),
    "a part begins one byte too late": lambda patch: patch.setattr(PieceReader, "_fetch", _one_byte_later),
    "a batch has a sample twice": lambda patch: patch.setattr(HeldPieces, "take", _next_sample),
    "a piece is held twice": lambda patch: patch.setattr(HeldPieces, "missing", lambda _, pieces: [*pieces]),
    "pieces that are dropped still count": lambda patch: patch.setattr(HeldPieces, "_count", _forgotten_bytes),
    "a closed stream still holds its pieces": lambda patch: patch.setattr(HeldPieces, "close", _unfreed),
    "there is always room": lambda patch: patch.setattr(HeldPieces, "make_room", lambda *_, **__: True),
    "a piece costs only its bytes": lambda patch: patch.setattr(
        PieceReader, "cost", lambda reader, number: reader.locations[number].bytes),
    "a resume is one batch too far": lambda patch: patch.setattr(Deal, "after", _lost_window),
    "a state counts a batch too many": lambda patch: patch.setattr(
        ShardState, "later", lambda state, steps: ShardState.following(state) if steps > 3 else _later(state, steps)),
    "threads do not see the end": lambda patch: patch.setattr(PieceReader, "close", lambda reader: None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert any(played(one) for one in map(shard_scenario, range(300)))
