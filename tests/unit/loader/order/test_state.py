"""States: every place is delivered once, on any number of ranks and after any interruption."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.adapters.merging import merge_states
from loader.errors import StateError
from loader.order.permutation import LastBatchPolicy, Sharding
from loader.order.state import Left, Share, State

sizes = st.tuples(st.integers(1, 120), st.integers(1, 7), st.integers(1, 5))


def begin(rows: int, *, epoch: int = 0) -> State:
    return State(fingerprint="f", seed=3, shuffle=True, epoch=epoch, global_batch_size=1, rows=rows)


def parts(state: State, batch_size: int, world_size: int, policy: LastBatchPolicy = "PARTIAL") -> list[Sharding]:
    return [Sharding(len(state.left), batch_size, rank, world_size, policy) for rank in range(world_size)]


def places(state: State, sharding: Sharding, *, steps: int) -> list[int]:
    """The deliveries of a rank in its first steps after a state."""
    batches = [state.left(sharding.places(step)) for step in range(min(steps, sharding.steps))]
    return np.concatenate([np.empty(0, np.int64), *batches]).tolist()


def through_json(state: dict[str, Any]) -> State:
    """A state after a round trip through a file."""
    return State.from_dict(json.loads(json.dumps(state)))


@given(sizes, sizes, st.data())
def test_an_epoch_resumes_at_the_next_sample_on_any_number_of_ranks(
    size: tuple[int, int, int], other: tuple[int, int, int], data: st.DataObject
) -> None:
    rows, batch_size, world_size = size
    state, delivered = begin(rows), []
    for batch, ranks in ((batch_size, world_size), other[1:]):
        shardings = parts(state, batch, ranks)
        steps = data.draw(st.integers(0, max(one.steps for one in shardings) - 1))
        for sharding in shardings:
            delivered += places(state, sharding, steps=steps)
        state = through_json(state.after(min(steps * batch * ranks, len(state.left))).to_dict())
    for sharding in parts(state, 1, 1):
        delivered += places(state, sharding, steps=sharding.steps)
    assert sorted(delivered) == list(range(rows))
    assert delivered[-1:] == [rows - 1]


def out_of_order(state: State, sharding: Sharding, *, samples: int, window: int, data: st.DataObject) -> Share:
    """A rank's share after ``samples`` deliveries out of a window of undelivered samples."""
    waiting: list[int] = []
    following = 0
    for _ in range(samples):
        while len(waiting) < window and following < sharding.samples:
            waiting.append(following)
            following += 1
        waiting.remove(data.draw(st.sampled_from(waiting)))
    end = following
    while end and end - 1 in waiting:
        end -= 1
    return Share(
        sharding.rank,
        sharding.world_size,
        sharding.batch_size,
        end,
        tuple(number for number in waiting if number < end),
    )


def of_share(state: State, sharding: Sharding, share: Share) -> set[int]:
    """The places that a rank has delivered."""
    numbers = [number for number in range(min(share.end, sharding.samples)) if number not in share.late]
    return set(state.left(sharding.own(np.array(numbers, dtype=np.int64))).tolist())


@settings(max_examples=150)
@given(sizes, st.integers(1, 12), st.data())
def test_states_of_ranks_delivering_out_of_order_are_merged(
    size: tuple[int, int, int], window: int, data: st.DataObject
) -> None:
    rows, batch_size, world_size = size
    state = begin(rows)
    for _ in range(2):  # the second time from a state with pending places
        shardings = parts(state, batch_size, world_size)
        steps = data.draw(st.integers(0, max(one.steps for one in shardings) - 1))
        before = set(range(rows)) - set(state.left(np.arange(len(state.left))).tolist())
        states, delivered = [], set(before)
        for sharding in shardings:
            samples = min(steps * batch_size, sharding.samples)
            share = out_of_order(state, sharding, samples=samples, window=window, data=data)
            assert sum(number < share.end for number in share.late) + samples == share.end
            mine = of_share(state, sharding, share)
            assert not mine & delivered
            delivered |= mine
            states.append(State(**{**vars_of(state), "share": share}).to_dict())
        state = through_json(merge_states(data.draw(st.permutations(states))))
        left = state.left(np.arange(len(state.left)))
        assert np.array_equal(np.unique(left), np.array(sorted(set(range(rows)) - delivered)))
        assert len(left) == rows - len(delivered)


