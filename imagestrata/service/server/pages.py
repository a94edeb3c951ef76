"""The web page at ``/``. Its files are in the package and load nothing from other hosts."""

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from imagestrata.service.conditions import Conditions, etag

_FOLDER = Path(__file__).parents[1] / "page"
_INDEX = "index.html"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}

router = APIRouter(include_in_schema=False)


def _serve(file: Path) -> None:
    """Return a route that serves a file, read once."""
    body = file.read_bytes()
    told = {**_HEADERS, "etag": etag(hashlib.sha256(body).hexdigest())}

    # Async, because it never waits: no thread is needed.
    async def page(request: Request) -> Response:
        if Conditions.of(request.headers).is_unchanged(told["etag"]):
            return Response(status_code=304, headers=told)
        return Response(body, media_type=_KINDS[file.suffix], headers=told)

    path = "/" if file.name == _INDEX else f"/page/{file.name}"
    router.add_api_route(path, page, methods=["GET", "HEAD"], response_class=Response)


for _file in sorted(_FOLDER.iterdir()):
    if _file.suffix in _KINDS:
        _serve(_file)
