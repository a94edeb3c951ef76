"""The registry of a keyspace: descriptions of feature views, splits, shards and models, by kind, name and version.

A description is a document that never changes, with an owner, a text and tags that may.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any

from etl.cassandra.control import Control
from etl.cassandra.transactions import TransactionRetries
from etl.errors import ConflictError
from schemas import TableName
from schemas.features import FeatureView
from schemas.tables import create_shared

log = logging.getLogger("imagestrata.registry")

FEATURE_VIEW, LABEL_VIEW, FEATURE_SERVICE = "feature view", "label view", "feature service"
FEATURE_EXPORT = "feature export"  # a folder of ``featurize.py --offline``
DATASET, SPLIT, SHARD_SET, MODEL = "dataset", "split", "shard set", "model"
# The kind of a label view also names its table: see `label_views_of`.
KINDS = (FEATURE_VIEW, LABEL_VIEW, FEATURE_SERVICE, FEATURE_EXPORT, DATASET, SPLIT, SHARD_SET, MODEL)

_COLUMNS = "kind, name, version, document, owner, description, tags, registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One version of a registered object."""

    kind: str  # one of `KINDS`, or `label_views_of` a table
    name: str
    version: int  # from 1
    document: str  # its definition as JSON text
    owner: str = ""  # who is responsible for it
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)  # further words about it, by name
    registered: datetime | None = field(default=None, compare=False)  # UTC

    @property
    def title(self) -> str:
        """The name with the version: ``sharpness@v2``."""
        return f"{self.name}@v{self.version}"


def label_views_of(metadata: TableName) -> str:
    """The kind of a metadata table's label views."""
    return f"{LABEL_VIEW} of {metadata.table}"


def create(control: Control, *, keyspace: str) -> None:
    """Create the registry of a keyspace unless it exists."""
    if control.columns(_table(keyspace)) is None:
        control.define(create_shared("registry", keyspace))


def entries(control: Control, *, keyspace: str, kind: str, name: str | None = None) -> list[Entry]:
    """Read the registered objects of a kind, or of one name: all versions, by name, the newest first."""
    if control.columns(_table(keyspace)) is None:
        return []
    query = f"SELECT {_COLUMNS} FROM {_table(keyspace).quoted} WHERE kind = ?"
    if name is None:
        rows = control.execute(query, (kind,), is_serial=True)
    else:
        rows = control.execute(f"{query} AND name = ?", (kind, name), is_serial=True)
    return [_entry(row) for row in rows]


def everything(control: Control, *, keyspace: str) -> list[Entry]:
    """All registered objects of a keyspace, by kind and name, the newest version first. Reads the whole table."""
    if control.columns(_table(keyspace)) is None:
        return []
    found = [_entry(row) for row in control.execute(f"SELECT {_COLUMNS} FROM {_table(keyspace).quoted}")]
    return sorted(found, key=lambda one: (one.kind, one.name, -one.version))


