"""The order of an epoch over shards, and each rank's and worker's part of it. Pure arithmetic.

A dataset consists of pieces of some megabytes, each a few samples that follow each other in a shard. An epoch puts all
pieces of all shards into a new order. The samples in that order, its places, are distributed to ranks as contiguous
parts, and within a rank to ``streams``: batch i comes from stream i mod streams. In each stream, ``mix`` samples that
follow each other, of several pieces, are shuffled again. With 2 ranks and 3 streams::

    pieces in the epoch's order   | p7   | p2   | p9   | p0   | p4   | p1   | ...
    rank 0                        |---------- its part ------------|
    its streams                   | 0 0 0 0 0 | 1 1 1 1 1 | 2 2 2 2 |
    its batches                     0 3 6       1 4 7       2 5 8            each mixed from several pieces

So ranks read different pieces, and so do k workers that take every k-th batch, if k divides the number of streams. The
order is the same for any number of workers. Only pieces at the ends of parts are read twice.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.permutation import Permutation
from loader.order.permutation import LastBatchPolicy, Sharding

# Places of an epoch's order, as (first, last + 1), in the order in which they are distributed.
Ranges: TypeAlias = tuple[tuple[int, int], ...]
Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deal:
    """How the remaining places of an epoch are distributed to ranks and streams."""

    left: Ranges
    batch_size: int
    world_size: int
    last_batch_policy: LastBatchPolicy
    streams: int
    mix: int

    @property
    def rows(self) -> int:
        """The places that are left."""
        return sum(stop - start for start, stop in self.left)

    def sharding(self, rank: int) -> Sharding:
        """How many samples and batches a rank has. Raises `OptionError`."""
        return Sharding(self.rows, self.batch_size, rank, self.world_size, self.last_batch_policy)

    def stretch(self, rank: int) -> tuple[int, int]:
        """The first of a rank's samples among the remaining ones, and their number, each counted once."""
        whole, rest = divmod(self.rows, self.batch_size * self.world_size)
        own = whole * self.batch_size
        if self.last_batch_policy == "DROP":
            return rank * own, own
        before = rest * rank // self.world_size
        return rank * own + before, own + rest * (rank + 1) // self.world_size - before

    def stream(self, rank: int, stream: int) -> tuple[int, int]:
        """The first of a stream's samples among the remaining ones, and their number."""
        first, samples = self.stretch(rank)
        return first + self._before(samples, stream), self._before(samples, stream + 1) - self._before(samples, stream)

    def _before(self, samples: int, stream: int) -> int:
        """The samples of a rank's first streams."""
        batches = -(-samples // self.batch_size)
        whole, rest = divmod(batches, self.streams)
        found = (whole * stream + min(stream, rest)) * self.batch_size
        has_last = batches > 0 and stream > (batches - 1) % self.streams
        return found - (batches * self.batch_size - samples if has_last else 0)

    def windows(self, stream: int, samples: int) -> Iterator[tuple[int, int]]:
        """The parts of a stream that are mixed: (first, last + 1)."""
        # The first part is shorter, with another length in each stream, so that streams do not all need new pieces at
        # once.
        start = 0
        stop = -(-self.mix * (stream + 1) // self.streams)
        while start < samples:
            yield start, min(stop, samples)
            start, stop = stop, stop + self.mix

    def places(self, indices: Numbers) -> Numbers:
        """The places of samples by their number among the remaining ones."""
        starts = np.array([start for start, _ in self.left], dtype=np.int64)
        ends = np.cumsum([stop - start for start, stop in self.left])
        found = np.searchsorted(ends, indices, side="right")
        return np.asarray(indices - np.concatenate([[0], ends[:-1]])[found] + starts[found], dtype=np.int64)

    def after(self, steps: int, order: "EpochOrder") -> Ranges:
        """What is left once all ranks have delivered this many batches."""
        kept: list[Numbers] = []
        for rank in range(self.world_size):
            for stream in range(self.streams):
                first, samples = self.stream(rank, stream)
                done = min(len(range(stream, steps, self.streams)) * self.batch_size, samples)
                for start, stop in self.windows(stream, samples):
                    if stop > done:
                        mixed = order.mixed(self.places(np.arange(first + start, first + stop, dtype=np.int64)))
                        kept.append(np.sort(mixed[max(0, done - start) :]))
        if self.last_batch_policy == "DROP":
            kept.append(self.places(np.arange(self.world_size * self.stretch(0)[1], self.rows, dtype=np.int64)))
        return ranges_of(np.concatenate(kept)) if kept else ()


@dataclass(frozen=True)
class EpochOrder:
    """The order of one epoch over pieces of ``samples`` samples each; it depends on fingerprint, seed and epoch alone.
    Without ``shuffle`` it is that of the shards.
    """

    samples: Numbers
    fingerprint: str
    seed: int
    epoch: int
    shuffle: bool

    @cached_property
    def pieces(self) -> Numbers:
        """The pieces in the epoch's order."""
        numbers = np.arange(len(self.samples), dtype=np.int64)
        return self._shuffled(numbers, "pieces") if self.shuffle else numbers

    @property
    def rows(self) -> int:
        """The samples of the epoch."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> Numbers:
        return np.concatenate([[0], np.cumsum(self.samples[self.pieces])]).astype(np.int64)

    def located(self, places: Numbers) -> tuple[Numbers, Numbers]:
        """The piece at each place, and which of its samples it is."""
        found = np.searchsorted(self._starts, places, side="right") - 1
        return self.pieces[found], places - self._starts[found]

    def mixed(self, places: Numbers) -> Numbers:
        """Places of one window in their new order."""
        return self._shuffled(places, f"window {places[0]}") if self.shuffle and len(places) else places

    def _shuffled(self, values: Numbers, what: str) -> Numbers:
        key = f"shard order 1\0{self.fingerprint}\0{self.seed}\0{self.epoch}\0{what}".encode()
        return np.asarray(values[Permutation(len(values), key)(np.arange(len(values), dtype=np.int64))])


def ranges_of(places: Numbers) -> Ranges:
    """Places as ranges, in their order; neighbours become one range."""
    if not len(places):
        return ()
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    starts = places[np.concatenate([[0], breaks])]
    stops = places[np.concatenate([breaks - 1, [len(places) - 1]])] + 1
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


class Opened(NamedTuple):
    """A piece that is used from a batch on: which of its samples are used, and how many were distributed with these."""

    piece: int
    insides: Sequence[int]
    part: int


@dataclass(frozen=True, slots=True)
class ShardStep:
    """One batch to be read: the piece of each sample, and its number in the piece."""

    number: int  # counts the epoch's batches from 0, the same on all ranks
    pieces: Sequence[int]
    insides: Sequence[int]
    # Pieces that are used from this batch on. A reader may drop a piece when these samples were taken; when all samples
    # of a piece were distributed, it is not needed again in this epoch, except for the repeated samples.
    opened: Sequence[Opened]
    repeats: int  # so many of the last samples repeat earlier ones


def steps(deal: Deal, order: EpochOrder, rank: int, *, first: int, begin: int, every: int = 1) -> Iterator[ShardStep]:
    """A rank's batches ``begin``, ``begin + every``, ... of a deal; their numbers count from ``first`` on."""
    sharding = deal.sharding(rank)
    size, wanted = deal.batch_size, range(begin, sharding.steps, every)
    feeds = [_feed(deal, order, rank, stream, wanted) for stream in range(deal.streams)]
    held: list[tuple[list[int], list[int]]] = [([], []) for _ in feeds]
    _, fresh = deal.stretch(rank)
    for step in wanted:
        stream = step % deal.streams
        count = max(0, min(size, fresh - step * size))
        pieces, insides = held[stream]
        opened: list[Opened] = []
        while len(pieces) < count:
            more_pieces, more_insides, uses = next(feeds[stream])
            pieces += more_pieces
            insides += more_insides
            opened += uses
        taken, at = pieces[:count], insides[:count]
        del pieces[:count], insides[:count]
        lacking = size - count if deal.last_batch_policy == "FILL" else 0
        if lacking:
            again = _repeated(deal, order, rank, dict.fromkeys(zip(taken, at, strict=True)), lacking)
            taken, at = [*taken, *(piece for piece, _ in again)], [*at, *(inside for _, inside in again)]
            opened += [Opened(piece, [inside], 0) for piece, inside in again]
        yield ShardStep(first + step, taken, at, opened, lacking)


def _feed(
    deal: Deal, order: EpochOrder, rank: int, stream: int, wanted: range
) -> Iterator[tuple[list[int], list[int], list[Opened]]]:
    """The samples of a stream, window by window, that are in the wanted batches."""
    first, samples = deal.stream(rank, stream)
    for start, stop in deal.windows(stream, samples):
        numbers = np.arange(start, stop, dtype=np.int64)
        batches = stream + numbers // deal.batch_size * deal.streams
        is_wanted = (batches >= wanted.start) & ((batches - wanted.start) % wanted.step == 0)
        if not is_wanted.any():
            continue
        dealt, insides = order.located(order.mixed(deal.places(first + numbers)))
        pieces, insides = dealt[is_wanted], insides[is_wanted]
        found, parts = np.unique(dealt, return_counts=True)
        sorted_by_piece = np.argsort(pieces, kind="stable")
        ends = np.searchsorted(pieces[sorted_by_piece], found, side="right")
        grouped = np.split(insides[sorted_by_piece], ends[:-1])
        opened = [
            Opened(piece, some.tolist(), part)
            for piece, some, part in zip(found.tolist(), grouped, parts.tolist(), strict=True)
            if len(some)
        ]
        yield pieces.tolist(), insides.tolist(), opened


def _repeated(
    deal: Deal, order: EpochOrder, rank: int, own: Collection[tuple[int, int]], lacking: int
) -> list[tuple[int, int]]:
    """The samples, piece and number in it, that fill a rank's last batch: different ones, as far as there are any."""
    # They are the first ones of the rank's own part, without those of the batch, which then follow. A rank without a
    # part takes them from all that is left, from another place than other ranks. If that is the rest of an epoch and
    # has too few, samples of the whole epoch come before any is repeated twice.
    first, samples = deal.stretch(rank)
    if samples:
        numbers = first + np.arange(min(samples, lacking + len(own)), dtype=np.int64)
    else:
        numbers = (np.arange(min(deal.rows, lacking), dtype=np.int64) + rank * deal.batch_size) % deal.rows
    pieces, insides = order.located(deal.places(numbers))
    found = [*zip(pieces.tolist(), insides.tolist(), strict=True)]
    others = [one for one in found if one not in own]
    if len(others) < lacking and deal.rows < order.rows:
        places = np.arange(min(order.rows, lacking + len(own) + len(others)), dtype=np.int64)
        pieces, insides = order.located((places + rank * deal.batch_size) % order.rows)
        more = dict.fromkeys([*others, *zip(pieces.tolist(), insides.tolist(), strict=True)])
        others = [one for one in more if one not in own]
    return [*islice(cycle([*others, *own] if len(others) < lacking else others), lacking)]
