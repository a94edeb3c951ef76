"""The hosts that requests may be meant for. Others are refused: any DNS name can be made to lead here."""

import re
from collections.abc import Collection
from ipaddress import ip_address

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::([0-9]{0,5}))?")


class Hosts:
    """Hosts by their ``names``, and by those that were ``given`` besides, as proxies may have them.

    Unless the service is ``is_local``, addresses and names without dots are among them: no stranger can have a DNS name
    of these forms lead here.
    """

    def __init__(self, names: Collection[str], *, given: Collection[str] = (), is_local: bool = True) -> None:
        self.given = {normal(name) for name in given}
        self._names = {normal(name) for name in names} | self.given
        self._is_local = is_local

    def __contains__(self, host: str) -> bool:
        """Whether a host, as `authority` returns it, is one of them."""
        return host in self._names or (not self._is_local and ("." not in host or _is_address(host)))

    def __str__(self) -> str:
        return " or ".join(sorted(self._names))


def authority(text: str) -> tuple[str, str] | None:
    """The host and the port, which may be empty, of a Host header; None for what is none."""
    found = _AUTHORITY.fullmatch(text)
    return None if found is None else (normal(found[1]), found[2] or "")


def normal(host: str) -> str:
    """A host as it is compared: in lower case, without the dot at its end; an IPv6 address in brackets and shortest."""
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
