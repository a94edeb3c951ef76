"""Parsing of manifests, which are JSON objects with a format version, and of times to live."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from schemas.errors import FormatVersionError, SchemaError

T = TypeVar("T")

# Sums of counts, and their products with a few bytes, stay below 2^63, the limit of the arrays that hold them.
_MOST = 1 << 58
_DIGEST = re.compile(r"[0-9a-f]+")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parsed(text: str, read: Callable[[dict[str, Any]], T], *, what: str, place: str, newest: int) -> T:
    """Parse a manifest by ``read``, which makes it from the JSON object. Messages name the kind of manifest and its
    place. Raises `FormatVersionError` if its format is newer than the newest that can be read, `SchemaError` if the
    text is not such a manifest.
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
            "It was written by a newer version of imagestrata. Upgrade imagestrata."
        )
    try:
        return read(found)
    except SchemaError as error:
        raise SchemaError(f"Wanted a valid {what} at {place}. Found: a damaged one. {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"Wanted a valid {what} at {place}. Found: a damaged one ({error!r})") from None


def reader(kind: type[T]) -> Callable[[dict[str, Any]], T]:
    """A function that makes a dataclass from a JSON object, by the types of its fields."""
    return _maker(kind)


def _maker(kind: Any) -> Callable[[Any], Any]:
    """A function that makes a value of a type from what JSON has of it: of a dataclass, an object or a list. A function
    in `Annotated` checks or converts it; keys of JSON that are no fields are ignored.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        plain, check = _maker(inner[0]), inner[1]
        return lambda found: check(plain(found))
    if NoneType in inner:
        known = _maker(inner[0])
        return lambda found: None if found is None else known(found)
    if origin is tuple:
        item = _maker(inner[0])
        return lambda found: tuple(map(item, found))
    if origin is Mapping:
        key, value = int if inner[0] is int else _maker(inner[0]), _maker(inner[1])
        return lambda found: {key(name): value(one) for name, one in found.items()}
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return lambda found: found
    makers = {one.name: _maker(one.type) for one in fields(kind)}
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}

    def made(found: Any) -> Any:
        given = dict(zip(makers, found, strict=True)) if type(found) is list else {**found}
        return kind(**{name: make(given[name]) for name, make in makers.items() if name in given or name in needed})

    return made


def check_digest(text: object, digits: int = 64) -> str:
    """Return a fingerprint or checksum of so many hexadecimal digits, which caches use as a file name. Raises
    `SchemaError` for any other value.
    """
    if not isinstance(text, str) or len(text) != digits or not _DIGEST.fullmatch(text):
        raise SchemaError(f"Wanted {digits} digits of 0-9 and a-f as fingerprint. Found: {str(text)[:100]!r}")
    return text


def check_count(number: object) -> int:
    """Return a valid number of rows, samples or bytes. Raises `SchemaError`."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST:
        raise SchemaError(f"Wanted a count of 0 to 2^58. Found: {str(number)[:100]!r}")
    return number


# Fields of manifests that are checked when a manifest is read.
Digest = Annotated[str, check_digest]
Count = Annotated[int, check_count]


def parse_ttl(text: str) -> int:
    """Parse a time to live: ``none``, a number of seconds, or ``30d``, ``12h``, ``2w``; in seconds, 0 for none. Raises
    ValueError.
    """
    if text == "none":
        return 0
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    if not number.isascii() or not number.isdecimal() or int(number) == 0:
        raise ValueError(f"Wanted a time in seconds, or as 30d, 12h or none, for the ttl. Found: {text!r}")
    return int(number) * _UNITS[unit]
