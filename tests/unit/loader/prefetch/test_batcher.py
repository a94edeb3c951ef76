"""Batches of samples that arrive in any order: none is missing, repeated or too early. Without a loader."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loader import MissingImageError, merge_states
from loader.order.schedule import Schedule
from loader.prefetch.batcher import Batcher, Filled, InOrder, OutOfOrder, Sample

POLICIES = ("PARTIAL", "FILL", "DROP")


def ids(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
    packed = b"".join(int(position).to_bytes(16, "big") for position in positions)
    return np.frombuffer(packed, dtype=np.uint8).reshape(-1, 16)


def schedule(rows: int, batch_size: int, rank: int = 0, world_size: int = 1, policy: str = "PARTIAL") -> Schedule:
    return Schedule(
        fingerprint="f",
        rows=rows,
        seed=3,
        shuffle=True,
        batch_size=batch_size,
        rank=rank,
        world_size=world_size,
        last_batch_policy=policy,  # type: ignore[arg-type]
    )


def batcher(plan: Schedule, epoch: int = 0, *, reorder: int | None = None) -> Batcher:
    size, is_padded = plan.batch_size, plan.last_batch_policy != "PARTIAL"
    if reorder is None:
        return InOrder(plan.steps(epoch), ids, batch_size=size, is_padded=is_padded)
    return OutOfOrder(plan.steps(epoch), ids, batch_size=size, is_padded=is_padded, reorder=reorder)


def arrive(
    made: Batcher, choices: Sequence[int], *, in_flight: int, missing: frozenset[int] = frozenset()
) -> list[Filled]:
    """Batches, with this many reads in flight, of which the chosen ones finish first."""
    found: list[Filled] = []
    flying: list[Sample] = []
    chosen = itertools.cycle(choices)
    while True:
        while len(flying) < in_flight and (sample := made.take()) is not None:
            assert sample.id == sample.position.to_bytes(16, "big")
            flying.append(sample)
        if not flying:
            assert made.is_taken
            assert made.is_over
            return found
        sample = flying.pop(next(chosen) % len(flying))
        sample.is_here = True
        if sample.position in missing:
            sample.error, sample.is_skipped = MissingImageError(f"no {sample.position}"), True
        made.put(sample)
        found += made.ready()


def positions(filled: Filled) -> list[int]:
    return [sample.position for sample in filled.samples]


CHOICES = st.lists(st.integers(0, 50), min_size=1, max_size=30)


@given(st.integers(1, 40), st.integers(1, 7), st.sampled_from(POLICIES), st.integers(1, 3), CHOICES, st.integers(1, 30))
def test_in_order_delivery_follows_the_schedule_whatever_arrives_first(
    rows: int, batch_size: int, policy: str, world_size: int, choices: list[int], in_flight: int
) -> None:
    for rank in range(world_size):
        plan = schedule(rows, batch_size, rank, world_size, policy)
        found = arrive(batcher(plan), choices, in_flight=in_flight)
        steps = list(plan.steps(0))
        assert [positions(filled) for filled in found] == [step.positions.tolist() for step in steps]
        assert [(filled.number, filled.repeats) for filled in found] == [(step.number, step.repeats) for step in steps]
        assert all(filled.late == () for filled in found)


@given(
    st.integers(1, 40), st.integers(1, 7), st.sampled_from(POLICIES), st.integers(1, 3), CHOICES, st.integers(1, 30),
    st.integers(1, 12),
)  # fmt: skip
def test_out_of_order_delivery_gives_each_sample_once_and_none_too_early(
    rows: int, batch_size: int, policy: str, world_size: int, choices: list[int], in_flight: int, reorder: int
) -> None:
    for rank in range(world_size):
        plan = schedule(rows, batch_size, rank, world_size, policy)
        steps = list(plan.steps(0))
        found = arrive(batcher(plan, reorder=reorder), choices, in_flight=in_flight)
        # The same samples and as many batches of the same sizes, in another order.
        assert [len(filled.samples) for filled in found] == [len(step.positions) for step in steps]
        assert [filled.number for filled in found] == [step.number for step in steps]
        fresh = [positions(filled)[: len(filled.samples) - filled.repeats] for filled in found]
        due = [step.positions.tolist()[: len(step.positions) - step.repeats] for step in steps]
        assert sorted(itertools.chain(*fresh)) == sorted(itertools.chain(*due))
        # No sample overtakes one that is a window or more ahead.
        numbers = [[sample.number for sample in filled.samples] for filled in found]
        delivered: set[int] = set()
        for batch, filled in zip(numbers, found, strict=True):
            delivered.update(batch)
            oldest = next(number for number in itertools.count() if number not in delivered)
            assert max(batch) < oldest + reorder
            assert set(range(filled.end)) - delivered == set(filled.late)
            assert max(delivered) == filled.end - 1


@given(st.data(), st.integers(2, 40), st.integers(1, 5), st.integers(1, 3), CHOICES)
def test_an_out_of_order_epoch_resumes_exactly_on_any_number_of_ranks(
    data: st.DataObject, rows: int, batch_size: int, world_size: int, choices: list[int]
) -> None:
    """Out of order, ranks before an interruption and any ranks after it deliver each sample of the epoch once."""
    plans = [schedule(rows, batch_size, rank, world_size) for rank in range(world_size)]
    stop = data.draw(st.integers(0, plans[0].whole.steps))
    delivered: list[int] = []
    states = []
    for plan in plans:
        found = arrive(batcher(plan, reorder=9), choices, in_flight=11)[:stop]
        delivered += [position for filled in found for position in positions(filled)]
        end, late = (found[-1].end, found[-1].late) if found else (0, ())
        states.append((plan.after_samples(0, end=end, late=late) if stop else plan.after(0)).to_dict())
    merged = merge_states(states)
    if merged["epoch"] == 0:
        again, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
        for rank in range(again):
            plan = schedule(rows, size, rank, again).going_on(merged)
            for filled in arrive(batcher(plan, reorder=7), choices, in_flight=5):
                delivered += positions(filled)
    assert sorted(delivered) == list(range(rows))


@pytest.mark.parametrize("reorder", [None, 6])
@pytest.mark.parametrize("policy", POLICIES)
def test_missing_samples_are_skipped_and_reported(reorder: int | None, policy: str) -> None:
    plan = schedule(20, 4, policy=policy)
    missing = frozenset({3, 11})
    found = arrive(batcher(plan, reorder=reorder), [0], in_flight=3, missing=missing)
    assert {sample.position for filled in found for sample in filled.skipped} == missing
    fresh = [position for filled in found for position in positions(filled)[: len(filled.samples) - filled.repeats]]
    assert sorted(fresh) == sorted(set(range(20)) - missing)
    sizes = [len(filled.samples) for filled in found]
    assert sum(sizes) == (18 if policy == "PARTIAL" else 20)


@pytest.mark.parametrize("reorder", [None, 6])
def test_an_error_is_raised_where_the_sample_would_be(reorder: int | None) -> None:
    made = batcher(schedule(8, 4), reorder=reorder)
    samples = [made.take() for _ in range(6)]
    for sample in samples:
        assert sample is not None
        sample.is_here = True
        sample.error = MissingImageError("gone") if sample is samples[5] else None
        made.put(sample)
    assert len(next(iter(made.ready())).samples) == 4
    for _ in range(2):
        last = made.take()
        assert last is not None
        last.is_here = True
        made.put(last)
    with pytest.raises(MissingImageError, match="gone"):
        list(made.ready())


@pytest.mark.parametrize("reorder", [None, 6])
@pytest.mark.parametrize("policy", ["PARTIAL", "FILL"])
def test_a_batch_with_all_samples_missing_is_empty(reorder: int | None, policy: str) -> None:
    plan = schedule(13, 4, policy=policy)
    steps = list(plan.steps(0))
    missing = frozenset([*steps[1].positions.tolist(), *steps[3].positions.tolist()])
    found = arrive(batcher(plan, reorder=reorder), [0], in_flight=1, missing=missing)
    assert [len(filled.samples) for filled in found] == [4, 0, 4, 0]
    assert {sample.position for filled in found for sample in filled.skipped} == missing


@given(
    st.data(), st.integers(1, 30), st.integers(1, 5), st.sampled_from(["FILL", "DROP"]), st.integers(1, 3), CHOICES,
    st.integers(1, 8), st.sampled_from([None, 3, 40]),
)  # fmt: skip
def test_skipped_samples_leave_all_ranks_with_the_same_batches_full_or_empty(
    data: st.DataObject, rows: int, batch_size: int, policy: str, world_size: int, choices: list[int], in_flight: int,
    reorder: int | None,
) -> None:  # fmt: skip
    missing = frozenset(data.draw(st.sets(st.integers(0, rows - 1))))
    for rank in range(world_size):
        plan = schedule(rows, batch_size, rank, world_size, policy)
        steps = list(plan.steps(0))
        own = {position for step in steps for position in step.positions.tolist()}
        found = arrive(batcher(plan, reorder=reorder), choices, in_flight=in_flight, missing=missing)
        assert len(found) == len(steps)
        assert all(len(filled.samples) == (batch_size if {*positions(filled)} else 0) for filled in found)
        fresh = {position for filled in found for position in positions(filled)}
        assert fresh == own - missing
