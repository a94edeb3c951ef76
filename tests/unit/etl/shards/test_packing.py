"""Which image goes into which shard: each into exactly one, for any number of images."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.shards.packing import Packing

ORDERS = st.lists(
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(0, 50)
    | st.sampled_from([-(1 << 63), -1, 0, (1 << 62), (1 << 63) - 1]),
    unique=True,
    min_size=1,
    max_size=60,
)


@given(ORDERS, st.integers(1, 7))
def test_the_join_finds_one_shard_for_each_number_and_fills_shards_in_order(numbers: list[int], maxcount: int) -> None:
    order = np.array(numbers, dtype=np.int64)
    packing = Packing.of(order, np.full(len(order), 512), maxsize=1 << 30, maxcount=maxcount)
    ranges = packing.ranges
    rows = list(zip(*(ranges[name] for name in ("bucket", "low", "high", "shard", "key")), strict=True))
    found: dict[int, list[int]] = {}
    for number in sorted(numbers):
        bucket = ((number ^ -(1 << 63)) & ((1 << 64) - 1)) >> packing.shift  # as Spark calculates it in `add_shards`
        (shard,) = [row[3] for row in rows if row[0] == bucket and row[1] <= number <= row[2]]
        found.setdefault(shard, []).append(number)
    assert list(found) == list(range(len(packing)))
    assert [len(found[shard]) for shard in found] == np.diff(packing.firsts).tolist()
    assert all(len(found[shard]) == maxcount for shard in range(len(packing) - 1))
    assert [one for shard in found for one in found[shard]] == sorted(numbers)
    assert len({key for *_, key in rows}) == len(packing)
