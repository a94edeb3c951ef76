"""The order of an epoch and each rank's share: sweeps over sizes, compared with DALI's own counts."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader import OptionError
from loader.order.permutation import LastBatchPolicy, Sharding, epoch_order


def shares(rows: int, batch_size: int, world_size: int, policy: LastBatchPolicy) -> list[list[np.ndarray]]:
    """The places of each batch of each rank."""
    ranks = [Sharding(rows, batch_size, rank, world_size, policy) for rank in range(world_size)]
    return [[sharding.places(step) for step in range(sharding.steps)] for sharding in ranks]


sizes = st.tuples(st.integers(1, 400), st.integers(1, 20), st.integers(1, 9))


@given(sizes)
def test_partial_gives_each_position_to_exactly_one_rank(size: tuple[int, int, int]) -> None:
    ranks = shares(*size, "PARTIAL")
    places = np.concatenate([np.empty(0, np.int64)] + [batch for batches in ranks for batch in batches])
    assert np.array_equal(np.sort(places), np.arange(size[0]))


@given(sizes)
def test_partial_counts_are_those_of_dali_s_shards(size: tuple[int, int, int]) -> None:
    n, batch_size, world_size = size
    for rank, batches in enumerate(shares(n, batch_size, world_size, "PARTIAL")):
        assert sum(map(len, batches)) == n * (rank + 1) // world_size - n * rank // world_size
        assert Sharding(n, batch_size, rank, world_size, "PARTIAL").samples == sum(map(len, batches))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert all(0 < len(batch) <= batch_size for batch in batches)


@given(sizes, st.sampled_from(["FILL", "PARTIAL", "DROP"]))
def test_ranks_differ_by_at_most_one_step(size: tuple[int, int, int], policy: LastBatchPolicy) -> None:
    steps = [len(batches) for batches in shares(*size, policy)]
    assert max(steps) - min(steps) <= (1 if policy == "PARTIAL" else 0)


@given(sizes)
def test_drop_leaves_out_the_last_partial_global_batch_only(size: tuple[int, int, int]) -> None:
    n, batch_size, world_size = size
    ranks = shares(*size, "DROP")
    places = np.concatenate([np.empty(0, np.int64)] + [batch for batches in ranks for batch in batches])
    assert np.array_equal(np.sort(places), np.arange(n - n % (batch_size * world_size)))
    assert all(len(batch) == batch_size for batches in ranks for batch in batches)


@given(sizes)
def test_fill_repeats_different_positions_and_no_more_than_full_batches_need(size: tuple[int, int, int]) -> None:
    n, batch_size, world_size = size
    steps = -(-n // (batch_size * world_size))
    found, counts = [], np.zeros(n, dtype=np.int64)
    for rank, batches in enumerate(shares(*size, "FILL")):
        sharding = Sharding(n, batch_size, rank, world_size, "FILL")
        assert [len(batch) for batch in batches] == [batch_size] * steps
        assert sharding.samples == steps * batch_size
        own = np.concatenate(batches)
        repeats = sharding.repeats(steps - 1)
        assert sum(map(sharding.repeats, range(steps))) == repeats
        real = own[: len(own) - repeats]
        assert np.array_equal(real, sharding.own(np.arange(len(real))))
        counts += np.bincount(own, minlength=n)
        found.append(real)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(n))
    assert counts.max() - counts.min() <= 1  # over all ranks


@given(sizes, st.sampled_from(["PARTIAL", "DROP"]))
def test_samples_have_numbers(size: tuple[int, int, int], policy: LastBatchPolicy) -> None:
    n, batch_size, world_size = size
    for rank, batches in enumerate(shares(*size, policy)):
        sharding = Sharding(n, batch_size, rank, world_size, policy)
        places = np.concatenate([np.empty(0, np.int64), *batches])
        assert np.array_equal(sharding.own(np.arange(sharding.samples)), places)


@given(sizes)
def test_a_step_of_all_ranks_is_one_slice_of_the_global_order(size: tuple[int, int, int]) -> None:
    """One rank with batches of B x W sees the same samples at each step as W ranks with batches of B."""
    n, batch_size, world_size = size
    ranks = shares(n, batch_size, world_size, "PARTIAL")
    (alone,) = shares(n, batch_size * world_size, 1, "PARTIAL")
    for step, together in enumerate(alone):
        pieces = [batches[step] for batches in ranks if step < len(batches)]
        assert np.array_equal(np.concatenate(pieces), together)


def test_the_drawing_in_the_docstring_is_correct() -> None:
    first, second = shares(22, 3, 2, "PARTIAL")
    assert [batch.tolist() for batch in first] == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19]]
    assert [batch.tolist() for batch in second] == [[3, 4, 5], [9, 10, 11], [15, 16, 17], [20, 21]]
    assert [len(batches) for batches in shares(22, 3, 2, "DROP")] == [3, 3]
    assert [batches[-1].tolist() for batches in shares(22, 3, 2, "FILL")] == [[18, 19, 0], [20, 21, 1]]


def of_dali(files: list[str], batch_size: int, rank: int, world_size: int, policy: LastBatchPolicy) -> list[list[int]]:
    """The places of each batch of one of DALI's own shards; padding repeats those at the end of a batch."""
    from nvidia.dali import Pipeline, fn
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy as Policy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipeline = Pipeline(batch_size=batch_size, num_threads=1, device_id=None)
    with pipeline:
        _, places = fn.readers.file(
            files=files,
            labels=list(range(len(files))),
            shard_id=rank,
            num_shards=world_size,
            pad_last_batch=True,
            stick_to_shard=True,
            name="Reader",
        )
        pipeline.set_outputs(places)
    pipeline.build()
    if policy == "DROP" and len(files) // world_size < batch_size:
        return []  # DALI's iterator refuses to start
    batches = DALIGenericIterator([pipeline], ["places"], reader_name="Reader", last_batch_policy=Policy[policy])
    return [batch[0]["places"].flatten().tolist() for batch in batches]


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
@pytest.mark.parametrize(
    ("n", "batch_size", "world_size"), [(23, 4, 3), (7, 16, 2), (24, 4, 3), (25, 4, 3), (26, 4, 3), (5, 1, 4)]
)
def test_counts_are_those_of_dali_s_file_reader(
    tmp_path: Path, n: int, batch_size: int, world_size: int, policy: LastBatchPolicy
) -> None:
    files = [tmp_path / f"{number:03}" for number in range(n)]
    for file in files:
        file.write_bytes(b"x")
    for rank, ours in enumerate(shares(n, batch_size, world_size, policy)):
        theirs = of_dali([str(file) for file in files], batch_size, rank, world_size, policy)
        assert list(map(len, ours)) == [len(batch) for batch in theirs if batch]  # DALI ends PARTIAL with empty batches
        if policy == "FILL":
            repeats = Sharding(n, batch_size, rank, world_size, policy).repeats(len(ours) - 1)
            assert len(set(theirs[-1])) == max(1, batch_size - repeats)


