"""The protocol of a store that gives images by their id."""

from typing import Any, Protocol, TypeAlias

Label: TypeAlias = int | bytes | None  # a class number, or the bytes of a mask or an array


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

    async def read(self, one: bytes, /) -> tuple[bytes, Label]:
        """The image with an id of 16 bytes, and its label if labels are requested. Raises `UnreachableError`, after
        which the read may be repeated, `MissingImageError`, `AccessError`, and `TableError`, also for an image without
        a label.
        """
        ...

    async def metadata(self, one: bytes, /) -> tuple[Any, ...]:
        """The values of the requested metadata columns for an id. Raises as `read` does."""
        ...

    def wanted(self, one: bytes, /) -> str:
        """The image with its table and hosts, as messages name it."""
        ...

    async def close(self) -> None:
        """Close all connections, also after a failed or cancelled `connect`."""
        ...
