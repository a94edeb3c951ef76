"""Conditional requests: ``If-Match`` and ``If-None-Match``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from imagestrata.service.errors import ConditionError, RequestError

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def etag(sha256: str, form: str = "") -> str:
    """Return the ETag of bytes with this SHA-256. ``form`` names another form of them, such as ``zip``."""
    return f'"{sha256}-{form}"' if form else f'"{sha256}"'


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a request on the newest version; None for no condition."""

    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Conditions":
        """Read the conditions from headers. Raises `RequestError` for malformed headers."""
        found = cls(headers.get("if-match"), headers.get("if-none-match"))
        for value in (found.if_match, found.if_none_match):
            if value is not None:
                _tags(value)
        return found

    def check(self, now: str | None) -> None:
        """Check the ETag of the newest version, None if there is no version. Raises `ConditionError`."""
        if self.is_unchanged(now):
            raise ConditionError(f"Wanted If-None-Match: {str(self.if_none_match)[:200]}. Found: {now}")

    def is_unchanged(self, now: str | None) -> bool:
        """Whether the client has this version already. Raises `ConditionError` if ``If-Match`` does not hold."""
        if self.if_match is not None and not _matches(self.if_match, now):
            raise ConditionError(f"Wanted If-Match: {self.if_match[:200]}. Found: {now or 'no version'}")
        return self.if_none_match is not None and _matches(self.if_none_match, now)


def _matches(wanted: str, now: str | None) -> bool:
    if now is None:
        return False
    return wanted.strip() == "*" or now in _tags(wanted)


def _tags(value: str) -> list[str]:
    """Parse the tags of a header. Weak tags count as strong, because versions never change. Raises `RequestError`."""
    if value.strip() == "*":
        return []
    found = [f'"{tag[2]}"' for tag in _TAG.finditer(value)]
    if _TAG.sub("", value).replace(",", "").strip() or not found:
        raise RequestError(f'Wanted tags such as "…", or *, in If-Match and If-None-Match. Found: {value[:200]!r}')
    return found
