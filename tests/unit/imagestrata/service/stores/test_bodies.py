"""Blocks of transfers: large for a few of them, small for many."""

from contextlib import ExitStack

from imagestrata.service.stores.bodies import Blocks

KIB, MIB = 1 << 10, 1 << 20


def test_many_transfers_share_the_memory_that_a_few_may_use() -> None:
    blocks = Blocks(MIB, together=16 * MIB)
    sizes = {}
    with ExitStack() as transfers:
        for count in range(1001):
            sizes[count] = blocks.size
            transfers.enter_context(blocks.shared())
    assert [sizes[count] for count in (0, 16, 64, 256, 1000)] == [MIB, MIB, 256 * KIB, 64 * KIB, 64 * KIB]
    assert blocks.size == MIB
