"""Which routes need a token that may write: dependencies of routes, after `Admission` has let a request in."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from imagestrata.service.access import check_writer
from imagestrata.service.tokens import Scope


class Guard:
    """What routes depend on that only those may use who have a token: ``reads`` and ``writes``."""

    def __init__(self) -> None:
        self.reads, self.writes = Depends(_of("read")), Depends(_of("write"))


def _of(scope: Scope) -> Callable[..., Any]:
    bearer = HTTPBearer(auto_error=False, description=f"a token that may {scope}", scheme_name=scope)

    # Not in a thread: there is nothing to wait for.
    async def check(request: Request, _: Annotated[Any, Depends(bearer)]) -> None:
        if scope == "write":
            check_writer(request.state.token, request.state.scope)

    return check
