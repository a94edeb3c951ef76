"""The routes of datasets: list, create, delete and describe them, and publish their versions."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from imagestrata.service.access import READS, WRITES
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.errors import NotThereError, RequestError, TooLargeError, TypeOfBodyError, UnreadableError
from imagestrata.service.server import downloads, problems
from imagestrata.service.server.metrics import Metrics
from imagestrata.service.server.shapes import (
    BINARY,
    CardShape,
    DatasetShape,
    DescriptionShape,
    Limit,
    ListingShape,
    Name,
    NewDataset,
    PublishedShape,
    VersionNumber,
    VersionsShape,
    location,
    name_of,
    published,
    summary_of,
    version_shape,
)
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.upload_requests import TAR, request_of
from imagestrata.service.uploads.uploads import Uploads

_JSON = "application/json"
_SCHEMA = {"schema": {"$ref": "#/components/schemas/DescriptionShape"}}
_UPLOAD = {"requestBody": {"required": True, "content": {downloads.FILE: BINARY, TAR: BINARY}}}
_DESCRIPTION = {"requestBody": {"required": True, "content": {_JSON: _SCHEMA}}}
_MOST_BYTES = 1 << 17  # JSON may need twelve bytes for a character


def add_dataset_routes(routes: APIRouter, store: Store, uploads: Uploads) -> None:
    """Add the routes that list, create and delete datasets."""

    @routes.get("", dependencies=[READS])
    def list_datasets(limit: Limit = 1000, cursor: Annotated[str, Query(max_length=100)] = "") -> ListingShape:
        """List all datasets by name."""
        names = [name for name in store.names() if name > cursor]
        page = []
        for name in names[:limit]:
            try:
                page.append(_entry(store, name))
            except NotThereError:  # deleted in the meantime
                continue
        return ListingShape(datasets=page, next=names[limit - 1] if len(names) > limit else None)

    @routes.post("", status_code=201, dependencies=[WRITES], responses=problems.responses(403, 409, 413, 507))
    def create_dataset(new: NewDataset, answer: Response) -> DatasetShape:
        """Create an empty dataset."""
        name = name_of(new.name)
        store.create(name)
        answer.headers["Location"] = location(name)
        return DatasetShape(name=name, location=location(name))

    @routes.delete("/{name}", status_code=204, dependencies=[WRITES], responses=problems.responses(403, 404, 412))
    def delete_dataset(request: Request, name: Name, version: VersionNumber = None) -> None:
        """Delete a dataset or one version."""
        store.delete(name, version, Conditions.of(request.headers))
        if version is None:
            uploads.drop(name)


def add_version_routes(routes: APIRouter, uploads: Uploads, metrics: Metrics) -> None:
    """Add the routes that publish a version with one request: upload it, or restore an older one."""

    @routes.put(
        "/{name}",
        dependencies=[WRITES],
        openapi_extra=_UPLOAD,
        responses=problems.responses(403, 404, 412, 413, 415, 507),
    )
    async def put_dataset(request: Request, name: Name, answer: Response) -> PublishedShape:
        """Upload a new version: a file, or a folder as one tar. The version becomes visible when it is complete.
        `Content-Disposition` names the file (default: `data`). `?sha256=HEX` or `Repr-Digest` (RFC 9530) refuses a body
        with another digest. `If-Match` refuses the upload if another version is the newest; `If-None-Match: *` refuses
        it if there is any version.
        """
        digest = request.query_params.get("sha256")
        length = request.headers.get("content-length")
        upload = request_of(name, request.headers, length=length, sha256=digest, by=request.state.token)
        version = await uploads.put(upload, metrics.counted(request.stream()))
        answer.headers["ETag"] = etag(version.sha256)
        return published(name, version)

    @routes.post("/{name}/restore", dependencies=[WRITES], responses=problems.responses(403, 404, 412, 507))
    def restore_version(
        request: Request,
        name: Name,
        version: Annotated[int, Query(ge=1, le=10**9, description="the version to make the newest")],
        answer: Response,
    ) -> PublishedShape:
        """Make an older version the newest again, under a new number and without an upload. Both share their bytes.
        `If-Match` refuses the request if another version is the newest.
        """
        made = uploads.restore(name, version, Conditions.of(request.headers), by=request.state.token)
        answer.headers["ETag"] = etag(made.sha256)
        return published(name, made)


def add_description_routes(routes: APIRouter, store: Store) -> None:
    """Add the routes that describe a dataset and its versions."""

    @routes.get("/{name}/card", dependencies=[READS], responses=problems.responses(404))
    def get_card(name: Name, version: VersionNumber = None) -> CardShape:
        """Describe a dataset: its versions, and the contents of one version (default: the newest)."""
        versions = store.versions(name)
        shown = store.newest(name) if version is None else store.version(name, version)
        return CardShape(
            **_entry(store, name).model_dump(),
            description=store.description(name),
            versions=[version_shape(one) for one in reversed(versions)],
            card={} if shown is None else dict(shown.card),
        )

    @routes.get("/{name}/versions", dependencies=[READS], responses=problems.responses(404))
    def list_versions(name: Name) -> VersionsShape:
        """List all versions of a dataset, even if the newest one cannot be read."""
        versions = [version_shape(one) for one in reversed(store.versions(name))]
        return VersionsShape(versions=versions, unreadable=sorted(store.unreadable(name), reverse=True))

    @routes.get("/{name}/description", dependencies=[READS], responses=problems.responses(404))
    def get_description(name: Name) -> DescriptionShape:
        """Get the description of a dataset."""
        return DescriptionShape(description=store.description(name))

    @routes.put(
        "/{name}/description",
        dependencies=[WRITES],
        openapi_extra=_DESCRIPTION,
        responses=problems.responses(403, 404, 413, 415, 507),
    )
    async def put_description(request: Request, name: Name) -> DescriptionShape:
        """Replace the description of a dataset. It belongs to all versions; the last write wins."""
        new = await _description_of(request)
        await run_in_threadpool(store.describe, name, new.description)
        return new


def _entry(store: Store, name: str) -> DatasetShape:
    newest, problem = None, None
    try:
        newest = store.newest(name)
    except UnreadableError as error:
        problem = error.detail
    card = {} if newest is None else newest.card
    return DatasetShape(
        name=name,
        location=location(name),
        newest=None if newest is None else version_shape(newest),
        summary=summary_of(store.description(name)),
        images=card.get("images"),
        num_classes=card.get("num_classes"),
        type=card.get("type"),
        problem=problem,
    )


async def _description_of(request: Request) -> DescriptionShape:
    """Read the body with a limit, because bodies of PUT have none. Raises `RequestError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise TypeOfBodyError(f"Wanted Content-Type: {_JSON}. Found: {kind[:100] or 'none'}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise TooLargeError(f"Wanted a body of at most {_MOST_BYTES:,} bytes. Found: more")
    try:
        return DescriptionShape.model_validate_json(body)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in error.errors())
        raise RequestError(
            f'Wanted {{"description": "..."}} with at most 10,000 characters. Found: {found[:500]}'
        ) from None
