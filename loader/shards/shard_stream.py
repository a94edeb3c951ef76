"""One pass over epochs of shards: threads read pieces ahead, and batches are made of them, in the order of the plan.

::

    steps of the schedule --plan--> pieces that are wanted --threads--> pieces in memory --take()--> consumer
            ^                                                                  |
            +------------------- room in the budget of bytes <-----------------+

A piece stays, if there is room, until all its samples in the batches planned so far are taken; see `held_pieces`.
Everything but reading runs in the consumer's thread, when it takes a batch.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from loader.errors import ShardError, closed
from loader.prefetch.batcher import Filled
from loader.prefetch.runtime import WAKE_SECONDS
from loader.shards.held_pieces import HeldPieces, Need
from loader.shards.pieces import Loaded, PieceReader
from loader.shards.shard_order import ShardStep

_MOST_PLANNED = 4096  # batches
_ZSTD, _MAGIC = ".zst", b"\x28\xb5\x2f\xfd"
_PART_BYTES = 1 << 20  # are inflated at a time, so that a file that inflates to far more is refused early


class ShardSample(NamedTuple):
    """One sample: its number in the dataset, its shard and key, and its files by extension."""

    number: int
    shard: str
    key: str
    members: dict[str, bytes]


class ShardStream:
    """The batches of one epoch after another, for one consumer."""

    def __init__(self, reader: PieceReader, epochs: Iterator[Iterator[ShardStep]], *, budget: int) -> None:
        self._plan, self._reader = _planned(epochs), reader
        self._pieces = HeldPieces(reader, budget=budget)
        self._process = os.getpid()
        self._coming: ShardStep | None = None
        self._is_planned = False  # all of it
        self._steps: deque[ShardStep | None] = deque()
        self._ends = 0
        self._has_ended = False

    def take(self) -> Filled | None:
        """The next batch; None behind the last of an epoch. Raises what reading a piece raises, and `ClosedError`."""
        if not self.is_usable():
            raise closed()
        self._advance()
        step = self._steps.popleft()
        if step is None:
            self._ends -= 1
            return None
        try:
            samples = self._samples(step)
        except BaseException:
            self.close()
            raise
        self._advance()
        return Filled(step.number, samples, step.repeats)

    def is_usable(self) -> bool:
        """Whether more may come: not in a forked child, where nothing is read."""
        return not self._has_ended and self._process == os.getpid() and not self._reader.is_closed

    def close(self) -> None:
        """Stop reading ahead, without waiting."""
        self._has_ended = True
        self._pieces.close()

    def _advance(self) -> None:
        """Plan as many batches as there is room for, and in any case the next one."""
        if self._steps and (step := self._steps[0]) is not None:
            self._begin(self._pieces.missing(step.pieces), Need.AHEAD)
        while not self._is_planned and len(self._steps) < _MOST_PLANNED and self._ends < 2:
            if self._coming is None:
                try:
                    step = next(self._plan)
                except StopIteration:
                    self._is_planned = True
                    return
                if step is None:
                    self._steps.append(None)
                    self._ends += 1
                    continue
                self._coming = step
            need = Need.AHEAD if self._steps else Need.NEXT
            opened = self._coming.opened
            missing = self._pieces.missing(one.piece for one in opened)
            has_room = not missing or self._pieces.make_room(missing, need, but={one.piece for one in opened})
            if not has_room and need is Need.AHEAD:
                return
            for one in opened:
                self._pieces.want(one.piece, one.insides, part=one.part)
            self._begin(self._pieces.missing(one.piece for one in opened), need)
            self._steps.append(self._coming)
            self._coming = None

    def _begin(self, pieces: Iterable[int], need: Need) -> None:
        """Begin to read missing pieces as there is room for them; the others are read when they are due."""
        for piece in pieces:
            if not self._pieces.begin(piece, need):
                return

    def _samples(self, step: ShardStep) -> list[ShardSample]:
        wanted = list(zip(step.pieces, step.insides, strict=True))
        found: list[ShardSample] = []
        for (piece, inside), (key, files) in zip(wanted, self._pieces.take(wanted, self._wait), strict=True):
            where = self._reader.locations[piece]
            members = self._inflated(files, where.shard, key) if any(map(_is_packed, files)) else files
            found.append(ShardSample(where.first + inside, where.shard, key, members))
        return found

    def _inflated(self, files: dict[str, bytes], shard: str, key: str) -> dict[str, bytes]:
        """Files of a sample without compression. Raises `ShardError`."""
        found: dict[str, bytes] = {}
        for name, data in files.items():
            plain = name.removesuffix(_ZSTD)
            try:
                if plain in found:
                    raise ValueError(f"another {plain} in the sample")
                found[plain] = inflate(data, self._reserve) if _is_packed(name) else data
            except (ValueError, OSError) as error:
                raise ShardError(f"Cannot inflate {key}.{name} in {shard}. Found: {error}") from None
        return found

    def _reserve(self, size: int) -> None:
        if not self._pieces.reserve(size, self._wait):
            raise ValueError(
                f"the inflated batch exceeds the {self._pieces.most_inflated:,} bytes that memory_budget leaves in "
                "this process. If you trust the shards, use a larger memory_budget or smaller batches"
            )

    def _wait(self, future: "Future[Loaded]") -> Loaded:
        runtime = self._reader.runtime
        begun = runtime.clock()
        with self._reader.meter.waiting():
            while not runtime.has_ended(future, WAKE_SECONDS):
                if not self.is_usable():
                    raise closed()
                self._reader.check_answers(since=begun)
        return future.result()


def inflate(data: bytes, reserve: Callable[[int], None]) -> bytes:
    """A zstd file without compression; ``reserve`` is called for each part of some bytes and may raise. Raises
    ValueError and OSError for damaged data.
    """
    import pyarrow as pa

    parts = []
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        # `read` of pyarrow 26.0 does not free its buffer when the data is damaged.
        buffer = memoryview(bytearray(_PART_BYTES))
        while size := stream.readinto(buffer):
            reserve(size)
            parts.append(bytes(buffer[:size]))
    if _MAGIC not in data:  # of nothing, and of skipped data, nothing is made without an error
        raise ValueError("no zstd data")
    return b"".join(parts)


def _is_packed(name: str) -> bool:
    return name.endswith(_ZSTD)


def _planned(epochs: Iterator[Iterator[ShardStep]]) -> Iterator[ShardStep | None]:
    for steps in epochs:
        yield from steps
        yield None
