"""Who asks: bearer tokens, held against those of the service."""

import re
import threading
import time
from collections.abc import Collection

from service.errors import HostError, NotAllowedError, NoTokenError
from service.tokens import Scope, Token, Tokens

_KNOWN_SECONDS = 2.0


class Access:
    """Lets requests in by their tokens; where ``is_open``, all of them until there was a token.

    ``is_insecure``: all of them, always. ``hosts`` are those that a request may be meant for as long as all are let
    in: a page of elsewhere must not reach a service that is open on its own machine, through a name that leads here.
    A token that is revoked opens nothing two seconds later.
    """

    def __init__(
        self, tokens: Tokens, *, is_open: bool, is_insecure: bool = False, hosts: Collection[str] | None = None
    ) -> None:
        self._tokens, self._is_open, self._is_insecure, self._hosts = tokens, is_open, is_insecure, hosts
        self._lock = threading.Lock()
        self._known: list[Token] | None = None
        self._until = 0.0

    def check(self, authorization: str | None, scope: Scope, *, host: str) -> str | None:
        """The name of the token that a request to a host has; None where none is needed.

        Raises `NoTokenError` without one that is known, `NotAllowedError` for one that only reads, `HostError`.
        """
        kept = self._kept()
        if self._is_insecure:
            return None
        if self._is_open and kept is None:
            if self._hosts is not None and re.sub(r":[0-9]*$", "", host) not in self._hosts:
                raise HostError(
                    f"Wanted Host {' or '.join(self._hosts)}, as no token is asked for yet. Found: {host[:100]!r}"
                )
            return None
        kind, _, text = (authorization or "").partition(" ")
        needed = {"WWW-Authenticate": f'Bearer realm="imagestrata", scope="{scope}"'}
        if kind.lower() != "bearer" or not text.strip():
            raise NoTokenError("Wanted a token: Authorization: Bearer TOKEN. Found: none", headers=needed)
        token = Tokens.find_in(kept or [], text.strip())
        if token is None:
            needed["WWW-Authenticate"] += ', error="invalid_token"'
            raise NoTokenError("Wanted a token of this service. Found: one that is unknown or revoked", headers=needed)
        if scope == "write" and token.scope != "write":
            raise NotAllowedError(f"Wanted a token that may write. Found: {token.name!r}, which may only read")
        return token.name

    def _kept(self) -> list[Token] | None:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._tokens.all() if self._tokens.are_there else None
                self._until = time.monotonic() + _KNOWN_SECONDS
            return self._known
