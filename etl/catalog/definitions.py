"""Definitions in TOML files: feature views, feature services and datasets, as a keyspace's registry should have them.

A definition is never changed: another definition is the next version. Owner, description and tags may change.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import (
    DATASET,
    FEATURE_EXPORT,
    FEATURE_SERVICE,
    FEATURE_VIEW,
    LABEL_VIEW,
    MODEL,
    SPLIT,
    Entry,
)
from etl.errors import ConflictError, SourceError, TableError
from etl.features.computing import builtin
from etl.features.computing.functions import digest_of, is_unchanged
from etl.features.services import views_of
from etl.tables.table_records import read_records
from schemas import SchemaError, TableName
from schemas.feature_sources import Builtin, Labels, Python, parse_source
from schemas.features import FeatureView, ViewName

FORMAT = 1

_NOTES = {"owner", "description", "tags"}
_SECTIONS = {
    "feature_view": (FEATURE_VIEW, {"name", "version", "source", "fields"}),
    "feature_service": (FEATURE_SERVICE, {"name", "version", "views"}),
    "dataset": (DATASET, {"name"}),
}
_DEFINED = tuple(kind for kind, _ in _SECTIONS.values())
_VIEWS_IN = {FEATURE_SERVICE: "views", FEATURE_VIEW: "uses", FEATURE_EXPORT: "features", SPLIT: "features"}
"""Where the document of each kind has the feature views that it uses."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an `apply` does with one entry."""

    action: str  # ``add``, ``describe`` (owner, description or tags), ``remove`` or ``keep``
    entry: Entry  # as it will be, or the one to remove
    tables: tuple[TableName, ...] = ()  # the tables of values that are dropped with it
    lines: tuple[str, ...] = field(default=())  # what changes, for people

    def __str__(self) -> str:
        what = {"add": "+ add", "describe": "~ change", "remove": "- remove", "keep": "  unchanged"}[self.action]
        dropped = [f"drops {table}" for table in self.tables]
        return "\n    ".join([f"{what} {self.entry.kind} {self.entry.title}", *self.lines, *dropped])


def read_definitions(place: str) -> list[Entry]:
    """The entries that a TOML file, or the files ``*.toml`` of a folder, define. Raises `SourceError`, which names the
    file, and `FunctionError` if the function of a feature view does not exist.
    """
    path = Path(place)
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not files:
        raise SourceError(f"Wanted definitions in {place}. Found: no file *.toml in it.")
    found: dict[tuple[str, str, int], str] = {}
    entries = []
    for file in files:
        for entry in _entries(file):
            key = (entry.kind, entry.name, entry.version)
            if key in found:
                raise SourceError(f"Wanted {entry.kind} {entry.title} once. Found: in {found[key]} and in {file}.")
            found[key] = str(file)
            entries.append(entry)
    return entries


def _entries(file: Path) -> Iterator[Entry]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise SourceError(f"Wanted definitions in {file}. Found: {error}") from None
    for section, tables in document.items():
        if section not in _SECTIONS or not isinstance(tables, list):
            wanted = ", ".join(f"[[{name}]]" for name in _SECTIONS)
            raise SourceError(f"Wanted {wanted} in {file}. Found: {section}.")
        for table in tables:
            try:
                yield _entry(section, table)
            except (SchemaError, SourceError, KeyError, TypeError, ValueError, AttributeError) as error:
                name = table.get("name", "one without a name") if isinstance(table, dict) else table
                told = f"no {error}" if isinstance(error, KeyError) else error
                raise SourceError(f"Wanted a valid [[{section}]] {name} in {file}. Found: {told}") from None


def _entry(section: str, table: Mapping[str, Any]) -> Entry:
    kind, known = _SECTIONS[section]
    if kind == FEATURE_VIEW and "ttl" in table:
        raise SourceError(
            "a ttl. Feature views have no ttl, because values of the same bytes do not age. Remove it, and make a new "
            "version to compute all values again"
        )
    if strange := sorted(table.keys() - known - _NOTES):
        raise SourceError(f"{', '.join(strange)}, which it does not have. It has {', '.join(sorted(known | _NOTES))}.")
    tags = table.get("tags", {})
    if not all(isinstance(text, str) for text in (table["name"], table.get("owner", ""), *tags, *tags.values())):
        raise SourceError("a name, owner or tag that is not text")
    version = table.get("version", 1)
    document = _view(table) if kind == FEATURE_VIEW else _service(table) if kind == FEATURE_SERVICE else "{}"
    return Entry(
        kind=kind,
        name=table["name"],
        version=version,
        document=document,
        owner=table.get("owner", ""),
        description=table.get("description", ""),
        tags={name: value for name, value in tags.items() if value},
    )


