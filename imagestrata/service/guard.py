"""Route dependencies for tokens. `Admission` has authenticated the request before."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from imagestrata.service.access import check_writer
from imagestrata.service.tokens import Scope


def _of(scope: Scope) -> Callable[..., Any]:
    bearer = HTTPBearer(auto_error=False, description=f"a token with the scope {scope}", scheme_name=scope)

    # Async, because it never waits: no thread is needed.
    async def check(request: Request, _: Annotated[Any, Depends(bearer)]) -> None:
        if scope == "write":
            check_writer(request.state.token, request.state.scope)

    return check


READS, WRITES = Depends(_of("read")), Depends(_of("write"))
