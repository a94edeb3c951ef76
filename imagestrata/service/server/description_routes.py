"""The routes of descriptions: ``/datasets/NAME/description``."""

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from imagestrata.service.errors import RequestError, TooLargeError, TypeOfBodyError
from imagestrata.service.guard import Guard
from imagestrata.service.server import problems
from imagestrata.service.server.shapes import DescriptionShape, Name
from imagestrata.service.stores.store import Store

_JSON = "application/json"
_SCHEMA = {"schema": {"$ref": "#/components/schemas/DescriptionShape"}}
_BODY = {"requestBody": {"required": True, "content": {_JSON: _SCHEMA}}}
_MOST_BYTES = 1 << 17  # JSON may need twelve bytes for a character


def add_description_routes(routes: APIRouter, store: Store, guard: Guard) -> None:
    """Add the routes of descriptions."""

    @routes.get("/{name}/description", dependencies=[guard.reads], responses=problems.responses(404))
    def get_description(name: Name) -> DescriptionShape:
        """Get the description of a dataset."""
        return DescriptionShape(description=store.description(name))

    @routes.put(
        "/{name}/description",
        dependencies=[guard.writes],
        openapi_extra=_BODY,
        responses=problems.responses(403, 404, 413, 415, 507),
    )
    async def put_description(request: Request, name: Name) -> DescriptionShape:
        """Replace the description of a dataset. It belongs to all versions; the last write wins."""
        new = await _description_of(request)
        await run_in_threadpool(store.describe, name, new.description)
        return new


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
