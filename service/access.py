"""Who asks: bearer tokens, held against those of the service."""

import threading
import time

from service.errors import NotAllowedError, NoTokenError
from service.tokens import Scope, Token, Tokens

_KNOWN_SECONDS = 2.0


class Access:
    """Lets requests in by their tokens; where ``is_open``, all of them as long as there is no token at all.

    ``is_insecure``: all of them, always.
    A token that is revoked opens nothing two seconds later.
    """

    def __init__(self, tokens: Tokens, *, is_open: bool, is_insecure: bool = False) -> None:
        self._tokens, self._is_open, self._is_insecure = tokens, is_open, is_insecure
        self._lock = threading.Lock()
        self._known: list[Token] = []
        self._until = 0.0

    def check(self, authorization: str | None, scope: Scope) -> str | None:
        """The name of the token that a request has; None where none is needed.

        Raises `NoTokenError` without one that is known, `NotAllowedError` for one that only reads.
        """
        kept = self._kept()
        if self._is_insecure or (self._is_open and not kept):
            return None
        kind, _, text = (authorization or "").partition(" ")
        needed = {"WWW-Authenticate": f'Bearer realm="imagestrata", scope="{scope}"'}
        if kind.lower() != "bearer" or not text.strip():
            raise NoTokenError("Wanted a token: Authorization: Bearer TOKEN. Found: none", headers=needed)
        token = Tokens.find_in(kept, text.strip())
        if token is None:
            needed["WWW-Authenticate"] += ', error="invalid_token"'
            raise NoTokenError("Wanted a token of this service. Found: one that is unknown or revoked", headers=needed)
        if scope == "write" and token.scope != "write":
            raise NotAllowedError(f"Wanted a token that may write. Found: {token.name!r}, which may only read")
        return token.name

    def _kept(self) -> list[Token]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._tokens.all()
                self._until = time.monotonic() + _KNOWN_SECONDS
            return self._known
