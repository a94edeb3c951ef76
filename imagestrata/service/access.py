"""Authentication by bearer tokens: of all requests, and of the routes that need one."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from imagestrata.service.errors import NotAllowedError, NoTokenError, TokensError
from imagestrata.service.tokens import NAME, Scope, Token, Tokens
from schemas.errors import SchemaError

log = logging.getLogger(__name__)

_KNOWN_SECONDS = 2.0


class Access:
    """Checks the tokens of requests. An open service accepts requests without a token until the first token is created,
    an insecure one always. A revoked token is refused within two seconds.
    """

    def __init__(self, tokens: Tokens, *, is_open: bool, is_insecure: bool = False) -> None:
        self._tokens, self._is_open, self._is_insecure = tokens, is_open, is_insecure
        self._lock = asyncio.Lock()
        self._known: list[Token] | None = None
        self._until = 0.0

    async def is_free(self) -> bool:
        """Whether requests need no token. Raises `TokensError`."""
        return self._is_insecure or (self._is_open and await self._kept() is None)

    async def check(self, authorization: str | None, scope: Scope) -> Token | None:
        """Return the token of an ``Authorization`` header, or None if none is needed. Raises `NoTokenError` without a
        known token, `NotAllowedError` if it permits reading only, and `TokensError` if the tokens cannot be read.
        """
        if await self.is_free():
            return None
        kept = await self._kept()
        kind, _, text = (authorization or "").partition(" ")
        needed = {"WWW-Authenticate": f'Bearer realm="imagestrata", scope="{scope}"'}
        if kind.lower() != "bearer" or not text.strip():
            raise NoTokenError("Wanted the header Authorization: Bearer TOKEN. Found: none", headers=needed)
        token = Tokens.find_in(kept or [], text.strip())
        if token is None:
            needed["WWW-Authenticate"] += ', error="invalid_token"'
            raise NoTokenError("Wanted a token of this service. Found: one that is unknown or revoked", headers=needed)
        if scope == "write":
            _check_writer(token.name, token.scope)
        return token

    async def check_tokens(self) -> None:
        """Raise `TokensError` if the tokens cannot be read, although requests may need none."""
        await self._kept()

    async def _kept(self) -> list[Token] | None:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._known = await run_in_threadpool(self._look)
                self._until = time.monotonic() + _KNOWN_SECONDS
            return self._known

    def _look(self) -> list[Token] | None:
        try:
            return self._tokens.all() if self._tokens.are_there else None
        except (SchemaError, OSError) as error:
            log.error("no request is admitted: %s", error)
            raise TokensError(
                f"Wanted to read the tokens of the service. Found: {NAME} is damaged or cannot be read; the service's "
                "log has the reason"
            ) from None


def _check_writer(name: str | None, scope: Scope) -> None:
    """Raise `NotAllowedError` for a token that permits reading only."""
    if scope != "write":
        raise NotAllowedError(f"Wanted a token that may write. Found: {name!r}, which may only read")


def _of(scope: Scope) -> Callable[..., Any]:
    """A dependency of routes. `Admission` has authenticated the request before."""
    bearer = HTTPBearer(auto_error=False, description=f"a token with the scope {scope}", scheme_name=scope)

    # Async, because it never waits: no thread is needed.
    async def check(request: Request, _: Annotated[Any, Depends(bearer)]) -> None:
        if scope == "write":
            _check_writer(request.state.token, request.state.scope)

    return check


READS, WRITES = Depends(_of("read")), Depends(_of("write"))
