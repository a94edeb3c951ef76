"""What the engine asks of a store: images by their id."""

from typing import Any, Protocol, TypeAlias

Label: TypeAlias = int | bytes | None
"""A class number, or the bytes of a mask or an array."""


class Fetcher(Protocol):
    """Reads images by id; all of it is called on one event loop, but for properties and `wanted`."""

    @property
    def connections(self) -> int:
        """How many connections are open, over all nodes."""
        ...

    @property
    def most_in_flight(self) -> int | None:
        """How many reads at a time it is good for; None if more never slow it down."""
        ...

    async def connect(self) -> None:
        """Be ready to read. Raises `UnreachableError`, `AccessError` or `TableError`."""
        ...

    async def read(self, one: bytes, /) -> tuple[bytes, Label]:
        """The image that belongs to an id of 16 bytes, and its label where labels are wanted.

        Raises `UnreachableError`, after which it may be tried again, `MissingImageError`, `AccessError`, and
        `TableError`, also for an image without a label.
        """
        ...

    async def metadata(self, one: bytes, /) -> tuple[Any, ...]:
        """What the metadata columns that are wanted hold for an id. Raises as `read` does."""
        ...

    def wanted(self, one: bytes, /) -> str:
        """The image with its table and hosts, as messages name it."""
        ...

    async def close(self) -> None:
        """Let go of all connections; also after a failed or cancelled `connect`."""
        ...
