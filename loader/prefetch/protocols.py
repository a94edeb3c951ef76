"""What a source asks of an engine and of its streams, whatever store they read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from loader.prefetch.stats import Meter, Stats


class MissingSample(Protocol):
    """A sample that is done without, and why."""

    id: bytes
    position: int
    error: Exception | None


class Taken(Protocol):
    """A whole batch as it was read: the epoch's number ``number``, whose last ``repeats`` samples repeat ones before.

    With it, all samples of the epoch below ``end`` but those that are ``late`` have come.
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
        """The next batch; None behind the last of an epoch. Raises what ended the stream, in the next one's place."""
        ...

    def is_usable(self) -> bool:
        """Whether there may be more to take: not in a forked child, where nobody reads."""
        ...

    def close(self) -> None:
        """Stop reading ahead; nothing is waited for."""
        ...


class Engine(Protocol):
    """How bytes come: what reads a plan's batches ahead of their use, from one store."""

    @property
    def meter(self) -> Meter:
        """The counts of all streams."""
        ...

    def connect(self) -> None:
        """Be ready to read. Raises `AccessError`, `UnreachableError`, `TableError`, and `ClosedError` after `close`."""
        ...

    def stream(self, epochs: Iterator[Iterator[Any]], /) -> Stream:
        """Begin to read epochs, each told by the steps of a plan. Streams may run side by side; raises as `connect`."""
        ...

    def stats(self) -> Stats:
        """How it goes."""
        ...

    def at_close(self, close: Callable[[], None], /) -> None:
        """Have this called by `close`, or now if that is over, which raises `ClosedError`."""
        ...

    def close(self) -> None:
        """Give up all reads and connections; streams that are being read get `ClosedError`. Safe to call twice."""
        ...
