"""Checks of names and quantities of Kubernetes. Each raises ValueError with the wanted and the found value."""

import re
from decimal import Decimal
from typing import NoReturn

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
# A first part with a dot or a port is the host of a registry; otherwise it is part of the path, in lower case.
_HOST = (
    r"(?:localhost(?::[0-9]+)?|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+"
    r"|\[[0-9A-Fa-f:]+\](?::[0-9]+)?)"
)
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"@(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})"
_IMAGE = re.compile(rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?:{_TAG})?(?:{_DIGEST})?")
_QUANTITY = re.compile(r"(\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[mkMGTPE])|[eE]([+-]?[0-9]{1,2}))?")
_UNITS = {
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_MOST_NAME, _MOST_SUBDOMAIN, _MOST_IMAGE, _MOST_REFERENCE = 63, 253, 255, 600


def check_label(found: str, what: str) -> None:
    """Check the name of a namespace, container or volume: a label of RFC 1123."""
    if len(found) > _MOST_NAME or not _LABEL.fullmatch(found):
        _refuse(f"{what}, 1 to {_MOST_NAME} lower-case letters, digits and '-' between them", found)


def check_object_name(found: str, what: str) -> None:
    """Check the name of a claim, Secret, ConfigMap or service account: a subdomain of RFC 1123."""
    if len(found) > _MOST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(found):
        _refuse(f"{what}, 1 to {_MOST_SUBDOMAIN} lower-case letters, digits, and '-' and '.' between them", found)


def check_key(found: str, what: str) -> None:
    """Check the key of a label or an annotation: a name, or PREFIX/NAME."""
    prefix, slash, name = found.rpartition("/")
    if slash and (len(prefix) > _MOST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(prefix)):
        _refuse(f"{what}, NAME or PREFIX/NAME with a DNS name as PREFIX", found)
    if len(name) > _MOST_NAME or not _NAME.fullmatch(name):
        _refuse(f"{what}, 1 to {_MOST_NAME} letters, digits, and '-', '_' and '.' between them", found)


def check_label_value(found: str, what: str) -> None:
    """Check the value of a label, which may be empty."""
    if found and (len(found) > _MOST_NAME or not _NAME.fullmatch(found)):
        _refuse(f"{what}, at most {_MOST_NAME} letters, digits, and '-', '_' and '.' between them", found)


def check_image(found: str, what: str) -> None:
    """Check a reference to an image: [HOST[:PORT]/]PATH[:TAG][@DIGEST]."""
    parts = _IMAGE.fullmatch(found[: _MOST_REFERENCE + 1])
    if parts is None or len(parts["name"]) > _MOST_IMAGE:
        _refuse(f"{what}, [HOST[:PORT]/]PATH[:TAG][@DIGEST] without spaces, PATH in lower case", found)


def amount(found: object, what: str) -> Decimal:
    """Parse a quantity such as 2, "500m" or "8Gi"."""
    text = str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else ""
    parts = _QUANTITY.fullmatch(text)
    if parts is None:
        _refuse(f"{what}, a number with a unit of Kubernetes (500m, 8G, 16Gi)", found)
    number, unit, exponent = parts.groups()
    return Decimal(number) * (_UNITS[unit] if unit else Decimal(10) ** int(exponent or 0))


def check_size(found: str, what: str) -> None:
    """Check the size of a volume: a quantity of at least one byte."""
    if amount(found, what) < 1:
        _refuse(f"{what}, at least one byte", found)


def _refuse(wanted: str, found: object) -> NoReturn:
    raise ValueError(f"Wanted {wanted}. Found: {repr(found)[:90]}")
