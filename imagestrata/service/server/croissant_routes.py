"""The route of Croissant descriptions: ``/datasets/NAME/croissant``."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from formats import croissant
from formats.tar_index import TarIndex
from imagestrata.service.access import READS
from imagestrata.service.server import downloads, problems
from imagestrata.service.server.shapes import Name, VersionNumber
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.cards import manifests
from schemas import SchemaError, SplitManifest
from schemas.datasets import DatasetVersion
from schemas.shards import ShardManifest

_OBJECT = {"schema": {"type": "object", "additionalProperties": True}}


def add_croissant_routes(routes: APIRouter, store: Store) -> None:
    """Add the route of Croissant descriptions."""

    @routes.get(
        "/{name}/croissant",
        dependencies=[READS],
        response_class=Response,
        responses=problems.responses(404) | {200: {"content": {croissant.MEDIA_TYPE: _OBJECT}}},
    )
    def get_croissant(request: Request, name: Name, version: VersionNumber = None) -> Response:
        """Describe a version as Croissant 1.1 (JSON-LD): its files, samples, classes and splits. Addresses in the
        description begin with the address of this request.
        """
        found = store.version(name, version)
        node = _described(store, name, found, base=f"{request.base_url}datasets/{name}")
        return Response(croissant.text_of(node), media_type=croissant.MEDIA_TYPE)


def _described(store: Store, name: str, version: DatasetVersion, *, base: str) -> dict[str, Any]:
    query = f"?version={version.number}"
    served = croissant.Served(
        url=base + query,
        version=version.number,
        filename=version.filename,
        media_type=downloads.FILE if version.kind == "file" else downloads.TAR,
        bytes=version.bytes,
        sha256=version.sha256,
        created=version.created,
        files=f"{base}/files/",
        query=query,
        text=store.description(name),
    )
    card = version.card
    if card.get("type") in ("splits", "shards"):
        return _of_manifest(store, name, version, served)
    if card.get("type") != "images":
        return croissant.file_croissant(name=name, served=served)
    return croissant.folders_croissant(
        name=name, served=served, images=card["images"], classes=_classes(card), splits=_splits(card)
    )


def _of_manifest(store: Store, name: str, version: DatasetVersion, served: croissant.Served) -> dict[str, Any]:
    """Describe a version by the manifest in its tar, from which its card was made."""
    with closing(store.blob(name, version)) as blob, TarIndex(store.index(name, version)) as index:
        for folder, member in manifests(index):
            text = blob.read(member.start, member.bytes).decode("utf-8", "replace")
            inside = replace(served, folder=folder)
            try:
                if version.card["type"] == "shards":
                    of_shards = ShardManifest.from_json(text, place=member.path)
                    return croissant.shards_croissant(of_shards, name=name, served=inside)
                of_splits = SplitManifest.from_json(text, place=member.path)
                return croissant.split_croissant(of_splits, name=name, served=inside)
            except (SchemaError, TypeError, ValueError, AttributeError):  # a file with the name of a manifest
                continue
    return croissant.file_croissant(name=name, served=served)


def _classes(card: Mapping[str, Any]) -> list[str]:
    """The names of all classes; none if the card does not list all."""
    names = list(card.get("classes", {}))
    return names if len(names) == card.get("num_classes") else []


def _splits(card: Mapping[str, Any]) -> list[str]:
    """The names of all splits; none if the card does not list all, or if a name has several folders."""
    names = [one["name"] for one in card.get("splits", [])]
    is_plain = len(names) == card.get("num_splits") and not any("/" in name for name in names)
    return names if is_plain else []
