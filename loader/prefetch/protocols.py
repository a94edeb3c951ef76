"""The protocols of engines and their streams, for any store."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from loader.prefetch.stats import Meter, Stats


class MissingSample(Protocol):
    """A sample that is left out, and why."""

    id: bytes
    position: int
    error: Exception | None


class Taken(Protocol):
    """A batch as it was read, number ``number`` of the epoch, whose last ``repeats`` samples repeat earlier ones. With
    it, all samples of the epoch below ``end`` but the ``late`` ones have arrived.
    """

    @property
    def number(self) -> int: ...
    @property
    def samples(self) -> Sequence[Any]: ...
    @property
    def repeats(self) -> int: ...
    @property
    def skipped(self) -> Sequence[MissingSample]: ...
    @property
    def end(self) -> int: ...
    @property
    def late(self) -> tuple[int, ...]: ...


class Stream(Protocol):
    """The batches of one epoch after another, for one consumer."""

    def take(self) -> Taken | None:
        """The next batch; None after the last one of an epoch. An error that ended the stream is raised instead of a
        batch.
        """
        ...

    def is_usable(self) -> bool:
        """Whether more may come: not in a forked child, where nothing is read."""
        ...

    def close(self) -> None:
        """Stop reading ahead, without waiting."""
        ...


class Engine(Protocol):
    """Reads a plan's batches ahead, from one store."""

    @property
    def meter(self) -> Meter:
        """The counters of all streams."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...

    def connect(self) -> None:
        """Connect. Raises `AccessError`, `UnreachableError`, `TableError`, and `ClosedError` after `close`."""
        ...

    def stream(self, epochs: Iterator[Iterator[Any]], /) -> Stream:
        """Begin to read epochs, each given as the steps of a plan. Streams may run in parallel; raises as
        `connect`.
        """
        ...

    def stats(self) -> Stats:
        """How reading performs."""
        ...

    def at_close(self, close: Callable[[], None], /) -> None:
        """Let `close` call this too. After `close`, call it now and raise `ClosedError`."""
        ...

    def close(self) -> None:
        """End all reads and connections; streams that are being read raise `ClosedError`. You may call it twice."""
        ...
