"""An output folder whose files are written aside, until a manifest publishes them."""

import re
import secrets
from collections.abc import Callable, Collection
from typing import Self

from etl.errors import OutputExistsError
from formats.stores.storage import Storage

_NAME = re.compile(r"_attempt-[0-9a-f]{12}")


class Attempt:
    """The files of one attempt, in a separate subfolder. This context manager removes them at the end.

    The leftovers of a killed attempt, and the files of a running one, are recognized by their names. The next
    successful attempt that may replace the output removes them.
    """

    def __init__(self, address: str, *, what: str) -> None:
        """Prepare an attempt. Messages call its output ``what``. Raises `OutputExistsError` for a file."""
        self._storage, self._what = Storage(address), what
        self._attempt = f"_attempt-{secrets.token_hex(6)}"
        try:
            self._is_new = not self._storage.exists()
            is_file = not self._is_new and not self._storage.is_folder()
            names = [] if is_file else self._storage.names()
        except NotADirectoryError:
            is_file = True
        if is_file:
            raise OutputExistsError(f"Wanted a folder for the {what} at {address}. Found: a file. Use another path.")
        self._stale = [name for name in names if _NAME.fullmatch(name)]
        self._there = [name for name in names if name not in self._stale]
        """The files of others in the folder."""

    def _check_free(
        self, *, old: str, manifests: Collection[str], is_ours: Callable[[str], bool], overwrite: bool, otherwise: str
    ) -> None:
        """Raise `OutputExistsError` unless the folder is empty or ``overwrite`` may replace its ``old`` output."""
        place = self._storage.address
        if strangers := [name for name in self._there if not is_ours(name)]:
            raise OutputExistsError(
                f"Wanted an empty or new folder for the {self._what}, or an old {old}, at {place}. "
                f"Found: {', '.join(strangers[:3])} in it. Use another folder."
            )
        if (self._there or self._stale) and not overwrite:
            state = "exists already" if set(manifests) & set(self._there) else "was left half-written"
            raise OutputExistsError(
                f"Wanted a new folder for the {self._what} at {place}. Found: a {old} that {state}. "
                f"Set --overwrite to replace it, or {otherwise}."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._storage.remove(self._attempt)
        if self._is_new and not self._storage.names():
            self._storage.remove("")

    def aside(self, name: str) -> str:
        """An address for Spark in this attempt."""
        return self._storage.url(f"{self._attempt}/{name}")

    def _remove_stale(self) -> None:
        for folder in self._stale:
            self._storage.remove(folder)
