"""Admission of requests before routing: the right host, no other site, a valid token."""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from imagestrata.service.access import Access
from imagestrata.service.errors import HeaderError, HostError, NotAllowedError, ServiceError
from imagestrata.service.server.hosts import Hosts, authority
from imagestrata.service.server.problems import problem

_PUBLIC = re.compile(r"/|/health|/openapi\.json|/page/[^/]*")
"""Paths that need no token. All other paths need one, even if they do not exist."""
_READS = ("GET", "HEAD", "OPTIONS")
_ORIGIN = re.compile(r"(https?)://(.+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Admission:
    """Refuses requests before their routes, bodies or parameters are read: by host, origin and token."""

    def __init__(self, app: ASGIApp, *, access: Access, hosts: Hosts) -> None:
        self._app, self._access, self._hosts = app, access, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._check(scope)
        except ServiceError as error:
            await problem(scope, error.status, error.title, error.detail, error.headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> None:
        headers, is_read = Headers(scope=scope), scope["method"] in _READS
        host, port = self._host(scope, headers)
        # The name matters while no token is needed, or if names were given.
        if host not in self._hosts and (self._hosts.given or await self._access.is_free()):
            raise HostError(
                f"Wanted Host {self._hosts}. Found: {host[:100]!r}. If clients use that name, start the service with "
                "--host-name"
            )
        if not is_read:  # a page of another site must not change anything
            self._check_site(headers, host, port)
        if not _PUBLIC.fullmatch(scope["path"]):
            token = await self._access.check(headers.get("authorization"), "read" if is_read else "write")
            scope["state"]["token"], scope["state"]["scope"] = (token.name, token.scope) if token else (None, "write")

    def _host(self, scope: Scope, headers: Headers) -> tuple[str, str]:
        told = headers.getlist("host")
        if len(told) > 1 or (not told and scope["http_version"] != "1.0"):
            raise HeaderError(f"Wanted one Host header. Found: {len(told)}")
        found = authority(told[0]) if told else ("", "")
        if found is None:
            raise HeaderError(f"Wanted Host: NAME or NAME:PORT. Found: {told[0][:100]!r}")
        return found

    def _check_site(self, headers: Headers, host: str, port: str) -> None:
        site = headers.get("sec-fetch-site", "none").lower()
        if site not in ("none", "same-origin"):
            raise NotAllowedError(f"Wanted a request from the service's own page. Found: Sec-Fetch-Site: {site[:40]}")
        if site == "same-origin":  # sent by browsers; a proxy may have dropped its port from Host
            return
        for origin in headers.getlist("origin"):
            found = _ORIGIN.fullmatch(origin.strip())
            named = authority(found[2]) if found else None
            default = _DEFAULT_PORTS[found[1].lower()] if found else ""
            is_own = named is not None and (
                (named[0] == host and (named[1] or default) == (port or default))
                or (named[0] in self._hosts.given and named[1] in ("", default))
            )
            if not is_own:
                raise NotAllowedError(
                    f"Wanted a request from the service's own page. Found: Origin: {origin[:100]}. If a proxy has that "
                    "address, let it pass Host with its port (nginx: $http_host), or start the service with --host-name"
                )
