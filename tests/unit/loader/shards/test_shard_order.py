"""Which sample of which piece comes when: each once, disjoint for ranks and workers, and exact after a resume."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import OptionError, StateError
from loader.order.permutation import LastBatchPolicy
from loader.shards.shard_order import Deal, EpochOrder, ShardStep, ranges_of
from loader.shards.shard_order import steps as steps_of
from loader.shards.shard_schedule import ShardSchedule

Taken = tuple[int, int]
PIECES = st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any)


def schedule(
    pieces: list[int],
    batch_size: int = 4,
    rank: int = 0,
    world_size: int = 1,
    *,
    seed: int = 1,
    policy: LastBatchPolicy = "PARTIAL",
    streams: int = 3,
    mix: int = 8,
    shuffle: bool = True,
) -> ShardSchedule:
    return ShardSchedule(
        fingerprint="f",
        pieces=np.array(pieces, dtype=np.int64),
        seed=seed,
        shuffle=shuffle,
        batch_size=batch_size,
        rank=rank,
        world_size=world_size,
        last_batch_policy=policy,
        streams=streams,
        mix=mix,
    )


def taken(step: ShardStep) -> list[Taken]:
    return list(zip(step.pieces, step.insides, strict=True))


def everything(pieces: list[int]) -> Counter[Taken]:
    return Counter((piece, inside) for piece, samples in enumerate(pieces) for inside in range(samples))


@given(PIECES, st.integers(1, 7), st.integers(1, 4), st.integers(1, 5), st.integers(1, 20))
def test_every_sample_comes_once_over_all_ranks(
    pieces: list[int], size: int, world: int, streams: int, mix: int
) -> None:
    ranks = [schedule(pieces, size, rank, world, streams=streams, mix=mix) for rank in range(world)]
    steps = [list(one.steps(0)) for one in ranks]
    assert Counter(chain.from_iterable(taken(step) for of_rank in steps for step in of_rank)) == everything(pieces)
    for one, found in zip(ranks, steps, strict=True):
        assert [step.number for step in found] == list(range(one.whole.steps))
        assert sum(len(step.pieces) for step in found) == one.whole.samples == one.samples(0)
        opened: Counter[tuple[int, int]] = Counter()
        for piece, insides, _ in chain.from_iterable(step.opened for step in found):
            opened.update((piece, inside) for inside in insides)
        assert opened == Counter(chain.from_iterable(zip(step.pieces, step.insides, strict=True) for step in found))


@given(PIECES, st.integers(1, 5), st.integers(1, 4), st.sampled_from(["FILL", "DROP"]))
def test_ranks_have_as_many_whole_batches_with_fill_and_drop(
    pieces: list[int], size: int, world: int, policy: LastBatchPolicy
) -> None:
    steps = [list(schedule(pieces, size, rank, world, policy=policy).steps(0)) for rank in range(world)]
    assert len({len(found) for found in steps}) == 1
    assert all(len(step.pieces) == size for found in steps for step in found)
    fresh = Counter(chain.from_iterable(taken(step)[: size - step.repeats] for found in steps for step in found))
    if policy == "FILL":
        assert fresh == everything(pieces)
        for found in steps:  # a rank repeats its own samples
            counts = Counter(chain.from_iterable(map(taken, found)))
            own = Counter(chain.from_iterable(taken(step)[: size - step.repeats] for step in found))
            assert not own or (counts.keys() == own.keys() and max(counts.values()) - min(counts.values()) <= 1)
            assert max(counts.values()) <= max(2, -(-size // (len(own) or sum(pieces))))
    else:
        assert not fresh - everything(pieces)
        assert fresh.total() == sum(pieces) // (size * world) * size * world
    for found in steps:
        opened: Counter[tuple[int, int]] = Counter()
        for step in found:
            for piece, insides, _ in step.opened:
                opened.update((piece, inside) for inside in insides)
            for sample in taken(step)[: size - step.repeats]:
                opened[sample] -= 1
            assert all(uses >= 0 for uses in opened.values())


@given(st.integers(1, 40), st.integers(1, 32), st.integers(1, 3))
def test_few_samples_that_are_left_are_filled_from_the_whole_epoch(left: int, size: int, world: int) -> None:
    order = EpochOrder(np.full(100, 10), "f", 0, 0, True)
    deal = Deal(((1000 - left, 1000),), size, world, "FILL", 12, 100)
    counts: Counter[tuple[int, int]] = Counter()
    for rank in range(world):
        of_rank = Counter(chain.from_iterable(map(taken, steps_of(deal, order, rank, first=0, begin=0))))
        assert max(of_rank.values()) <= 2
        counts += of_rank
    assert max(counts.values()) <= 1 + world


@given(PIECES, st.integers(1, 5), st.integers(1, 7), st.integers(1, 6))
def test_workers_taking_turns_give_the_order_of_one_process(
    pieces: list[int], size: int, workers: int, streams: int
) -> None:
    whole = schedule(pieces, size, streams=streams)
    shares = [list(whole.steps(0, offset=worker, every=workers)) for worker in range(workers)]
    together = sorted((step for share in shares for step in share), key=lambda step: step.number)
    assert [taken(step) for step in together] == [taken(step) for step in whole.steps(0)]
    for worker, share in enumerate(shares):
        assert sum(len(step.pieces) for step in share) == whole.samples(0, offset=worker, every=workers)


def test_ranks_and_workers_share_pieces_only_where_their_ranges_meet() -> None:
    pieces, world, workers, streams = [48] * 600, 2, 3, 12
    reads: Counter[int] = Counter()
    for rank in range(world):
        one = schedule(pieces, 64, rank, world, streams=streams, mix=256)
        for worker in range(workers):
            reads.update({piece for step in one.steps(0, offset=worker, every=workers) for piece in step.pieces})
    assert set(reads) == set(range(600))
    assert reads.total() <= 600 + world * streams


@given(PIECES, st.integers(1, 5), st.integers(1, 3), st.data())
def test_a_state_resumes_at_the_next_batch(pieces: list[int], size: int, world: int, data: st.DataObject) -> None:
    ranks = [schedule(pieces, size, rank, world) for rank in range(world)]
    most = min(one.whole.steps for one in ranks)
    at = data.draw(st.integers(0, most))
    states = [one.after(0, steps=at).to_dict() for one in ranks]
    assert all(state == states[0] for state in states)
    for one in ranks:
        again = one.going_on(states[0])
        rest = [taken(step) for step in again.steps(0)] if again.first_epoch == 0 else []
        assert rest == [taken(step) for step in list(one.steps(0))[at:]]
        if again.first_epoch == 0:
            assert again.first_step(0) == at


@settings(max_examples=50)
@given(PIECES, st.integers(1, 5), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_state_resumes_with_other_ranks_and_batch_sizes(
    pieces: list[int], size: int, world: int, new_size: int, new_world: int, data: st.DataObject
) -> None:
    """Twice: what is left of a rest is distributed again."""
    left = everything(pieces)
    state, epoch = None, 0
    for batch, count in ((size, world), (new_size, new_world), (size + 1, world)):
        ranks = [schedule(pieces, batch, rank, count) for rank in range(count)]
        ranks = ranks if state is None else [one.going_on(state) for one in ranks]
        if (epoch := ranks[0].first_epoch) == 1:
            break
        at = data.draw(st.integers(0, min(len(list(one.steps(0))) for one in ranks)))
        for one in ranks:
            left.subtract(chain.from_iterable(taken(step) for step in list(one.steps(0))[:at]))
        assert min(left.values()) >= 0  # none twice
        state = ranks[0].after(0, steps=ranks[0].first_step(0) + at).to_dict()
    else:
        ranks = [schedule(pieces, 3, rank, 2).going_on(state or {}) for rank in range(2)]
        epoch = ranks[0].first_epoch
        if epoch == 0:
            assert Counter(chain.from_iterable(taken(step) for one in ranks for step in one.steps(0))) == +left
    if epoch == 1:
        assert left.total() == 0


def test_each_epoch_and_seed_has_its_own_well_mixed_order() -> None:
    pieces = [40] * 50
    one = schedule(pieces, 32, streams=4, mix=128)
    first, second = ([taken(step) for step in one.steps(epoch)] for epoch in (0, 1))
    assert first != second
    assert first != [taken(step) for step in schedule(pieces, 32, streams=4, mix=128, seed=2).steps(0)]
    assert np.mean([len({piece for piece, _ in batch}) for batch in first]) > 3


def test_without_shuffle_a_stream_follows_the_order_of_the_shards() -> None:
    one = schedule([3, 4, 5], 2, streams=1, shuffle=False)
    found = list(chain.from_iterable(taken(step) for step in one.steps(0)))
    assert found == sorted(everything([3, 4, 5]))


def test_invalid_states_and_empty_shards_are_refused() -> None:
    one = schedule([3, 4], 2)
    with pytest.raises(OptionError, match=r"from 0 to 4 batches of epoch 0, .*Found: 5"):
        one.after(0, steps=5)
    with pytest.raises(StateError, match="a state of shards"):
        one.going_on({"format": 1})
    with pytest.raises(StateError, match=r"these shards: rows 7\. Found: 9"):
        one.going_on(schedule([9], 2).after(0, steps=1).to_dict())
    with pytest.raises(StateError, match=r"this order: seed 1\. Found: 2"):
        one.going_on(schedule([3, 4], 2, seed=2).after(0, steps=1).to_dict())
    with pytest.raises(OptionError, match="at least one row"):
        schedule([0])


def test_adjacent_samples_are_merged_into_one_range() -> None:
    assert ranges_of(np.array([3, 4, 5, 9, 1, 2])) == ((3, 6), (9, 10), (1, 3))
    assert ranges_of(np.array([], dtype=np.int64)) == ()
