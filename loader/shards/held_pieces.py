"""The pieces of shards that one stream has in memory or on their way, within a budget of bytes that is never exceeded.

A piece takes its whole buffer. Decompressed files of the last batch count, too. When room is needed, it is made in this
order:

1. pieces from which no planned batch takes a sample any more are dropped; 2. of pieces of which few samples are still
to be taken, these are kept and the rest is dropped; 3. only for the batch that is due: pieces are dropped that must be
read again when their samples are due.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum

from loader.shards.pieces import Loaded, PieceReader

log = logging.getLogger(__name__)

Wait = Callable[["Future[Loaded]"], Loaded]
Files = dict[str, bytes]
_FEW = 0.5  # the share of a piece's samples that are still wanted: if it is larger, keeping only them saves too little


class Need(IntEnum):
    """How urgent room is."""

    AHEAD = 0  # for batches that are not due yet: nothing is dropped that must be read again
    NEXT = 1  # for the next batch: parts of pieces may be dropped that a later batch of the stream needs
    NOW = 2  # for the batch that is due: everything else may be dropped


@dataclass(slots=True)
class _Held:
    """A piece of which samples are or were wanted: complete in ``future``, or some of its ``samples``, or both."""

    future: "Future[Loaded] | None" = None
    samples: dict[int, tuple[str, Files]] = field(default_factory=dict)
    bytes: int = 0
    wanted: Counter[int] = field(default_factory=Counter)
    parts: int = 0
    was_read: bool = False

    @property
    def is_here(self) -> bool:
        return self.future is not None or self.samples.keys() >= self.wanted.keys()

    @property
    def loaded(self) -> Loaded | None:
        """The complete piece, if it has arrived without an error."""
        if self.future is None or not self.future.done() or self.future.cancelled() or self.future.exception():
            return None
        return self.future.result()


class HeldPieces:
    """The pieces of one stream; for the consumer's thread alone."""

    def __init__(self, reader: PieceReader, *, budget: int) -> None:
        """``budget`` must hold the largest piece."""
        self._reader, self._budget = reader, budget
        largest = max((reader.cost(piece) for piece in range(len(reader.locations))), default=0)
        self._margin = max(0, min(largest // 2, budget - largest))  # for samples that are taken out of a piece
        # The most bytes of inflated files in a batch: the budget also holds a piece.
        self.most_inflated = budget - largest
        self._inflated = 0
        self._held: dict[int, _Held] = {}
        self._idle: OrderedDict[int, _Held] = OrderedDict()  # pieces of which nothing is wanted, by their last use
        self._bytes = 0

    def missing(self, pieces: Iterable[int]) -> list[int]:
        """Those of some pieces, each once, that are neither here nor on their way."""
        return [
            piece
            for piece in dict.fromkeys(pieces)
            if piece not in self._idle and not (piece in self._held and self._held[piece].is_here)
        ]

    def want(self, piece: int, insides: Sequence[int], *, part: int) -> None:
        """Keep some samples of a piece until they are taken; ``part`` of its samples were distributed with them."""
        if piece not in self._held:
            self._held[piece] = self._idle.pop(piece) if piece in self._idle else _Held()
        held = self._held[piece]
        if held.parts >= self._reader.locations[piece].samples:  # the next epoch begins with it
            held.parts, held.was_read = 0, False
        held.wanted.update(insides)
        held.parts += part

    def make_room(self, pieces: Collection[int], need: Need, *, but: Collection[int] = (), more: int = 0) -> bool:
        """Make room for some pieces that are missing, and ``more`` bytes; whether there is room now. Others ``but`` for
        these may go.
        """
        size = sum(map(self._reader.cost, pieces)) + more
        budget = self._budget - (self._margin if need < Need.NOW else 0)
        for piece in [piece for piece in self._idle if piece not in but]:
            if self._bytes + size <= budget:
                return True
            self._forget(self._idle.pop(piece))
        for piece, held in self._held.items():
            if self._bytes + size <= budget:
                return True
            self._keep_few(piece, held, need)
        return self._bytes + size <= budget

    def begin(self, piece: int, need: Need) -> bool:
        """Begin to read a piece that is missing, if there is room for it."""
        if not self.make_room([piece], need):
            return False
        held = self._held[piece]
        self._reader.meter.rereads += held.was_read
        held.was_read = True
        held.future = self._reader.read(piece, room=self._budget - self._bytes)
        self._count(held, held.bytes + self._reader.cost(piece))
        return True

    def take(self, samples: Sequence[tuple[int, int]], wait: Wait) -> list[tuple[str, Files]]:
        """Samples, (piece, number in it) each, all of which were wanted: their keys and files. ``wait`` gives what a
        future of the reader gives. Raises what reading raises.
        """
        self._count_inflated(0)
        places: dict[int, list[int]] = {}
        for place, (piece, _) in enumerate(samples):
            places.setdefault(piece, []).append(place)
        missing = self.missing(places)
        found: dict[int, tuple[str, Files]] = {}
        for piece in [*(piece for piece in places if piece not in missing), *missing]:
            while missing and self.begin(missing[0], Need.NEXT):
                missing.pop(0)  # it follows those that are here, and those that were begun before
            held = self._held[piece]
            if not held.is_here:
                self._make_way(piece, wait)
                missing.remove(piece)
            for place in places[piece]:
                found[place] = self._taken(held, samples[place][1], wait)
            if not held.wanted:
                self._held.pop(piece)
                if held.future is not None:
                    self._idle[piece] = held
        return [found[place] for place in range(len(samples))]

    def reserve(self, size: int, wait: Wait) -> bool:
        """Count inflated files of the batch that was taken, until the next one is; whether the budget holds them."""
        if self._inflated + size > self.most_inflated:
            return False
        for other in [] if self.make_room((), Need.NOW, more=size) else [*reversed(self._held.values())]:
            if self._bytes + size <= self._budget:
                break
            if other.future is not None and not other.future.done():
                wait(other.future)
            self._forget(other)
        self._count_inflated(self._inflated + size)
        return True

    def _count_inflated(self, size: int) -> None:
        self._bytes += size - self._inflated
        self._reader.meter.held_bytes += size - self._inflated
        self._inflated = size
        self._reader.trim(self._budget - self._bytes)

    def close(self) -> None:
        """Give up all of it; nothing is waited for."""
        for held in (*self._held.values(), *self._idle.values()):
            if held.future is not None:
                held.future.cancel()
            self._count(held, 0)
        self._held.clear()
        self._idle.clear()
        self._count_inflated(0)

    def _make_way(self, piece: int, wait: Wait) -> None:
        """Begin to read the piece that is needed now, whatever has to go for it."""
        for other in [*reversed(self._held.values())]:  # those that arrived last are likely to be needed last
            if self.begin(piece, Need.NOW):
                return
            if other.future is not None and not other.future.done():
                wait(other.future)
            if other.bytes:
                self._reader.warn_of_budget(self._budget)
                self._forget(other)
        assert self.begin(piece, Need.NOW), "the budget holds the largest piece"

    def _taken(self, held: _Held, inside: int, wait: Wait) -> tuple[str, Files]:
        held.wanted[inside] -= 1
        is_last = not held.wanted[inside]
        if is_last:
            del held.wanted[inside]
        if inside not in held.samples:
            assert held.future is not None
            loaded = held.future.result() if held.future.done() else wait(held.future)
            return _sample(loaded, inside)
        found = held.samples[inside]
        if is_last:
            del held.samples[inside]
            self._count(held, held.bytes - _size(found[1]))
        return found

    def _keep_few(self, piece: int, held: _Held, need: Need) -> None:
        """Keep only the samples of a piece that are wanted, if they are few and there is room for them beside it."""
        samples = self._reader.locations[piece].samples
        if len(held.wanted) > _FEW * samples or (need < Need.NEXT and held.parts < samples):
            return
        if (loaded := held.loaded) is None:
            return
        more = held.wanted.keys() - held.samples.keys()
        size = sum(map(loaded.contents.size, more))
        if self._bytes + size > self._budget:
            return
        self._count(held, held.bytes + size)
        held.samples.update((inside, _sample(loaded, inside)) for inside in more)
        held.future = None
        self._count(held, held.bytes - self._reader.cost(piece))
        self._reader.forget(loaded, room=self._budget - self._bytes)

    def _forget(self, held: _Held) -> None:
        """Give back what a piece takes; what is wanted of it stays wanted."""
        loaded = held.loaded
        if held.future is not None:
            held.future.cancel()
        held.future = None
        held.samples.clear()
        self._count(held, 0)
        if loaded is not None:
            self._reader.forget(loaded, room=self._budget - self._bytes)

    def _count(self, held: _Held, size: int) -> None:
        self._bytes += size - held.bytes
        self._reader.meter.held_bytes += size - held.bytes
        held.bytes = size
        self._reader.trim(self._budget - self._bytes)


def _sample(loaded: Loaded, inside: int) -> tuple[str, Files]:
    return loaded.contents.keys[inside], loaded.contents.files(inside, loaded.data)


def _size(files: Files) -> int:
    return sum(map(len, files.values()))
