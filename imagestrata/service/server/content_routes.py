"""The routes of contents: datasets and their files, whole or in part, and the list of files."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from formats.tar_index import TarIndex, TarMember
from imagestrata.service.access import READS
from imagestrata.service.conditions import etag
from imagestrata.service.errors import NotThereError
from imagestrata.service.server import downloads, problems
from imagestrata.service.server.shapes import BINARY, FileShape, FilesShape, Label, Limit, Name, Prefix, VersionNumber
from imagestrata.service.stores.store import Store
from schemas.datasets import DatasetVersion

_TAG = {"ETag": {"description": "the SHA-256 of the content", "schema": {"type": "string"}}}
_WHOLE: dict[int | str, dict[str, Any]] = {
    **problems.responses(404, 406, 412, 416),
    200: {"content": {downloads.FILE: BINARY, downloads.TAR: BINARY, downloads.ZIP: BINARY}, "headers": _TAG},
    206: {"description": "A range", "content": {downloads.FILE: BINARY, downloads.TAR: BINARY}},
    304: {"description": "Not modified"},
    307: {"description": "Redirect to a temporary address in the bucket"},
}
_FILE: dict[int | str, dict[str, Any]] = {
    **problems.responses(404, 412, 416),
    200: {"content": {downloads.FILE: BINARY}, "headers": _TAG},
    206: {"description": "A range", "content": {downloads.FILE: BINARY}},
    304: {"description": "Not modified"},
}
_HEAD = problems.responses(404, 406, 412, 416) | {304: {"description": "As for GET"}}


def add_content_routes(routes: APIRouter, store: Store) -> None:
    """Add the routes that download a dataset or one of its files."""

    @routes.get("/{name}", dependencies=[READS], response_class=Response, responses=_WHOLE)
    def get_dataset(request: Request, name: Name, version: VersionNumber = None) -> Response:
        """Download a dataset: the file, or the folder as a tar or zip, as `Accept` says. `Range`, optionally with
        `If-Range`, requests a part of the file or tar. A matching `If-None-Match` returns 304.
        """
        found = store.version(name, version)
        form = downloads.form_of(found, request.headers.get("accept"))
        blob = store.blob(name, found)
        if form == downloads.ZIP:
            tag, index = etag(found.sha256, "zip"), store.index(name, found)
            return downloads.zipped(blob, index, tag=tag, filename=f"{name}.zip", request=request)
        tag = etag(found.sha256)
        return downloads.content(blob, part=None, tag=tag, filename=found.filename, kind=form, request=request)

    @routes.get("/{name}/files/{path:path}", dependencies=[READS], response_class=Response, responses=_FILE)
    def get_file(request: Request, name: Name, path: str, version: VersionNumber = None) -> Response:
        """Download one file of a dataset, or the part in `Range`. `ETag` is the SHA-256 of the file."""
        found = store.version(name, version)
        part, sha256 = _located(store, name, found, path)
        blob, tag, filename = store.blob(name, found), etag(sha256), path.rpartition("/")[2]
        return downloads.content(blob, part=part, tag=tag, filename=filename, kind=downloads.FILE, request=request)

    for path, endpoint in (("/{name}", get_dataset), ("/{name}/files/{path:path}", get_file)):
        routes.head(path, dependencies=[READS], response_class=Response, responses=_HEAD)(endpoint)


def _located(store: Store, name: str, version: DatasetVersion, path: str) -> tuple[tuple[int, int] | None, str]:
    """The place of a file in the blob of a version, None for all of it, and its SHA-256. Raises `NotThereError`."""
    if version.kind == "file":
        if path == version.filename:
            return None, version.sha256
    else:
        with TarIndex(store.index(name, version)) as index:
            file = index.find(path)
        if file is not None:
            return (file.start, file.bytes), file.sha256
    raise NotThereError(f"Wanted the file {path[:200]!r} of {name!r}. Found: none, in version {version.number}")


def add_file_list_route(routes: APIRouter, store: Store) -> None:
    """Add the route that lists files."""

    @routes.get("/{name}/files", dependencies=[READS], responses=problems.responses(404))
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
