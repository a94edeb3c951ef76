"""Datasets by name, in versions that never change.

``/dataset/...`` is an alias of ``/datasets/...``. Errors are ``application/problem+json``.
"""

from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.responses import Response

from formats.origin import code_version
from imagestrata.service.access import Access
from imagestrata.service.guard import READS
from imagestrata.service.server import pages, problems
from imagestrata.service.server.admission import Admission
from imagestrata.service.server.content_routes import add_content_routes, add_file_list_route
from imagestrata.service.server.croissant_routes import add_croissant_routes
from imagestrata.service.server.dataset_routes import add_dataset_routes, add_description_routes, add_version_routes
from imagestrata.service.server.early_answers import EarlyAnswers
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

_ALWAYS: dict[int | str, dict[str, Any]] = {
    **problems.responses(400, 401, 421, 422),
    "default": {"model": ProblemShape, "description": "Problem"},
}


def make_app(
    store: Store,
    *,
    access: Access,
    hosts: Hosts,
    uploads: Uploads,
    quota: int | None = None,
) -> FastAPI:
    """Create the app. ``quota`` is what ``/health`` reports, in bytes."""
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
    # Added as routes of the app itself, because `problems` looks up methods in app.routes.
    for router in (_dataset_routes(store, uploads, metrics), pages.router):
        app.router.routes.extend(router.routes)

    @app.get("/health", tags=["service"], responses=problems.responses(503))
    async def health() -> HealthShape:
        """Report whether the service can answer requests, and how much space is used."""
        await access.check_tokens()
        room = store.room
        return HealthShape(status="ok", version=code_version(), used=room.used, arriving=room.arriving, quota=quota)

    @app.get("/metrics", tags=["service"], dependencies=[READS], response_class=Response)
    def get_metrics() -> Response:
        """Return the metrics of the service in the text format of Prometheus."""
        metrics.used.set(store.room.used)
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