def _view(table: Mapping[str, Any]) -> str:
    name, text = table["name"], table["source"]
    source = parse_source(text)
    if isinstance(source, Builtin) or name in builtin.VIEWS:
        view = builtin.view_of(name) if name in builtin.VIEWS else None
        if view is None or source != view.source or table.get("version", view.version) != view.version:
            title = f"{name}@v{table['version']}" if "version" in table else name
            names = ", ".join(builtin.view_of(one).title for one in builtin.VIEWS)
            raise SourceError(f"{title} from {source}. Built-in views are {names}.")
        if "fields" in table:
            raise SourceError("fields of a built-in view, which is defined already")
        return view.to_json()
    if isinstance(source, Labels):
        raise SourceError(f"{text}. Add versions of a label view with relabel.py")
    if not isinstance(source, Python):
        raise SourceError(f"{text}. Define it with featurize.py --features {name}={text}")
    return FeatureView(
        name=name,
        version=table.get("version", 1),
        fields=dict(table["fields"]),
        source=source,
        digest=digest_of(source),
    ).to_json()


def _service(table: Mapping[str, Any]) -> str:
    views = [ViewName.parse(text) for text in table["views"]]
    if not views or any(view.version is None for view in views):
        named = ", ".join(map(str, views)) or "no views"
        raise SourceError(f"{named}. A feature service names versions of views: sharpness@v2.")
    ViewName(table["name"], table.get("version", 1))
    return json.dumps({"format": FORMAT, "views": [str(view) for view in views]}, sort_keys=True)


def plan_changes(
    control: Control, wanted: Sequence[Entry], *, keyspace: str, prune: bool = False, drop_values: bool = False
) -> list[Change]:
    """What to do so that the registry of a keyspace has these definitions and, with ``prune``, no others; writes
    nothing. ``drop_values`` allows that tables of values are dropped. Raises `ConflictError` for a definition that
    differs from the registered one and a removal of what is in use, `TableError` for a view or dataset that is missing.
    """
    known = [one for one in registry.everything(control, keyspace=keyspace) if one.kind in _DEFINED]
    changes = [_change(entry, known, wanted) for entry in wanted]
    for entry in wanted:
        if entry.kind == FEATURE_VIEW:
            registry.check_view_name(control, entry.name, keyspace=keyspace)
    _check_services(wanted, known)
    _check_datasets(control, wanted, keyspace=keyspace)
    if prune:
        kept = {(entry.kind, entry.name, entry.version) for entry in wanted}
        for entry in known:
            if (entry.kind, entry.name, entry.version) not in kept:
                changes.append(removal(control, entry, keyspace=keyspace, drop_values=drop_values, beside=kept))
    return changes


def _change(entry: Entry, known: Sequence[Entry], wanted: Sequence[Entry]) -> Change:
    versions = {one.version: one for one in known if (one.kind, one.name) == (entry.kind, entry.name)}
    there = versions.get(entry.version)
    if there is None:
        same_file = {one.version for one in wanted if (one.kind, one.name) == (entry.kind, entry.name)}
        allowed = 1 + max([0, *versions, *(one for one in same_file if one < entry.version)])
        if entry.version != allowed:
            raise ConflictError(f"Wanted {entry.name}@v{allowed}, the next version. Found: {entry.title}.")
        return Change("add", entry)
    if lines := _differences(there, entry):
        newest = max(versions)
        raise ConflictError(
            f"Wanted {entry.kind} {entry.title} as it is registered. Found: {'; '.join(lines)}. A definition never "
            f"changes. Set version = {newest + 1}, or restore the old definition."
        )
    lines = [
        f"{name}: {getattr(there, name)!r} -> {getattr(entry, name)!r}"
        for name in ("owner", "description")
        if getattr(entry, name) != getattr(there, name)
    ]
    if dict(entry.tags) != dict(there.tags):
        lines.append(f"tags: {dict(there.tags)} -> {dict(entry.tags)}")
    return Change("describe" if lines else "keep", entry, lines=tuple(lines))


