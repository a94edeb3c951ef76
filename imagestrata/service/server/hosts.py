"""The hosts that requests may name. Others are refused, because any DNS name can point to this address."""

import re
from collections.abc import Collection
from ipaddress import ip_address

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::([0-9]{0,5}))?")


class Hosts:
    """The hosts of a service: ``names`` and addresses of this machine, and ``given`` ones, for example of a proxy."""

    def __init__(self, names: Collection[str], *, given: Collection[str] = (), is_local: bool = True) -> None:
        self.given = {normal(name) for name in given}
        self._names = {normal(name) for name in names} | self.given
        self._is_local = is_local

    def __contains__(self, host: str) -> bool:
        """Whether a host, as `authority` returns it, is accepted."""
        # No public DNS name is an IP address or has no dot, so a service for other machines accepts these.
        return host in self._names or (not self._is_local and ("." not in host or _is_address(host)))

    def __str__(self) -> str:
        return " or ".join(sorted(self._names))


def authority(text: str) -> tuple[str, str] | None:
    """Split a Host header into host and port, which may be empty; None if it is malformed."""
    found = _AUTHORITY.fullmatch(text)
    return None if found is None else (normal(found[1]), found[2] or "")


def normal(host: str) -> str:
    """Normalise a host: lower case, no final dot, IPv6 addresses compressed and in brackets."""
    host = host.lower().removesuffix(".")
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    return f"[{address}]" if address.version == 6 else str(address)


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host.strip("[]")))
    except ValueError:
        return False
