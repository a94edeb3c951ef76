"""Datasets by name, in versions that never change.

``/dataset/...`` is an alias of ``/datasets/...``. Errors are ``application/problem+json``.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.middleware import Middleware
from starlette.responses import Response

from formats.origin import code_version
from formats.tar_index import TarIndex, TarMember
from imagestrata.service.access import Access
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.errors import NotThereError, UnreadableError
from imagestrata.service.guard import Guard
from imagestrata.service.server import downloads, pages, problems
from imagestrata.service.server.admission import Admission
from imagestrata.service.server.croissant_routes import add_croissant_routes
from imagestrata.service.server.description_routes import add_description_routes
from imagestrata.service.server.early_answers import EarlyAnswers
from imagestrata.service.server.hosts import Hosts
from imagestrata.service.server.metrics import TYPE as METRICS_TYPE
from imagestrata.service.server.metrics import Metrics
from imagestrata.service.server.problems import Watched, install
from imagestrata.service.server.shapes import (
    BINARY,
    CardShape,
    DatasetShape,
    FileShape,
    FilesShape,
    HealthShape,
    Label,
    ListingShape,
    Name,
    NewDataset,
    Prefix,
    ProblemShape,
    PublishedShape,
    VersionNumber,
    VersionsShape,
    location,
    name_of,
    published,
    summary_of,
    version_shape,
)
from imagestrata.service.server.sheets import add_sheet_routes
from imagestrata.service.server.upload_routes import add_upload_routes
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.tus import Tus
from imagestrata.service.uploads.upload_requests import TAR, request_of
from imagestrata.service.uploads.uploads import Uploads

Limit = Annotated[int, Query(ge=1, le=1000, description="the largest number of entries on a page")]
_ALWAYS: dict[int | str, dict[str, Any]] = {
    **problems.responses(400, 401, 421, 422),
    "default": {"model": ProblemShape, "description": "Problem"},
}
_BODY = {"requestBody": {"required": True, "content": {downloads.FILE: BINARY, TAR: BINARY}}}
_TAG = {"ETag": {"description": "the SHA-256 of the content", "schema": {"type": "string"}}}


def make_app(
    store: Store,
    *,
    access: Access,
    hosts: Hosts,
    uploads: Uploads,
    quota: int | None = None,
) -> FastAPI:
    """Create the app.

    Args:
        store: The datasets.
        access: Checks the tokens of requests.
        hosts: The hosts that requests may name.
        uploads: Receives bodies for the store.
        quota: The quota in bytes that ``/health`` reports, if there is one.

    Returns:
        The app.
    """
    metrics = Metrics()
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
    guard = Guard()
    # Added as routes of the app itself, because `problems` looks up methods in app.routes.
    for router in (dataset_routes(store, uploads, metrics, guard), pages.router):
        app.router.routes.extend(router.routes)

    @app.get("/health", tags=["service"], responses=problems.responses(503))
    async def health() -> HealthShape:
        """Report whether the service can answer requests, and how much space is used."""
        await access.check_tokens()
        room = store.room
        return HealthShape(status="ok", version=code_version(), used=room.used, arriving=room.arriving, quota=quota)

    @app.get("/metrics", tags=["service"], dependencies=[guard.reads], response_class=Response)
    def get_metrics() -> Response:
        """Return the metrics of the service in the text format of Prometheus."""
        metrics.used.set(store.room.used)
        return Response(metrics.text(), headers={"content-type": METRICS_TYPE})

    return app


def dataset_routes(store: Store, uploads: Uploads, metrics: Metrics, guard: Guard) -> APIRouter:
    """Create the routes of datasets, versions, files and uploads."""
    routes = APIRouter(prefix="/datasets", tags=["datasets"], responses=_ALWAYS)

    def entry(name: str) -> DatasetShape:
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

    async def counted(request: Request) -> AsyncIterator[bytes]:
        async for chunk in request.stream():
            metrics.received.inc(len(chunk))
            yield chunk

    @routes.get("", dependencies=[guard.reads])
    def list_datasets(limit: Limit = 1000, cursor: Annotated[str, Query(max_length=100)] = "") -> ListingShape:
        """List all datasets by name."""
        names = [name for name in store.names() if name > cursor]
        page = []
        for name in names[:limit]:
            try:
                page.append(entry(name))
            except NotThereError:  # deleted in the meantime
                continue
        return ListingShape(datasets=page, next=names[limit - 1] if len(names) > limit else None)

    @routes.post("", status_code=201, dependencies=[guard.writes], responses=problems.responses(403, 409, 413, 507))
    def create_dataset(new: NewDataset, answer: Response) -> DatasetShape:
        """Create an empty dataset."""
        name = name_of(new.name)
        store.create(name)
        answer.headers["Location"] = location(name)
        return DatasetShape(name=name, location=location(name))

    @routes.put(
        "/{name}",
        dependencies=[guard.writes],
        openapi_extra=_BODY,
        responses=problems.responses(403, 404, 412, 413, 415, 507),
    )
    async def put_dataset(
        request: Request,
        name: Name,
        answer: Response,
    ) -> PublishedShape:
        """Upload a new version: a file, or a folder as one tar. The version becomes visible when it is complete.

        `Content-Disposition` names the file (default: `data`). `?sha256=HEX` or `Repr-Digest` (RFC 9530) refuses a body
        with another digest. `If-Match` refuses the upload if another version is the newest; `If-None-Match: *` refuses
        it if there is any version.
        """
        digest = request.query_params.get("sha256")
        length = request.headers.get("content-length")
        upload = request_of(name, request.headers, length=length, sha256=digest, by=request.state.token)
        version = await uploads.put(upload, counted(request))
        answer.headers["ETag"] = etag(version.sha256)
        return published(name, version)

    @routes.post("/{name}/restore", dependencies=[guard.writes], responses=problems.responses(403, 404, 412, 507))
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

    @routes.delete("/{name}", status_code=204, dependencies=[guard.writes], responses=problems.responses(403, 404, 412))
    def delete_dataset(request: Request, name: Name, version: VersionNumber = None) -> None:
        """Delete a dataset or one version."""
        store.delete(name, version, Conditions.of(request.headers))
        if version is None:
            uploads.drop(name)

    @routes.get(
        "/{name}",
        dependencies=[guard.reads],
        response_class=Response,
        responses=problems.responses(404, 406, 412, 416)
        | {
            200: {
                "content": {downloads.FILE: BINARY, downloads.TAR: BINARY, downloads.ZIP: BINARY},
                "headers": _TAG,
            },
            206: {"description": "A range", "content": {downloads.FILE: BINARY, downloads.TAR: BINARY}},
            304: {"description": "Not modified"},
            307: {"description": "Redirect to a temporary address in the bucket"},
        },
    )
    def get_dataset(request: Request, name: Name, version: VersionNumber = None) -> Response:
        """Download a dataset: the file, or the folder as a tar or zip, as `Accept` says.

        `Range`, optionally with `If-Range`, requests a part of the file or tar. A matching `If-None-Match` returns 304.
        """
        found = store.version(name, version)
        form = downloads.form_of(found, request.headers.get("accept"))
        blob = store.blob(name, found)
        if form == downloads.ZIP:
            tag = etag(found.sha256, "zip")
            index = store.index(name, found)
            return downloads.zipped(
                blob, index, tag=tag, filename=f"{name}.zip", method=request.method, headers=request.headers
            )
        return downloads.content(
            blob,
            part=None,
            tag=etag(found.sha256),
            filename=found.filename,
            kind=form,
            method=request.method,
            headers=request.headers,
        )

    @routes.get("/{name}/card", dependencies=[guard.reads], responses=problems.responses(404))
    def get_card(name: Name, version: VersionNumber = None) -> CardShape:
        """Describe a dataset: its versions, and the contents of one version (default: the newest)."""
        versions = store.versions(name)
        shown = store.newest(name) if version is None else store.version(name, version)
        return CardShape(
            **entry(name).model_dump(),
            description=store.description(name),
            versions=[version_shape(one) for one in reversed(versions)],
            card={} if shown is None else dict(shown.card),
        )

    @routes.get("/{name}/versions", dependencies=[guard.reads], responses=problems.responses(404))
    def list_versions(name: Name) -> VersionsShape:
        """List all versions of a dataset, even if the newest one cannot be read."""
        versions = [version_shape(one) for one in reversed(store.versions(name))]
        return VersionsShape(versions=versions, unreadable=sorted(store.unreadable(name), reverse=True))

    @routes.get("/{name}/files", dependencies=[guard.reads], responses=problems.responses(404))
    def list_files(
        name: Name,
        version: VersionNumber = None,
        prefix: Prefix = "",
        delimiter: Annotated[Literal["/"] | None, Query(description="list one level only, like `ls`")] = None,
        label: Label = None,
        limit: Limit = 1000,
        cursor: Annotated[str, Query(max_length=4097)] = "",
    ) -> FilesShape:
        """List the files of a dataset by path. With `delimiter=/`, list the files and folders directly below `prefix`.

        `class` selects files directly in folders of this name, at any depth; `delimiter` then has no effect.
        """
        found = store.version(name, version)
        if found.kind == "file":
            one = FileShape(path=found.filename, bytes=found.bytes, sha256=found.sha256)
            is_shown = one.path.startswith(prefix) and one.path > cursor and label is None
            return FilesShape(files=[one] if is_shown else [])
        page: list[TarMember | str]
        with TarIndex(store.index(name, found)) as index:
            if delimiter and label is None:
                page = index.level(after=cursor, prefix=prefix, limit=limit + 1)
            else:
                page = [*index.page(after=cursor, prefix=prefix, label=label, limit=limit + 1)]
        shown = page[:limit]
        files = [one for one in shown if isinstance(one, TarMember)]
        return FilesShape(
            files=[FileShape(path=file.path, bytes=file.bytes, sha256=file.sha256) for file in files],
            folders=[one for one in shown if isinstance(one, str)],
            next=None if len(page) <= limit else shown[-1] if isinstance(shown[-1], str) else shown[-1].path,
        )

    @routes.get(
        "/{name}/files/{path:path}",
        dependencies=[guard.reads],
        response_class=Response,
        responses=problems.responses(404, 412, 416)
        | {
            200: {"content": {downloads.FILE: BINARY}, "headers": _TAG},
            206: {"description": "A range", "content": {downloads.FILE: BINARY}},
            304: {"description": "Not modified"},
        },
    )
    def get_file(request: Request, name: Name, path: str, version: VersionNumber = None) -> Response:
        """Download one file of a dataset, or the part in `Range`. `ETag` is the SHA-256 of the file."""
        found = store.version(name, version)
        filename = path.rpartition("/")[2]
        if found.kind == "file":
            part, tag = (None, found.sha256) if path == found.filename else (None, "")
        else:
            with TarIndex(store.index(name, found)) as index:
                file = index.find(path)
            part, tag = ((file.start, file.bytes), file.sha256) if file else (None, "")
        if not tag:
            raise NotThereError(f"Wanted the file {path[:200]!r} of {name!r}. Found: none, in version {found.number}")
        blob = store.blob(name, found)
        return downloads.content(
            blob,
            part=part,
            tag=etag(tag),
            filename=filename,
            kind=downloads.FILE,
            method=request.method,
            headers=request.headers,
        )

    for path, endpoint in (("/{name}", get_dataset), ("/{name}/files/{path:path}", get_file)):
        known = problems.responses(404, 406, 412, 416) | {status: {"description": "As for GET"} for status in (304,)}
        head = routes.head(path, dependencies=[guard.reads], response_class=Response, responses=known)
        head(endpoint)
    add_sheet_routes(routes, store, guard)
    add_description_routes(routes, store, guard)
    add_croissant_routes(routes, store, guard)
    add_upload_routes(routes, uploads, counted, guard)
    return routes
