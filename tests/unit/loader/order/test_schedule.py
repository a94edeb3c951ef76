"""Epochs of a rank: the deliveries before and after a state add up to an undisturbed epoch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import OptionError, StateError
from loader.order import schedule as module
from loader.order.permutation import LastBatchPolicy
from loader.order.schedule import Schedule
from loader.order.state import Share
from loader.order.strata import Sampling, classes_of

USUAL = Schedule(
    fingerprint="f",
    rows=100,
    seed=3,
    shuffle=True,
    batch_size=4,
    rank=0,
    world_size=1,
    last_batch_policy="PARTIAL",
)
ORDERS = ("split", "shuffled", "stratified", "balanced")
orders = st.sampled_from(ORDERS)
batches_and_worlds = st.tuples(st.integers(1, 9), st.integers(1, 5))


def usual(rows: int, order: str) -> Schedule:
    """A plan with this order, of images in classes of which one has half of them, the next one a quarter, and so on."""
    if order in ("split", "shuffled"):
        return replace(USUAL, rows=rows, shuffle=order == "shuffled")
    labels = np.array([(number ^ (number + 1)).bit_length() for number in range(rows)], dtype=np.int32)
    sampling = Sampling("balanced" if order == "balanced" else "stratified", batch=7)
    return replace(USUAL, rows=rows, sampling=sampling, classes=classes_of(labels))


def ranks(plan: Schedule, batch_size: int, world_size: int) -> list[Schedule]:
    return [replace(plan, batch_size=batch_size, world_size=world_size, rank=rank) for rank in range(world_size)]


def delivered(plans: list[Schedule], epoch: int, *, before: int | None = None) -> list[list[int]]:
    """The positions that all ranks deliver, by step, in the order of the ranks, without those that FILL repeats."""
    found: dict[int, list[int]] = {}
    for plan in plans:
        for step in plan.steps(epoch):
            if before is None or step.number < before:
                found.setdefault(step.number, []).extend(step.positions[: len(step.positions) - step.repeats].tolist())
    return [found[number] for number in sorted(found)]


def flat(steps: list[list[int]]) -> list[int]:
    return [position for step in steps for position in step]


@given(st.integers(1, 90), batches_and_worlds, batches_and_worlds, orders, st.data())
def test_a_resumed_epoch_equals_an_uninterrupted_one(
    rows: int, first: tuple[int, int], second: tuple[int, int], order: str, data: st.DataObject
) -> None:
    plan = usual(rows, order)
    undisturbed = flat(delivered([plan], 2))
    assert sorted(undisturbed) == list(range(rows)) or order == "balanced"
    assert len(undisturbed) == rows
    before = ranks(plan, *first)
    steps = data.draw(st.integers(0, -(-rows // (first[0] * first[1]))))
    states = [one.after(2, steps=steps).to_dict() for one in before]
    assert all(state == states[0] for state in states)
    after = [one.going_on(states[0]) for one in ranks(plan, *second)]
    found = flat(delivered(before, 2, before=steps))
    if len(found) < rows:
        assert {one.first_epoch for one in after} == {2}
        assert sum(one.samples(2) for one in after) == rows - len(found)
        found += flat(delivered(after, 2))
    else:
        assert {one.first_epoch for one in after} == {3}
    assert found == undisturbed
    assert flat(delivered(after, 3)) == flat(delivered(before, 3))


@given(st.integers(1, 90), batches_and_worlds, st.sampled_from(["FILL", "PARTIAL", "DROP"]), st.data())
def test_the_same_ranks_resume_with_the_same_batches(
    rows: int, size: tuple[int, int], policy: LastBatchPolicy, data: st.DataObject
) -> None:
    for plan in ranks(replace(USUAL, rows=rows, last_batch_policy=policy), *size):
        whole = list(plan.steps(0))
        again = plan.going_on(plan.after(0, steps=data.draw(st.integers(0, len(whole)))).to_dict())
        rest = list(again.steps(again.first_epoch)) if again.first_epoch == 0 else []
        assert again.first_epoch == 1 or again.samples(0) == sum(len(step.positions) for step in rest)
        for step in rest:
            assert step.number >= again.first_step(0)
            wanted = whole[step.number]
            assert (step.number, step.repeats) == (wanted.number, wanted.repeats)
            real = len(step.positions) - step.repeats
            assert np.array_equal(step.positions[:real], wanted.positions[:real])
        assert [step.number for step in rest] == [step.number for step in whole][len(whole) - len(rest) :]


@pytest.mark.parametrize("at_once", [1, 7, 30, 1 << 14])
@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
@pytest.mark.parametrize("name", ORDERS[1:])
def test_batches_do_not_depend_on_how_many_are_computed_at_once(
    monkeypatch: pytest.MonkeyPatch, policy: LastBatchPolicy, at_once: int, name: str
) -> None:
    monkeypatch.setattr(module, "_PLACES_AT_ONCE", at_once)
    order = usual(100, name).order(0)
    assert order is not None
    for plan in ranks(replace(usual(100, name), last_batch_policy=policy), 3, 4):
        steps = list(plan.steps(0))
        assert len(steps) == plan.whole.steps
        for number, step in enumerate(steps):
            assert (step.number, step.repeats) == (number, plan.whole.repeats(number))
            assert np.array_equal(step.positions, order(plan.whole.places(number)))


def test_the_order_of_a_huge_split_is_worked_out_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(rows: int, **_: object) -> Callable[[np.ndarray], np.ndarray]:
        return lambda places: asked.append(len(places)) or places

    monkeypatch.setattr(module, "epoch_order", counted)
    steps = replace(USUAL, rows=10**11, batch_size=256).steps(0)
    for number in range(100):
        assert next(steps).positions.tolist() == list(range(256 * number, 256 * (number + 1)))
    assert asked == [1 << 14, 1 << 14]


@settings(max_examples=40)
@given(
    st.integers(1, 50),
    batches_and_worlds,
    st.sampled_from(["FILL", "PARTIAL", "DROP"]),
    orders,
    st.integers(1, 7),
    st.data(),
)
def test_workers_taking_turns_deliver_the_batches_of_one_process(
    rows: int, size: tuple[int, int], policy: LastBatchPolicy, order: str, every: int, data: st.DataObject
) -> None:
    for plan in ranks(replace(usual(rows, order), last_batch_policy=policy), *size):
        plan = plan.going_on(plan.after(0, steps=data.draw(st.integers(0, plan.whole.steps))).to_dict())
        whole = [(step.number, step.positions.tolist(), step.repeats) for step in plan.steps(0)]
        turns = [list(plan.steps(0, offset=offset, every=every)) for offset in range(every)]
        found = [(step.number, step.positions.tolist(), step.repeats) for turn in turns for step in turn]
        assert sorted(found) == whole
        for offset, turn in enumerate(turns):
            assert [step.number for step in turn] == [number for number, _, _ in whole][offset::every]
            assert plan.samples(0, offset=offset, every=every) == sum(len(step.positions) for step in turn)


def test_an_epoch_can_be_resumed_repeatedly() -> None:
    plan, seen = USUAL, []
    for batch_size, steps in ((7, 3), (5, 9), (2, 30)):
        plan = replace(plan, batch_size=batch_size)
        state = plan.after(0, steps=steps)
        seen += flat(delivered([plan], 0, before=steps))
        plan = plan.going_on(state.to_dict())
    seen += flat(delivered([plan], 0))
    assert seen == flat(delivered([USUAL], 0))


@pytest.mark.parametrize(("policy", "most"), [("FILL", 13), ("PARTIAL", 13), ("DROP", 12)])
def test_the_last_step_of_all_ranks_ends_the_epoch(policy: LastBatchPolicy, most: int) -> None:
    plan = replace(USUAL, batch_size=4, world_size=2, last_batch_policy=policy)
    assert plan.after(0, steps=most - 1).epoch == 0
    assert plan.after(0, steps=most).epoch == 1
    with pytest.raises(OptionError, match=f"from 0 to {most} batches of epoch 0, .*Found: {most + 1}"):
        plan.after(0, steps=most + 1)


def test_a_state_with_fewer_steps_than_before_is_refused() -> None:
    plan = USUAL.going_on(USUAL.after(1, steps=5).to_dict())
    assert plan.first_step(1) == 5
    assert plan.after(1) == plan.after(1, steps=5) == USUAL.after(1, steps=5)
    with pytest.raises(
        OptionError,
        match=r"from 5 to 25 batches of epoch 1, counted .*Found: 4\. After a resume, count from source\.first_step",
    ):
        plan.after(1, steps=4)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"fingerprint": "g"}, "a state of this split: fingerprint g. Found: f"),
        ({"rows": 99}, "a state of this split: rows 99. Found: 100"),
        ({"seed": 4}, "a state of this order: seed 4. Found: 3"),
        ({"shuffle": False}, "a state of this order: shuffle False. Found: True"),
    ],
)
def test_a_state_of_another_split_or_order_is_refused(change: dict[str, Any], match: str) -> None:
    state = USUAL.after(0, steps=2).to_dict()
    with pytest.raises(StateError, match=match):
        replace(USUAL, **change).going_on(state)


@pytest.mark.parametrize("mine", ORDERS)
@pytest.mark.parametrize("other", [*ORDERS, "weights"])
def test_a_state_of_another_sampling_is_refused_and_batches_of_another_size_keep_the_order(
    mine: str, other: str
) -> None:
    weighted = replace(usual(100, "balanced"), sampling=Sampling("balanced", 7, ((1, 2.0),)))
    state = (weighted if other == "weights" else usual(100, other)).after(0, steps=2).to_dict()
    plan = usual(100, mine)
    if plan.sampling is not None:
        plan = replace(plan, sampling=replace(plan.sampling, batch=9))
    if mine == other:
        assert plan.going_on(state).sampling == usual(100, mine).sampling
        return
    with pytest.raises(StateError, match=r"a state of this order: .*Found: .*Make the source with the options"):
        plan.going_on(state)


def test_the_state_of_a_single_rank_is_refused() -> None:
    state = replace(USUAL.after(0, steps=2), share=Share(0, 2, 4, 8, (3,))).to_dict()
    with pytest.raises(StateError, match=r"Found: the state of one rank .* Join .* with loader\.merge_states"):
        USUAL.going_on(state)


@settings(max_examples=60)
@given(
    st.integers(1, 50),
    batches_and_worlds,
    batches_and_worlds,
    st.sampled_from(["FILL", "PARTIAL", "DROP"]),
    orders,
    st.data(),
)
def test_the_batches_of_a_position_are_those_in_which_it_is(
    rows: int,
    before: tuple[int, int],
    size: tuple[int, int],
    policy: LastBatchPolicy,
    order: str,
    data: st.DataObject,
) -> None:
    """In whole epochs and in the rest of one, with places that are left before those that come next."""
    plan = usual(rows, order)
    pending = data.draw(st.sets(st.integers(0, rows - 1)))
    state = plan.after(1).after(max(pending, default=-1) + 1, late=pending)
    batch_size, world_size = size
    plan = replace(plan, batch_size=batch_size, world_size=world_size, last_batch_policy=policy).going_on(
        replace(state, global_batch_size=before[0] * before[1]).to_dict()
    )
    wanted: dict[int, set[tuple[int, int, int]]] = {position: set() for position in range(rows)}
    first = state.epoch
    for epoch in range(first, first + 3):
        for one in ranks(plan, *size):
            for step in one.steps(epoch):
                for position in step.positions.tolist():
                    wanted[position].add((epoch, step.number, one.rank))
    for position, batches in wanted.items():
        assert set(plan.where(*plan.places_of(range(first, first + 3), position))) == batches
