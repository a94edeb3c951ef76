"""Names of datasets at a service: all of them, and those that a new name may have been meant for."""

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import quote

from imagestrata.hub.errors import DatasetError
from imagestrata.hub.http import Connection

_NEAR, _ALIKE = 3, 0.8
"""Two names may be one that is misspelt if so many letters differ at most, and so great a share of them is the same."""


def listed(connection: Connection) -> Iterator[dict[str, Any]]:
    """All datasets of a service as it describes them, by name."""
    cursor: str | None = ""
    while cursor is not None:
        address = f"/datasets?cursor={quote(cursor, safe='')}"
        page = connection.ask("GET", address, keys=("datasets", "next")).json
        yield from page["datasets"]
        cursor = page["next"]


def check_new(connection: Connection, name: str) -> None:
    """Raise `DatasetError` for a name that nobody has yet, but that may be misspelt."""
    near = near_names(name, [one["name"] for one in listed(connection)])
    if near:
        raise DatasetError(
            f"Wanted the name of a dataset at {connection.service.url}. Found: {name!r}, which is new and looks like "
            f"{' and '.join(map(repr, near))}. Correct it, or say --create (create=True) for a new dataset"
        )


def near_names(name: str, names: Collection[str]) -> list[str]:
    """Up to three names that one may have been meant for, the nearest first.

    Upper and lower case, dashes, dots and underscores make no difference. Names that differ in numbers or single
    letters alone are a series (``run-1`` and ``run-2``, ``set-a`` and ``set-b``).
    """
    far = {one: _distance(name, one) for one in names if one != name}
    return sorted((one for one, distance in far.items() if distance <= _NEAR), key=lambda one: (far[one], one))[:3]


def _distance(name: str, other: str) -> int:
    """How many letters two names do not share; too many for names that are no slips of each other."""
    too_many = _NEAR + 1
    one, two = _plain(name), _plain(other)
    if one == two:
        return 0
    if _series(name) == _series(other):
        return too_many
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return too_many
    return len(one) + len(two) - 2 * sum(block.size for block in matcher.get_matching_blocks())


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name.casefold())


def _series(name: str) -> str:
    return _plain(re.sub(r"[0-9]+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])", "0", name))