def vars_of(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in State.__slots__}


def test_a_rank_without_steps_left_is_at_the_next_epoch() -> None:
    state = begin(5)  # 2 ranks, batches of 2: rank 0 has 2 samples of the first step, none of the last
    first, second = parts(state, 2, 2)
    assert (first.samples, second.samples) == (2, 3)
    ended = state.following().to_dict()
    going = State(**{**vars_of(state), "share": Share(1, 2, 2, 2, ())}).to_dict()
    merged = through_json(merge_states([ended, going]))
    assert (merged.epoch, merged.left) == (0, Left(5, 4))
    assert merge_states([ended, ended]) == ended


def test_samples_repeated_by_fill_do_not_count_as_delivered() -> None:
    state = begin(5)
    shares = [Share(rank, 2, 2, 4, ()) for rank in range(2)]
    states = [State(**{**vars_of(state), "share": share}).to_dict() for share in shares]
    assert through_json(merge_states(states)) == state.following()


def test_remaining_indices_are_tracked() -> None:
    left = Left(10, 6, (1, 4))
    assert left(np.arange(6)).tolist() == [1, 4, 6, 7, 8, 9]
    assert left.after(1) == Left(10, 6, (4,))
    assert left.after(3) == Left(10, 7)
    assert left.after(5, late=[0, 3]) == Left(10, 9, (1, 7))


GOOD = begin(40).to_dict()


def shared(rank: int, **other: Any) -> dict[str, Any]:
    return {**GOOD, "share": {"rank": rank, "world_size": 2, "batch_size": 4, "end": 4, "late": []}, **other}


@pytest.mark.parametrize(
    ("states", "match"),
    [
        ([], "Found: none"),
        (GOOD, "a list of the states of all ranks"),
        ([{}], r"format 1 from state_dict\(\)\. Found: format None"),
        ([{"format": 2}], "Found: format 2"),
        ([{"format": 1, "epoch": 0}], "Found: one without 'share'"),
        ([{**GOOD, "colour": 3}], "Found: .*colour"),
        ([{**GOOD, "start": 41}], "places inside its epoch. Found: .*start=41"),
        ([{**GOOD, "start": 40}], "places inside its epoch. Found: .*start=40"),
        ([{**GOOD, "start": 3, "pending": [3]}], "places inside its epoch"),
        ([{**GOOD, "epoch": -1}], "places inside its epoch"),
        ([{**GOOD, "start": "3"}], "places inside its epoch"),
        ([GOOD, begin(40, epoch=1).to_dict()], "states of several steps"),
        ([shared(0)], r"ranks 0 to 1, each once\. Found: 1, of ranks 0 among"),
        ([shared(0), shared(0)], "each once. Found: 2, of ranks 0, 0"),
        ([shared(0), shared(1, epoch=1)], "several epochs or splits"),
        ([shared(0), shared(1, fingerprint="g")], "several epochs or splits"),
        ([shared(0), GOOD], "several epochs or splits"),
        *(
            ([{**GOOD, "share": {**shared(0)["share"], **wrong}}], "places inside its epoch")
            for wrong in ({"end": -1}, {"rank": 2}, {"batch_size": 0}, {"late": [4]}, {"late": [-1]}, {"end": "4"})
        ),
        *(
            ([{**GOOD, "sampling": sampling}], "a state from state_dict.*Found: ")
            for sampling in (
                3,
                {"name": "balanced", "batch": 1},
                {"name": "shuffled", "batch": 1, "weights": None},
                {"name": "balanced", "batch": 0, "weights": None},
                {"name": "balanced", "batch": 1 << 59, "weights": None},
                *(
                    {"name": "balanced", "batch": 1, "weights": weights}
                    for weights in (3, [1], [[float("inf"), 1.0]], [[0, 10**400]], [[0, -1.0]], [[0, float("nan")]])
                ),
            )
        ),
    ],
)
def test_unrelated_states_cannot_be_merged(states: Any, match: str) -> None:
    with pytest.raises(StateError, match=match):
        merge_states(states)
