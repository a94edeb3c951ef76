"""What a service says of its datasets: their names, names that look like a new one, and their versions."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from imagestrata.hub.errors import DatasetError
from imagestrata.hub.http import Connection
from schemas.datasets import DatasetVersion

_NEAR, _ALIKE = 3, 0.8
"""Limits for similar names: the most letters that differ, and the least share of equal letters."""
_KEYS = ("kind", "filename", "bytes", "sha256", "files", "created")


def listed(connection: Connection) -> Iterator[dict[str, Any]]:
    """List all datasets of a service by name, as JSON."""
    cursor: str | None = ""
    while cursor is not None:
        address = f"/datasets?cursor={quote(cursor, safe='')}"
        page = connection.ask("GET", address, keys=("datasets", "next")).json
        yield from page["datasets"]
        cursor = page["next"]


def check_new(connection: Connection, name: str) -> None:
    """Raise `DatasetError` for a new name that may be a misspelt one."""
    near = near_names(name, [one["name"] for one in listed(connection)])
    if near:
        raise DatasetError(
            f"Wanted the name of a dataset at {connection.service.url}. Found: {name!r}, which is new and looks like "
            f"{' and '.join(map(repr, near))}. Correct it, or give --create (create=True) for a new dataset"
        )


def near_names(name: str, names: Collection[str]) -> list[str]:
    """Return up to three similar names, the most similar first. Case, dashes, dots and underscores do not count."""
    far = {one: _distance(name, one) for one in names if one != name}
    return sorted((one for one, distance in far.items() if distance <= _NEAR), key=lambda one: (far[one], one))[:3]


def _distance(name: str, other: str) -> int:
    """The number of letters in which two names differ; a large number for names that are not similar."""
    too_many = _NEAR + 1
    one, two = _plain(name), _plain(other)
    if one == two:
        return 0
    # Names that differ only in numbers or single letters are a series: run-1 and run-2, set-a and set-b.
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


def version_in(card: Mapping[str, Any], name: str, number: int | None, url: str) -> dict[str, Any] | None:
    """Return a version of a card, by default the newest, without the name of its token; None if the card lacks it.
    Raises `DatasetError` if it is not described well enough to use its parts in local paths.
    """
    try:
        found = next((one for one in card["versions"] if number in (None, one["version"])), None)
        if found is None:
            return None
        told = {key: found[key] for key in _KEYS}
        DatasetVersion.read({"number": found["version"], **told})
    except (ValueError, TypeError, AttributeError, LookupError):
        raise DatasetError(
            f"Wanted a version of {name!r} with its number, size, file's name and SHA-256. "
            f"Found: {str(card['versions'])[:200]}"
        ) from None
    counts = {key: card["card"].get(key) for key in ("images", "num_classes")}
    return {"name": name, "version": found["version"], **told, **counts, "url": url}
