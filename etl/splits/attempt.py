"""A folder in the making, whose files lie aside until a manifest makes them what the folder holds."""

import re
import secrets
from collections.abc import Callable, Collection
from typing import Self

from etl.errors import OutputExistsError
from formats.stores.storage import Storage

_NAME = re.compile(r"_attempt-[0-9a-f]{12}")


class Attempt:
    """The files of one attempt, below a folder of its own; a context manager that leaves nothing of it behind.

    What a killed attempt leaves, or one that is under way, is known by its name. It goes with the next one that may
    take the place over and ends well.
    """

    def __init__(self, address: str, *, what: str) -> None:
        """``what`` is to be put there, for messages. Raises `OutputExistsError` where a file is."""
        self._storage, self._what = Storage(address), what
        self._attempt = f"_attempt-{secrets.token_hex(6)}"
        try:
            self._is_new = not self._storage.exists()
            is_file = not self._is_new and not self._storage.is_folder()
            names = [] if is_file else self._storage.names()
        except NotADirectoryError:
            is_file = True
        if is_file:
            raise OutputExistsError(f"Wanted a folder for the {what} at {address}. Found: a file. Name another place.")
        self._stale = [name for name in names if _NAME.fullmatch(name)]
        self._there = [name for name in names if name not in self._stale]
        """What others have put there."""

    def _check_free(
        self, *, old: str, manifests: Collection[str], is_ours: Callable[[str], bool], overwrite: bool, otherwise: str
    ) -> None:
        """Raise `OutputExistsError` unless nothing is there, or an ``old`` output that ``overwrite`` may replace."""
        place = self._storage.address
        if strangers := [name for name in self._there if not is_ours(name)]:
            raise OutputExistsError(
                f"Wanted an empty or a new folder for the {self._what}, or an old {old}, at {place}. "
                f"Found: {', '.join(strangers[:3])} in it. Name another folder."
            )
        if (self._there or self._stale) and not overwrite:
            state = "is there already" if set(manifests) & set(self._there) else "was left half-written"
            raise OutputExistsError(
                f"Wanted a new folder for the {self._what} at {place}. Found: a {old} that {state}. "
                f"Give --overwrite to replace it, or {otherwise}."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._storage.remove(self._attempt)
        if self._is_new and not self._storage.names():
            self._storage.remove("")

    def aside(self, name: str) -> str:
        """An address for Spark, inside this attempt."""
        return self._storage.url(f"{self._attempt}/{name}")

    def _remove_stale(self) -> None:
        for folder in self._stale:
            self._storage.remove(folder)
