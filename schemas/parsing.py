"""How manifests are read: JSON objects that begin with the format that they are of."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from schemas.errors import FormatVersionError, SchemaError

T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]+")


def parsed(text: str, read: Callable[[dict[str, Any]], T], *, what: str, place: str, newest: int) -> T:
    """What ``read`` makes of a JSON object of format ``newest`` or older; errors tell ``what`` was wanted at ``place``.

    Raises `FormatVersionError` for a newer format, `SchemaError` for anything else that cannot be read.
    """
    try:
        found = json.loads(text)
        version = found["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
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
    except SchemaError as error:
        raise SchemaError(f"Wanted a whole {what} at {place}. Found: one that is damaged. {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"Wanted a whole {what} at {place}. Found: one that is damaged ({error!r})") from None


def check_digest(text: object, digits: int = 64) -> str:
    """A fingerprint or checksum, which becomes the name of a file in caches. Raises `SchemaError` for other text."""
    if not isinstance(text, str) or len(text) != digits or not _DIGEST.fullmatch(text):
        raise SchemaError(f"Wanted {digits} digits of 0-9 and a-f as fingerprint. Found: {str(text)[:100]!r}")
    return text


def check_count(number: object) -> int:
    """A number of rows, samples or bytes. Raises `SchemaError` for anything else."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise SchemaError(f"Wanted a count of 0 or more. Found: {str(number)[:100]!r}")
    return number
