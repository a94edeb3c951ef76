"""Datasets by name, in versions that never change.

``/dataset/...`` is an alias of ``/datasets/...``. Errors are ``application/problem+json``.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from formats.origin import code_version
from imagestrata.service.access import READS, Access
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.server import problems
from imagestrata.service.server.admission import Admission
from imagestrata.service.server.content_routes import add_content_routes, add_file_list_route
from imagestrata.service.server.croissant_routes import add_croissant_routes
from imagestrata.service.server.dataset_routes import add_dataset_routes, add_description_routes, add_version_routes
from imagestrata.service.server.hosts import Hosts
from imagestrata.service.server.metrics import TYPE as METRICS_TYPE
from imagestrata.service.server.metrics import Metrics
from imagestrata.service.server.problems import Watched, install
from imagestrata.service.server.shapes import HealthShape, ProblemShape
from imagestrata.service.server.sheets import add_sheet_routes
from imagestrata.service.server.upload_routes import add_upload_routes
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.tus import Tus
from imagestrata.service.uploads.uploads import Uploads

_REST_BYTES, _REST_SECONDS = 4 << 20, 2.0
_PAGE = Path(__file__).parents[1] / "page"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}

_ALWAYS: dict[int | str, dict[str, Any]] = {
    **problems.responses(400, 401, 421, 422),
    "default": {"model": ProblemShape, "description": "Problem"},
}


def make_app(store: Store, *, access: Access, hosts: Hosts, uploads: Uploads) -> FastAPI:
    """Create the app of a service."""
    metrics = Metrics(store.room)
    app = FastAPI(
        title="imagestrata datasets",
        version=code_version(),
        description=__doc__,
        middleware=[
            Middleware(EarlyAnswers),
            Middleware(Tus),
            Middleware(Watched, metrics=metrics),
            Middleware(Admission, access=access, hosts=hosts),
        ],
        docs_url=None,  # they load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        responses=_ALWAYS,
    )
    install(app)
    # Added as routes of the app itself, because `problems` looks up methods in app.routes.
    for router in (_dataset_routes(store, uploads, metrics), _page_routes()):
        app.router.routes.extend(router.routes)

    @app.get("/health", tags=["service"], responses=problems.responses(503))
    async def health() -> HealthShape:
        """Report whether the service can answer requests, and how much space is used."""
        await access.check_tokens()
        used, arriving, quota = store.room.used, store.room.arriving, store.room.quota
        return HealthShape(status="ok", version=code_version(), used=used, arriving=arriving, quota=quota)

    @app.get("/metrics", tags=["service"], dependencies=[READS], response_class=Response)
    def get_metrics() -> Response:
        """Return the metrics of the service in the text format of Prometheus."""
        return Response(metrics.text(), headers={"content-type": METRICS_TYPE})

    return app


def _dataset_routes(store: Store, uploads: Uploads, metrics: Metrics) -> APIRouter:
    routes = APIRouter(prefix="/datasets", tags=["datasets"], responses=_ALWAYS)
    add_dataset_routes(routes, store, uploads)
    add_version_routes(routes, uploads, metrics)
    add_content_routes(routes, store)
    add_file_list_route(routes, store)
    add_description_routes(routes, store)
    add_sheet_routes(routes, store)
    add_croissant_routes(routes, store)
    add_upload_routes(routes, uploads, metrics)
    return routes


def _page_routes() -> APIRouter:
    """The web page at ``/``. Its files are in the package and load nothing from other hosts."""
    routes = APIRouter(include_in_schema=False)
    for file in sorted(_PAGE.iterdir()):
        if file.suffix in _KINDS:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            routes.add_api_route(path, _page(file), methods=["GET", "HEAD"], response_class=Response)
    return routes


def _page(file: Path) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a file, which is read once."""
    body = file.read_bytes()
    told = {**_PAGE_HEADERS, "etag": etag(hashlib.sha256(body).hexdigest())}

    # Async, because it never waits: no thread is needed.
    async def page(request: Request) -> Response:
        if Conditions.of(request.headers).is_unchanged(told["etag"]):
            return Response(status_code=304, headers=told)
        return Response(body, media_type=_KINDS[file.suffix], headers=told)

    return page


class EarlyAnswers:
    """Ends requests whose response did not need the whole body: the rest is read for a moment, then the connection is
    closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        is_whole = False

        async def receive_more() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = not message.get("more_body", False)  # also if the client has disconnected
            return message

        async def rest() -> None:
            size = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(_REST_SECONDS):
                    while not is_whole and size < _REST_BYTES:
                        size += len((await receive_more()).get("body", b""))

        is_early = False

        async def answer(message: Message) -> None:
            nonlocal is_early
            if message["type"] == "http.response.start" and not is_whole:
                is_early = True
                MutableHeaders(scope=message)["connection"] = "close"
            if is_early and message["type"] == "http.response.body" and not message.get("more_body", False):
                # A client that is still sending receives the response only if the server reads what was sent: otherwise
                # its system may drop the response with the connection. Not all is read, as a body may have any length.
                await send({**message, "more_body": True})
                await rest()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await self._app(scope, receive_more, answer)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
