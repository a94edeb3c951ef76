"""The addresses of uploads that go on when they break off.

``POST /datasets/NAME/uploads`` with ``Upload-Length`` begins one and tells its ``Location``; ``PATCH`` there with
``Upload-Offset`` brings bytes from there on; ``HEAD`` tells how far it is. With the last byte it is a version.
"""

from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from service import problems
from service.conditions import etag
from service.downloads import FILE
from service.guard import Guard
from service.shapes import BINARY, Name, PublishedShape, location, published
from service.uploads import Uploads
from service.wanted import digest_of, length_of, wanted_of

Body = Callable[[Request], AsyncIterator[bytes]]
_BODY = {"requestBody": {"required": True, "content": {FILE: BINARY}}}
Identity = Annotated[str, Path(description="the upload's name, as its Location tells it")]


def add_upload_routes(routes: APIRouter, uploads: Uploads, body: Body, guard: Guard) -> None:
    """Add the addresses of uploads to those of datasets."""

    @routes.post(
        "/{name}/uploads",
        status_code=201,
        dependencies=[guard.writes],
        response_class=Response,
        responses=problems.told(403, 404, 411, 412, 413, 415, 507),
    )
    def begin_upload(
        request: Request,
        name: Name,
        upload_length: Annotated[
            str, Header(description="the bytes of all that is to come", pattern="^[1-9][0-9]{0,17}$")
        ],
        sha256: Annotated[
            str | None, Query(description="refuse another body than this", pattern="^[0-9a-fA-F]{64}$")
        ] = None,
    ) -> Response:
        """Begin an upload that goes on when it breaks off. Its headers say what it is, as those of PUT do."""
        wanted = wanted_of(name, request.headers, length=upload_length, sha256=sha256, by=request.state.token)
        place = f"{location(name)}/uploads/{uploads.begin(wanted)}"
        return Response(status_code=201, headers={"Location": place, "Upload-Offset": "0"})

    @routes.head(
        "/{name}/uploads/{upload}",
        dependencies=[guard.writes],
        response_class=Response,
        responses=problems.told(403, 404),
    )
    def look_at_upload(name: Name, upload: Identity) -> Response:
        """How far an upload is: `Upload-Offset` of `Upload-Length`."""
        wanted, size = uploads.state(name, upload)
        told = {"Upload-Offset": str(size), "Upload-Length": str(wanted.length), "Cache-Control": "no-store"}
        return Response(headers=told)

    @routes.patch(
        "/{name}/uploads/{upload}",
        dependencies=[guard.writes],
        openapi_extra=_BODY,
        responses=problems.told(403, 404, 409, 412, 413, 507)
        | {200: {"model": PublishedShape, "description": "It is whole"}, 204: {"description": "There is more to come"}},
    )
    async def go_on(
        request: Request,
        name: Name,
        upload: Identity,
        upload_offset: Annotated[str, Header(description="where these bytes begin", pattern="^[0-9]{1,18}$")],
    ) -> Response:
        """Bring more of an upload. With its last bytes `Repr-Digest` (RFC 9530) may say what the whole must be."""
        digest = digest_of(request.headers, fields=["repr-digest"])  # a Content-Digest would be of these bytes alone
        found = await uploads.append(name, upload, length_of(upload_offset), body(request), sha256=digest)
        if isinstance(found, int):
            return Response(status_code=204, headers={"Upload-Offset": str(found)})
        told = {"Upload-Offset": str(found.bytes), "ETag": etag(found.sha256)}
        return JSONResponse(published(name, found).model_dump(), headers=told)

    @routes.delete(
        "/{name}/uploads/{upload}", status_code=204, dependencies=[guard.writes], responses=problems.told(403, 404, 409)
    )
    def give_up(name: Name, upload: Identity) -> None:
        """Give up an upload; what came of it goes."""
        uploads.cancel(name, upload)
