"""The protocol of a store that gives images by their id."""

from typing import Any, Protocol, TypeAlias

Label: TypeAlias = int | bytes | None  # a class number, or the bytes of a mask or an array
Row: TypeAlias = tuple[bytes, Label, tuple[Any, ...]]  # an image, its label, and values of metadata columns


class Fetcher(Protocol):
    """Reads images by id. Everything but properties and `wanted` is called on one event loop."""

    @property
    def connections(self) -> int:
        """The number of open connections, over all nodes."""
        ...

    @property
    def most_in_flight(self) -> int | None:
        """The most reads at a time that make sense; None if more are never slower."""
        ...

    async def connect(self) -> None:
        """Connect. Raises `UnreachableError`, `AccessError` or `TableError`."""
        ...

    async def read(self, one: bytes, position: int, /) -> Row:
        """The image with an id of 16 bytes, at a position of the split, its label if labels are requested, and the
        values of the requested metadata columns. Raises `UnreachableError`, after which the read may be repeated,
        `MissingImageError`, `ChangedImageError`, `AccessError`, and `TableError`, also for an image without a label.
        """
        ...

    def wanted(self, one: bytes, position: int, /) -> str:
        """The image at a position, with its table and hosts, as messages name it."""
        ...

    async def close(self) -> None:
        """Close all connections, also after a failed or cancelled `connect`."""
        ...
