"""The distribution of the samples of a stream over ranks and workers."""

from hypothesis import given
from hypothesis import strategies as st


@given(*[st.integers(0, 60), st.integers(1, 7), st.integers(1, 5)])
def test_ranks_and_workers_share_all_rows_evenly(rows: int, world_size: int, workers: int) -> None:
    from loader.adapters.s3_folder import share  # it imports torch

    shares = [[share(rows, rank, world_size, one, workers) for one in range(workers)] for rank in range(world_size)]
    assert sorted(place for rank in shares for own in rank for place in own) == list(range(rows))
    sizes = [sum(map(len, rank)) for rank in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [len(share(rows, rank, world_size, 0, 1)) for rank in range(world_size)]
