"""Errors as ``application/problem+json`` with the request id, which every response has."""

import logging
import re
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imagestrata.service.errors import ServiceError
from imagestrata.service.server.metrics import Metrics
from imagestrata.service.server.shapes import ProblemShape

TYPE = "application/problem+json"
HEADERS = {
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Default headers of responses: no other site may embed them, and no script in them runs."""

_MOST_AT_ONCE = 1 << 16
_MOST_LOGGED = 300
_NAME = re.compile(r"[A-Za-z0-9._\-]{1,64}")

log = logging.getLogger(__name__)


class Watched:
    """The outermost middleware: gives each request an id, counts and logs it, and handles unexpected errors."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if _NAME.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = name
        path = quote(scope["path"][:_MOST_LOGGED])  # on one line
        # /dataset/... is an alias of /datasets/...
        if scope["path"] == "/dataset" or scope["path"].startswith("/dataset/"):
            scope["path"] = scope["path"].replace("/dataset", "/datasets", 1)
        began, status = time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = name
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
            elif message["type"] == "http.response.body":
                self._metrics.sent.inc(len(message.get("body", b"")))
            await send(message)

        try:
            is_streamed = scope["method"] in ("PUT", "PATCH")
            await self._app(scope, receive if is_streamed else _bounded(receive), answer)
        except Exception:
            log.exception("request %s: %s %s failed", name, scope["method"], path)
            if status:
                raise  # the response has begun: the connection is closed
            await problem(scope, 500, "Something went wrong", "Found: an unexpected error; the log has it")(
                scope, receive, answer
            )
        finally:
            seconds = time.monotonic() - began
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.count(scope["method"], route, status, seconds)
            # A proxy may pass on any text as the address.
            address = quote((scope.get("client") or ["-"])[0][:_MOST_LOGGED], safe=":")
            token = scope["state"].get("token") or "-"
            log.info("%s %s %s %s %s %d %.3f s", name, address, token, scope["method"], path, status, seconds)


def _bounded(receive: Receive) -> Receive:
    """Limit the size of a body that is read before the token is checked. Raises HTTPException."""
    size = 0

    async def receive_more() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > _MOST_AT_ONCE:
            raise HTTPException(413, f"a body of more than {_MOST_AT_ONCE:,} bytes")
        return message

    return receive_more


def install(app: FastAPI) -> None:
    """Install the error handlers of an app."""

    async def of_service(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return problem(request.scope, error.status, error.title, error.detail, error.headers)

    async def of_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        if found and not request.headers.get("content-type", "").startswith("application/json") and error.body:
            found.append("send JSON with Content-Type: application/json")
        return problem(request.scope, 422, "Invalid request", "; ".join(found)[:2000])

    async def of_framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = HTTPStatus(error.status_code).phrase
        detail = f"Wanted {request.method} {request.url.path[:200]}. Found: {str(error.detail)[:500]}"
        headers = {"Allow": ", ".join(_methods(app, request.scope))} if error.status_code == 405 else error.headers
        return problem(request.scope, error.status_code, title, detail, headers)

    async def of_client(request: Request, error: Exception) -> Response:
        return problem(
            request.scope,
            400,
            "The data cannot be used",
            "Wanted the whole body. Found: the connection was closed before its end",
        )

    app.add_exception_handler(ServiceError, of_service)
    app.add_exception_handler(RequestValidationError, of_request)
    app.add_exception_handler(HTTPException, of_framework)
    app.add_exception_handler(ClientDisconnect, of_client)


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods of all routes of an address. The framework returns those of the first route only."""
    matching = [route for route in app.routes if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


def problem(scope: Scope, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Build the response for an error."""
    name = str(scope.get("state", {}).get("request_id", ""))
    body = ProblemShape(title=title, status=status, detail=detail, request_id=name)
    return Response(body.model_dump_json(), status_code=status, media_type=TYPE, headers=dict(headers or {}))


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe errors with these statuses for the OpenAPI document."""
    schema = {"$ref": "#/components/schemas/ProblemShape"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {TYPE: {"schema": schema}}} for status in statuses
    }
