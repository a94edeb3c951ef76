"""Who may use which addresses: dependencies of routes."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from service.access import Access
from service.tokens import Scope


class Guard:
    """What routes depend on that only those may use who have a token: ``reads`` and ``writes``."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.reads, self.writes = Depends(self._of("read")), Depends(self._of("write"))

    def _of(self, scope: Scope) -> Callable[..., str | None]:
        bearer = HTTPBearer(auto_error=False, description=f"a token that may {scope}", scheme_name=scope)

        def check(request: Request, _: Annotated[Any, Depends(bearer)]) -> str | None:
            headers = request.headers
            name = self._access.check(headers.get("authorization"), scope, host=headers.get("host", ""))
            request.state.token = name
            return name

        return check
