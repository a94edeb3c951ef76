"""The REST service: its addresses, and what each answers.

``/dataset/...`` answers as ``/datasets/...`` does. All that goes wrong is told as ``application/problem+json``.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.middleware import Middleware
from starlette.responses import Response

from formats.origin import code_version
from formats.tar_index import TarIndex
from service import downloads, pages, problems
from service.access import Access
from service.conditions import Conditions, etag
from service.errors import NotThereError
from service.guard import Guard
from service.metrics import TYPE as METRICS_TYPE
from service.metrics import Metrics
from service.problems import Watched, install
from service.shapes import (
    BINARY,
    CardShape,
    DatasetShape,
    FileShape,
    FilesShape,
    HealthShape,
    ListingShape,
    Name,
    NewDataset,
    ProblemShape,
    PublishedShape,
    VersionNumber,
    location,
    name_of,
    published,
    told,
)
from service.sheets import add_sheet_routes
from service.stores import Store
from service.upload_routes import add_upload_routes
from service.uploads import Uploads
from service.wanted import TAR, wanted_of

Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
_ALWAYS: dict[int | str, dict[str, Any]] = {
    **problems.told(400, 401, 421, 422),
    "default": {"model": ProblemShape, "description": "Problem"},
}
_BODY = {"requestBody": {"required": True, "content": {downloads.FILE: BINARY, TAR: BINARY}}}
_TAG = {"ETag": {"description": "the SHA-256 of the bytes", "schema": {"type": "string"}}}


def make_app(
    store: Store,
    *,
    access: Access,
    uploads: Uploads,
    quota: int | None = None,
) -> FastAPI:
    """The app over a store."""
    metrics = Metrics()
    app = FastAPI(
        title="imagestrata datasets",
        version=code_version(),
        description=__doc__,
        middleware=[Middleware(Watched, metrics=metrics)],
        docs_url=None,  # they would load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        responses=_ALWAYS,
    )
    install(app)
    guard = Guard(access)
    # As routes of the app's own, by which it tells methods and addresses; included ones stay behind a router.
    for router in (dataset_routes(store, uploads, metrics, guard), pages.router):
        app.router.routes.extend(router.routes)

    @app.get("/health", tags=["service"])
    def health() -> HealthShape:
        """Whether the service is up."""
        return HealthShape(status="ok", version=code_version(), used=store.used, arriving=uploads.arriving, quota=quota)

    @app.get("/metrics", tags=["service"], dependencies=[guard.reads], response_class=Response)
    def told_metrics() -> Response:
        """What the service has counted, for Prometheus."""
        metrics.used.set(store.used)
        return Response(metrics.text(), headers={"content-type": METRICS_TYPE})

    return app


def dataset_routes(store: Store, uploads: Uploads, metrics: Metrics, guard: Guard) -> APIRouter:
    """Datasets, their versions, files and uploads."""
    routes = APIRouter(prefix="/datasets", tags=["datasets"], responses=_ALWAYS)

    def entry(name: str) -> DatasetShape:
        newest = store.newest(name)
        card = {} if newest is None else newest.card
        return DatasetShape(
            name=name,
            location=location(name),
            newest=None if newest is None else told(newest),
            images=card.get("images"),
            type=card.get("type"),
        )

    async def counted(request: Request) -> AsyncIterator[bytes]:
        async for chunk in request.stream():
            metrics.received.inc(len(chunk))
            yield chunk

    @routes.get("", dependencies=[guard.reads])
    def list_datasets(limit: Limit = 1000, cursor: Annotated[str, Query(max_length=100)] = "") -> ListingShape:
        """All datasets, by name."""
        names = [name for name in store.names() if name > cursor]
        page = []
        for name in names[:limit]:
            try:
                page.append(entry(name))
            except NotThereError:  # deleted meanwhile
                continue
        return ListingShape(datasets=page, next=names[limit - 1] if len(names) > limit else None)

    @routes.post("", status_code=201, dependencies=[guard.writes], responses=problems.told(403, 409, 413, 507))
    def create_dataset(new: NewDataset, answer: Response) -> DatasetShape:
        """A new dataset, which is empty."""
        name = name_of(new.name)
        store.create(name)
        answer.headers["Location"] = location(name)
        return DatasetShape(name=name, location=location(name))

    @routes.put(
        "/{name}",
        dependencies=[guard.writes],
        openapi_extra=_BODY,
        responses=problems.told(403, 404, 412, 413, 415, 507),
    )
    async def put_dataset(
        request: Request,
        name: Name,
        answer: Response,
    ) -> PublishedShape:
        """A new version: a file, or a folder as one tar. Until all of it is there, the one before is the newest.

        `Content-Disposition` names the file (`data`, unless it is said). With `?sha256=HEX`, or `Repr-Digest` (RFC
        9530), another body than this is refused; with `If-Match`, or `If-None-Match: *`, all bodies are as soon as
        another version is the newest, or any.
        """
        digest = request.query_params.get("sha256")
        length = request.headers.get("content-length")
        wanted = wanted_of(name, request.headers, length=length, sha256=digest, by=request.state.token)
        version = await uploads.put(wanted, counted(request))
        answer.headers["ETag"] = etag(version.sha256)
        return published(name, version)

    @routes.delete("/{name}", status_code=204, dependencies=[guard.writes], responses=problems.told(403, 404, 412))
    def delete_dataset(request: Request, name: Name, version: VersionNumber = None) -> None:
        """No more of a dataset, or of one of its versions."""
        store.delete(name, version, Conditions.of(request.headers))
        if version is None:
            uploads.drop(name)

    @routes.get(
        "/{name}",
        dependencies=[guard.reads],
        response_class=Response,
        responses=problems.told(404, 406, 412, 416)
        | {
            200: {
                "content": {downloads.FILE: BINARY, downloads.TAR: BINARY, downloads.ZIP: BINARY},
                "headers": _TAG,
            },
            206: {"description": "A range", "content": {downloads.FILE: BINARY, downloads.TAR: BINARY}},
            304: {"description": "Who asks has it already"},
            307: {"description": "Elsewhere, for a while"},
        },
    )
    def get_dataset(request: Request, name: Name, version: VersionNumber = None) -> Response:
        """A dataset's bytes: the file, or the folder as tar or zip, by `Accept`.

        `Range` (with `If-Range`) asks for a part of the file or tar, `If-None-Match` for nothing that is here already.
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

    @routes.get("/{name}/card", dependencies=[guard.reads], responses=problems.told(404))
    def get_card(name: Name, version: VersionNumber = None) -> CardShape:
        """What is known of a dataset."""
        versions = list(store.versions(name))
        shown = store.version(name, version) if version or versions else None
        return CardShape(
            **entry(name).model_dump(),
            versions=[told(one) for one in reversed(versions)],
            card={} if shown is None else dict(shown.card),
        )

    @routes.get("/{name}/files", dependencies=[guard.reads], responses=problems.told(404))
    def list_files(
        name: Name,
        version: VersionNumber = None,
        prefix: Annotated[str, Query(max_length=4096)] = "",
        limit: Limit = 1000,
        cursor: Annotated[str, Query(max_length=4096)] = "",
    ) -> FilesShape:
        """The files of a dataset, by path."""
        found = store.version(name, version)
        if found.kind == "file":
            one = FileShape(path=found.filename, bytes=found.bytes, sha256=found.sha256)
            is_shown = one.path.startswith(prefix) and one.path > cursor
            return FilesShape(files=[one] if is_shown else [])
        with TarIndex(store.index(name, found)) as index:
            page = index.page(after=cursor, prefix=prefix, limit=limit + 1)
        files = [FileShape(path=file.path, bytes=file.bytes, sha256=file.sha256) for file in page[:limit]]
        return FilesShape(files=files, next=files[-1].path if len(page) > limit else None)

    @routes.get(
        "/{name}/files/{path:path}",
        dependencies=[guard.reads],
        response_class=Response,
        responses=problems.told(404, 412, 416)
        | {
            200: {"content": {downloads.FILE: BINARY}, "headers": _TAG},
            206: {"description": "A range", "content": {downloads.FILE: BINARY}},
            304: {"description": "Who asks has it already"},
        },
    )
    def get_file(request: Request, name: Name, path: str, version: VersionNumber = None) -> Response:
        """One file of a dataset, or its part in `Range`; `ETag` is the file's own SHA-256."""
        found = store.version(name, version)
        filename = path.rpartition("/")[2]
        if found.kind == "file":
            place, tag = (None, found.sha256) if path == found.filename else (None, "")
        else:
            with TarIndex(store.index(name, found)) as index:
                file = index.find(path)
            place, tag = ((file.start, file.bytes), file.sha256) if file else (None, "")
        if not tag:
            raise NotThereError(f"Wanted the file {path[:200]!r} of {name!r}. Found: none, in version {found.number}")
        blob = store.blob(name, found)
        return downloads.content(
            blob,
            part=place,
            tag=etag(tag),
            filename=filename,
            kind=downloads.FILE,
            method=request.method,
            headers=request.headers,
        )

    for path, endpoint in (("/{name}", get_dataset), ("/{name}/files/{path:path}", get_file)):
        known = problems.told(404, 406, 412, 416) | {status: {"description": "As of GET"} for status in (304,)}
        head = routes.head(path, dependencies=[guard.reads], response_class=Response, responses=known)
        head(endpoint)
    add_sheet_routes(routes, store, guard)
    add_upload_routes(routes, uploads, counted, guard)
    return routes
