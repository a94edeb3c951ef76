"""The routes of resumable uploads (tus 1.0.0).

``POST /datasets/NAME/uploads`` with ``Upload-Length`` creates an upload and returns its ``Location``. There ``PATCH``
with ``Upload-Offset`` appends bytes, ``HEAD`` returns the offset, and ``DELETE`` cancels the upload. The last byte
publishes the version. Beyond tus, ``Repr-Digest`` (RFC 9530) and conditions are checked, and the response to the last
``PATCH`` has the version in ``Dataset-Version`` and ``ETag``.
"""

from collections.abc import Sequence
from email.utils import formatdate
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.params import Depends as Dependency
from starlette.responses import Response

from imagestrata.service.access import READS, WRITES
from imagestrata.service.conditions import etag
from imagestrata.service.errors import TypeOfBodyError
from imagestrata.service.server import problems
from imagestrata.service.server.metrics import Metrics
from imagestrata.service.server.shapes import BINARY, Name, location
from imagestrata.service.uploads import tus
from imagestrata.service.uploads.states import UploadState
from imagestrata.service.uploads.tus import Checksum, check_version
from imagestrata.service.uploads.upload_requests import digest_of, length_of, tus_request_of
from imagestrata.service.uploads.uploads import Uploads

Identity = Annotated[str, Path(description="the id of the upload, the last part of its Location")]
_LENGTH: dict[str, Any] = {
    "name": "Upload-Length",
    "in": "header",
    "required": True,
    "description": "the size of the whole upload in bytes",
    "schema": {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"},
}


def add_upload_routes(routes: APIRouter, uploads: Uploads, metrics: Metrics) -> None:
    """Add the routes of uploads."""
    writes = [WRITES, Depends(check_version)]
    _add_creation(routes, uploads, writes)
    _add_uploads(routes, uploads, writes)
    _add_appending(routes, uploads, metrics, writes)


def _add_creation(routes: APIRouter, uploads: Uploads, writes: Sequence[Dependency]) -> None:
    def offers() -> Response:
        """Get the supported version and extensions of tus."""
        return Response(status_code=204, headers=tus.offered(uploads.most))

    for path, names in (("/{name}/uploads", ["name"]), ("/{name}/uploads/{upload}", ["name", "upload"])):
        named = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in names]
        add = routes.options(path, status_code=204, dependencies=[READS], openapi_extra={"parameters": named})
        add(offers)

    @routes.post(
        "/{name}/uploads",
        status_code=201,
        dependencies=writes,
        openapi_extra={"parameters": [tus.RESUMABLE, _LENGTH]},
        response_class=Response,
        responses=problems.responses(403, 404, 411, 412, 413, 415, 507),
    )
    def begin_upload(
        request: Request,
        name: Name,
        sha256: Annotated[
            str | None, Query(description="the SHA-256 that the body must have", pattern="^[0-9a-fA-F]{64}$")
        ] = None,
    ) -> Response:
        """Create a resumable upload. `Upload-Metadata` may have `filename`, `filetype` (`application/x-tar` for a
        folder) and `sha256` (64 hexadecimal digits), each with its value in Base64. Without `filetype`, `Content-Type`
        applies as for PUT.
        """
        upload = tus_request_of(name, request.headers, sha256=sha256, by=request.state.token)
        identity = uploads.begin(upload)
        headers = _headers(uploads.state(name, identity))
        return Response(status_code=201, headers={"Location": f"{location(name)}/uploads/{identity}", **headers})


def _add_uploads(routes: APIRouter, uploads: Uploads, writes: Sequence[Dependency]) -> None:
    @routes.head(
        "/{name}/uploads/{upload}",
        dependencies=writes,
        openapi_extra={"parameters": [tus.RESUMABLE]},
        response_class=Response,
        responses=problems.responses(403, 404, 412),
    )
    def look_at_upload(name: Name, upload: Identity) -> Response:
        """Get the `Upload-Offset` and `Upload-Length` of an upload. A finished one has `Dataset-Version`."""
        state = uploads.state(name, upload)
        headers = _headers(state) | {"Upload-Length": str(state.length), "Cache-Control": "no-store"}
        if state.metadata:
            headers["Upload-Metadata"] = state.metadata
        return Response(headers=headers)

    @routes.delete(
        "/{name}/uploads/{upload}",
        status_code=204,
        dependencies=writes,
        openapi_extra={"parameters": [tus.RESUMABLE]},
        responses=problems.responses(403, 404, 409, 412),
    )
    def give_up(name: Name, upload: Identity) -> None:
        """Cancel an upload and remove its bytes. A published version stays."""
        uploads.cancel(name, upload)


def _add_appending(routes: APIRouter, uploads: Uploads, metrics: Metrics, writes: Sequence[Dependency]) -> None:
    @routes.patch(
        "/{name}/uploads/{upload}",
        status_code=204,
        dependencies=writes,
        openapi_extra={
            "parameters": [tus.RESUMABLE],
            "requestBody": {"required": True, "content": {tus.BODY: BINARY}},
        },
        response_class=Response,
        responses={
            **problems.responses(403, 404, 409, 412, 413, 415, 507),
            460: {**problems.responses(400)[400], "description": "Checksum Mismatch"},
        },
    )
    async def append_to_upload(
        request: Request,
        name: Name,
        upload: Identity,
        upload_offset: Annotated[
            str, Header(description="the offset of the first of these bytes", pattern="^[0-9]{1,18}$")
        ],
    ) -> Response:
        """Append bytes to an upload. `Upload-Checksum` is the `sha256` or `sha1` of these bytes in Base64. Bytes with
        another checksum are discarded with status 460. With the last bytes, `Repr-Digest` (RFC 9530) may give the
        digest of the whole upload.
        """
        kind = request.headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() != tus.BODY:
            raise TypeOfBodyError(f"Wanted Content-Type: {tus.BODY}. Found: {kind[:100] or 'none'}")
        checksum = Checksum.of(request.headers)
        digest = digest_of(request.headers, fields=["repr-digest"])  # Content-Digest would cover these bytes only
        offset = length_of(upload_offset)
        state = await uploads.append(
            name, upload, offset, metrics.counted(request.stream()), sha256=digest, checksum=checksum
        )
        return Response(status_code=204, headers=_headers(state))


def _headers(state: UploadState) -> dict[str, str]:
    headers = {"Upload-Offset": str(state.offset)}
    if state.expires is not None:
        headers["Upload-Expires"] = formatdate(state.expires, usegmt=True)
    if state.version is not None:
        headers |= {"Dataset-Version": str(state.version.number), "ETag": etag(state.version.sha256)}
    return headers
