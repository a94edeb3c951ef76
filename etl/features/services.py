"""Feature services: named and versioned lists of feature views, which a service's name stands for."""

import json
from collections.abc import Sequence

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import FEATURE_SERVICE, Entry
from etl.errors import TableError
from schemas.features import ServiceName, ViewName


def views_of(service: Entry) -> list[str]:
    """The feature views of a registered feature service, ``name@v1``."""
    return list(json.loads(service.document)["views"])


def with_services(
    control: Control, features: Sequence[ViewName | ServiceName], *, keyspace: str
) -> tuple[tuple[ViewName, ...], dict[str, tuple[str, ...]]]:
    """The feature views that names of views and services stand for, each once, and the views of each service, by its
    title. Raises `TableError` for a service that is not registered, and for two versions of a view.
    """
    found: dict[str, ViewName] = {}
    services: dict[str, tuple[str, ...]] = {}
    for feature in features:
        views = [feature] if isinstance(feature, ViewName) else []
        if isinstance(feature, ServiceName):
            entry = _registered(control, feature, keyspace=keyspace)
            services[entry.title] = tuple(views_of(entry))
            views = [ViewName.parse(title) for title in services[entry.title]]
        for view in views:
            other = found.setdefault(view.name, view)
            if None not in (view.version, other.version) and view != other:
                raise TableError(
                    f"Wanted one version of {view.name}. Found: {other} and {view} in {', '.join(map(str, features))}."
                )
            found[view.name] = other if view.version is None else view
    return tuple(found.values()), services


def _registered(control: Control, name: ServiceName, *, keyspace: str) -> Entry:
    known = registry.entries(control, keyspace=keyspace, kind=FEATURE_SERVICE)
    for entry in known:  # the newest version first
        if entry.name == name.service.name and name.service.version in (None, entry.version):
            return entry
    titles = ", ".join(entry.title for entry in known) or "none"
    raise TableError(
        f"Wanted a feature service of {keyspace}: {titles}. Found: {name}. Define it in a file, and register it: "
        "imagestrata registry apply"
    )
