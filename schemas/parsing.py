"""How manifests are read: JSON objects that begin with the format that they are of."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from schemas.errors import FormatVersionError, SchemaError

T = TypeVar("T")


def parsed(text: str, read: Callable[[dict[str, Any]], T], *, what: str, place: str, newest: int) -> T:
    """What ``read`` makes of a JSON object of format ``newest`` or older; errors tell ``what`` was wanted at ``place``.

    Raises `FormatVersionError` for a newer format, `SchemaError` for anything else that cannot be read.
    """
    try:
        found = json.loads(text)
        version = found["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaError(f"Wanted a {what} at {place}. Found: no JSON object with a format ({error!r})") from None
    if not isinstance(version, int) or version < 1:
        raise SchemaError(f"Wanted a {what} at {place}. Found: format {version!r}")
    if version > newest:
        raise FormatVersionError(
            f"Wanted a {what} of format {newest} or older at {place}. Found: format {version}. "
            "It was written by a newer imagestrata: upgrade this one."
        )
    try:
        return read(found)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"Wanted a whole {what} at {place}. Found: one that is damaged ({error!r})") from None