def _differences(there: Entry, entry: Entry) -> list[str]:
    """How a definition differs from the registered one."""
    before, after = _defined(there), _defined(entry)
    if entry.kind == FEATURE_VIEW and before["source"] == after["source"]:
        source = parse_source(after["source"])
        if isinstance(source, Python) and is_unchanged(source, before["digest"]):
            after["digest"] = before["digest"]
    return [
        f"{name} {after.get(name)!r} instead of {before.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _defined(entry: Entry) -> dict[str, Any]:
    """The fields of a definition; those of a feature view also if an older version of the software wrote it."""
    text = entry.document
    if entry.kind == FEATURE_VIEW:
        text = FeatureView.from_json(text, place=f"the registry, {entry.title}").to_json()
    return dict(json.loads(text))


def _check_services(wanted: Sequence[Entry], known: Sequence[Entry]) -> None:
    views = {entry.title for entry in (*wanted, *known) if entry.kind == FEATURE_VIEW}
    for entry in wanted:
        if entry.kind == FEATURE_SERVICE and (missing := [one for one in views_of(entry) if one not in views]):
            raise TableError(
                f"Wanted feature views of {entry.title} that are registered or defined beside it. Found: no "
                f"{', '.join(missing)}. There are {', '.join(sorted(views)) or 'none'}."
            )


def _check_datasets(control: Control, wanted: Sequence[Entry], *, keyspace: str) -> None:
    there = {record.dataset for record in read_records(control, keyspace=keyspace)}
    for entry in wanted:
        if entry.kind == DATASET and entry.name not in there:
            raise TableError(
                f"Wanted a dataset of {keyspace}: {', '.join(sorted(there)) or 'it has none yet'}. Found: {entry.name}."
            )


def removal(
    control: Control,
    entry: Entry,
    *,
    keyspace: str,
    drop_values: bool,
    beside: set[tuple[str, str, int]] | None = None,
) -> Change:
    """Plan the removal of an entry. Writes nothing. ``drop_values`` allows that the tables of a feature view's values
    are dropped, and ``beside`` has the kind, name and version of the entries that stay; None for all others. Raises
    `ConflictError` if it is pinned, another object uses it, or its values would be dropped.
    """
    if entry.tags.get("pinned") == "true":
        raise ConflictError(
            f"Wanted to remove {entry.kind} {entry.title}, which is not pinned. Found: the tag pinned=true. "
            f"Remove the tag first: imagestrata registry tag {entry.kind.replace(' ', '-')} {entry.title} pinned= "
            f"-k {keyspace}"
        )
    others = [
        one
        for one in registry.everything(control, keyspace=keyspace)
        if one != entry and (beside is None or one.kind not in _DEFINED or (one.kind, one.name, one.version) in beside)
    ]
    if users := [f"{one.kind} {one.title}" for one in others if _uses(one, entry)]:
        raise ConflictError(
            f"Wanted to remove {entry.kind} {entry.title}, which nothing uses. Found: {', '.join(users[:5])}. "
            "Delete these first."
        )
    later = [one.title for one in others if (one.kind, one.name) == (entry.kind, entry.name)
             and one.version > entry.version]  # fmt: skip
    if entry.kind.startswith(LABEL_VIEW) and later:
        raise ConflictError(
            f"Wanted to remove the newest version of {entry.name}, because later versions keep labels of earlier ones. "
            f"Found: {', '.join(sorted(later))} after {entry.title}."
        )
    tables = _value_tables(control, entry, keyspace=keyspace) if entry.kind == FEATURE_VIEW else ()
    if tables and not drop_values:
        raise ConflictError(
            f"Wanted to remove {entry.kind} {entry.title} without its values. Found: values in "
            f"{', '.join(map(str, tables))}. Add --drop-values to drop them, too."
        )
    return Change("remove", entry, tables=tables)


def _uses(one: Entry, entry: Entry) -> bool:
    """Whether a registered object names another one."""
    document = json.loads(one.document)
    if entry.kind == FEATURE_VIEW:
        return entry.title in document.get(_VIEWS_IN.get(one.kind), ())
    if entry.kind == FEATURE_SERVICE:
        return one.kind == SPLIT and entry.title in document.get("services", ())
    if entry.kind.startswith(LABEL_VIEW):
        metadata = str(document.get("metadata_table", ""))
        is_same_table = entry.kind == registry.label_views_of(TableName.parse(metadata)) if metadata else False
        return one.kind == SPLIT and is_same_table and document.get("label_view") == entry.title
    if entry.kind == SPLIT and one.kind == MODEL:
        prints = set(json.loads(entry.document)["fingerprint"])
        return any(images["fingerprint"] in prints for images in document["images"].values())
    return False


def _value_tables(control: Control, entry: Entry, *, keyspace: str) -> tuple[TableName, ...]:
    """The tables of a view's values and their vector indexes, by their names and columns: also of metadata tables that
    other tools made.
    """
    view = FeatureView.from_json(entry.document, place=f"{keyspace}.registry")
    names = control.tables(keyspace)
    needed = {"id", "sequence", "sha256", "error", *view.fields}
    found = []
    for name in sorted(name for name in names if name.endswith(f"_{view.name}_v{view.version}")):
        if needed <= (control.columns(TableName(keyspace, name)) or {}).keys():
            # An index that stayed would give its vectors to another view of this name and version.
            found += [TableName(keyspace, one) for one in (name, f"{name}_index") if one in names]
    return tuple(found)


def apply_changes(control: Control, changes: Sequence[Change], *, keyspace: str) -> None:
    """Make the changes of `plan_changes` or `removal`. Raises `ConflictError` if another definition was registered in
    the meantime, and `UnreachableError`.
    """
    registry.create(control, keyspace=keyspace)
    for change in changes:
        entry = change.entry
        if change.action == "add":
            found = registry.register(control, entry, keyspace=keyspace)
            if _differences(found, entry):
                raise ConflictError(
                    f"Wanted to register {entry.kind} {entry.title}. Found: another definition, which was registered "
                    "in the meantime. Run apply again."
                )
        elif change.action == "describe":
            registry.describe(control, entry, keyspace=keyspace)
        elif change.action == "remove":
            for table in change.tables:
                control.define(f"DROP TABLE IF EXISTS {table.quoted}")
            registry.remove(control, entry, keyspace=keyspace)