def describe(
    control: Control,
    entry: Entry,
    *,
    keyspace: str,
    owner: str | None = None,
    description: str | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> Entry:
    """Change the owner and the description of a registered object, unless they are None, and set tags; an empty value
    removes a tag. Returns the changed object. Raises `UnreachableError`.
    """
    owner = entry.owner if owner is None else owner
    description = entry.description if description is None else description
    kept = {name: value for name, value in {**entry.tags, **tags}.items() if value}
    update = f"UPDATE {_table(keyspace).quoted} SET owner = ?, description = ?, tags = ?"
    update += " WHERE kind = ? AND name = ? AND version = ? IF EXISTS"
    retries = TransactionRetries(f"Wanted to describe {entry.name} in {keyspace}.registry at {control.cluster}.")
    while not control.apply([(update, (owner, description, kept, entry.kind, entry.name, entry.version))]):
        retries.wait()
    return replace(entry, owner=owner, description=description, tags=kept)


def register(control: Control, entry: Entry, *, keyspace: str) -> Entry:
    """Register an object in a lightweight transaction, unless that version exists, and return what is registered now.
    The registry must exist. Raises `UnreachableError`.
    """
    names = "?, ?, ?, ?, ?, ?, ?, ?"
    insert = f"INSERT INTO {_table(keyspace).quoted} ({_COLUMNS}) VALUES ({names}) IF NOT EXISTS"
    key = (entry.kind, entry.name, entry.version)
    notes = (entry.owner, entry.description, dict(entry.tags))
    retries = TransactionRetries(f"Wanted to register {entry.name} in {keyspace}.registry at {control.cluster}.")
    while True:
        control.apply([(insert, (*key, entry.document, *notes, entry.registered or datetime.now(UTC)))])
        found = entries(control, keyspace=keyspace, kind=entry.kind, name=entry.name)
        for one in found:
            if one.version == entry.version:
                return one
        retries.wait()


def registered_views(
    control: Control, *, keyspace: str, name: str | None = None, kind: str = FEATURE_VIEW
) -> list[FeatureView]:
    """The registered feature or label views of a keyspace, by name, the newest version first."""
    found = entries(control, keyspace=keyspace, kind=kind, name=name)
    return [_view(entry, keyspace=keyspace) for entry in found]


def register_view(control: Control, view: FeatureView, *, keyspace: str, kind: str = FEATURE_VIEW) -> None:
    """Register a view unless it is registered. Raises `ConflictError` if another one has this name and version."""
    check_view_name(control, view.name, keyspace=keyspace, kind=kind)
    entry = Entry(kind=kind, name=view.name, version=view.version, document=view.to_json())
    there = _view(register(control, entry, keyspace=keyspace), keyspace=keyspace)
    if there != view:
        raise ConflictError(
            f"Wanted to register {view.title} with {_described(view)}. Found: {_described(there)} under this name. "
            "Another run registered it in the meantime, or another version of imagestrata did. Run "
            "this again, or use another name."
        )


def check_view_name(control: Control, name: str, *, keyspace: str, kind: str = FEATURE_VIEW) -> None:
    """Raise `ConflictError` if a label view has the name of a feature view, or the other way round: whoever reads a
    view says its name alone.
    """
    is_of_features = kind == FEATURE_VIEW
    for entry in everything(control, keyspace=keyspace):
        is_view = entry.kind == FEATURE_VIEW or entry.kind.startswith(LABEL_VIEW)
        if is_view and entry.name == name and (entry.kind == FEATURE_VIEW) != is_of_features:
            raise ConflictError(
                f"Wanted {name} as the name of a {FEATURE_VIEW if is_of_features else LABEL_VIEW}. Found: a "
                f"{entry.kind} of this name in {keyspace}. Use another name."
            )


def _view(entry: Entry, *, keyspace: str) -> FeatureView:
    view = FeatureView.from_json(entry.document, place=f"{keyspace}.registry, {entry.title}")
    if ttl := json.loads(entry.document).get("ttl"):
        _warn_of_ttl(keyspace, entry.title, ttl)
    return view


@cache
def _warn_of_ttl(keyspace: str, title: str, ttl: object) -> None:
    """Say once of a view that an earlier version gave it a ttl."""
    log.warning(
        "%s of %s was registered with a ttl of %s s, which no longer counts: its values stay. Make a new version to "
        "compute them again.", title, keyspace, ttl,
    )  # fmt: skip


def _described(view: FeatureView) -> str:
    return f"{', '.join(f'{name} {kind}' for name, kind in view.fields.items())} from {view.source}"


def remove(control: Control, entry: Entry, *, keyspace: str) -> None:
    """Remove a registered object. What it describes stays. Raises `UnreachableError`."""
    delete = f"DELETE FROM {_table(keyspace).quoted} WHERE kind = ? AND name = ? AND version = ? IF EXISTS"
    retries = TransactionRetries(f"Wanted to remove {entry.title} from {keyspace}.registry at {control.cluster}.")
    while not control.apply([(delete, (entry.kind, entry.name, entry.version))]):
        left = entries(control, keyspace=keyspace, kind=entry.kind, name=entry.name)
        if all(one.version != entry.version for one in left):
            return
        retries.wait()


def _table(keyspace: str) -> TableName:
    return TableName(keyspace, "registry")


def _entry(row: Any) -> Entry:
    return Entry(
        kind=row.kind,
        name=row.name,
        version=row.version,
        document=row.document,
        owner=row.owner or "",
        description=row.description or "",
        tags=dict(row.tags or {}),
        registered=row.registered,
    )