def order(epoch: int, *, n: int = 500, fingerprint: str = "f", seed: int = 0) -> list[int]:
    permutation = epoch_order(n, fingerprint=fingerprint, seed=seed, epoch=epoch, shuffle=True)
    assert permutation is not None
    return permutation(np.arange(n)).tolist()


def test_the_order_depends_only_on_split_seed_and_epoch() -> None:
    assert order(3) == order(3)
    assert sorted(order(3)) == list(range(500))
    different = [order(0), order(1), order(0, seed=1), order(1, seed=-1), order(0, fingerprint="g")]
    assert len({tuple(one) for one in different}) == len(different)


def test_the_order_never_changes() -> None:
    assert order(0, n=10) == [4, 0, 7, 5, 9, 8, 2, 1, 6, 3]


def test_without_shuffle_the_order_is_the_split_s_own() -> None:
    assert epoch_order(10, fingerprint="f", seed=0, epoch=5, shuffle=False) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "at least one row. Found: 0"),
        ({"batch_size": 0}, "batch_size of at least 1. Found: 0"),
        ({"world_size": 0}, "world_size of at least 1. Found: 0"),
        ({"rank": 2}, r"rank from 0 to 1 .*Found: 2"),
        ({"rank": -1}, r"rank from 0 to 1 .*Found: -1"),
        ({"last_batch_policy": "REPEAT"}, "'FILL', 'PARTIAL', 'DROP'.*Found: 'REPEAT'"),
    ],
)
def test_invalid_sharding_options_are_refused(change: dict[str, object], message: str) -> None:
    possible: dict[str, object] = {
        "rows": 10,
        "batch_size": 2,
        "rank": 0,
        "world_size": 2,
        "last_batch_policy": "DROP",
    }
    with pytest.raises(OptionError, match=message):
        Sharding(**(possible | change))  # type: ignore[arg-type]


def test_a_step_past_the_end_is_refused() -> None:
    with pytest.raises(IndexError, match=r"from 0 to 4\. Found: 5"):
        Sharding(10, 2, 0, 1, "PARTIAL").places(5)
