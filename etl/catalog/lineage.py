"""Lineage: from a model, shards or a split back to tables and runs, and from an image to everything that holds it.

Products are linked by fingerprints, never by addresses alone: other files at the address of a registered split are not
that split. What can no longer be read is reported as not known.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from etl.cassandra import registry
from etl.cassandra.control import Control, check_columns
from etl.cassandra.registry import FEATURE_EXPORT, FEATURE_VIEW, LABEL_VIEW, MODEL, SHARD_SET, SPLIT
from etl.catalog.products import Product
from etl.errors import TableError
from etl.labels.corrections import State
from etl.labels.versions import labels_of_image
from etl.tables.current_form import not_migrated
from etl.tables.metadata_table import history_in
from etl.tables.runs import RecordedRun, recorded_runs
from etl.tables.states import is_deleted, last_removal
from etl.tables.table_records import dataset_of, record_of
from formats import FormatsError, open_split
from formats.shards.lookup import find_in_shards
from formats.stores.storage import Storage
from schemas import SchemaError, TableName
from schemas.identity import ids_of_path
from schemas.shards import NAME as SHARD_MANIFEST
from schemas.shards import ShardManifest

IMAGE, TABLE, RUN, FILES = "image", "table", "run", "files"

_NO_IMAGES = ("features", "forget")  # the kinds of runs that write neither images nor labels


@dataclass(frozen=True, slots=True)
class Node:
    """A thing in a lineage: its kind, its name, a short description, and all that is known of it."""

    kind: str
    name: str
    summary: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """What identifies it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Edge:
    """A use of one thing, by key, in another one, and how: ``split 0, position 17``."""

    source: str
    target: str
    text: str = ""


@dataclass(slots=True)
class Lineage:
    """The lineage of a subject."""

    subject: Node
    nodes: dict[str, Node] = field(default_factory=dict)  # by key, with the subject
    edges: list[Edge] = field(default_factory=list)  # from each thing to those that were made from it
    # of an image: the states that runs have replaced or removed, the newest first
    history: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # what could not be found out, and why

    def __post_init__(self) -> None:
        self.nodes[self.subject.key] = self.subject

    def add(self, node: Node) -> Node:
        """Add a thing unless it is there."""
        return self.nodes.setdefault(node.key, node)

    def link(self, source: Node, target: Node, text: str = "") -> None:
        """Add a use unless it is there."""
        edge = Edge(self.add(source).key, self.add(target).key, text)
        if edge not in self.edges:
            self.edges.append(edge)

    def as_dict(self) -> dict[str, Any]:
        """The lineage for JSON."""
        return {
            "subject": self.subject.key,
            "nodes": [
                {"id": one.key, "kind": one.kind, "name": one.name, "details": dict(one.details)}
                for one in self.nodes.values()
            ],
            "edges": [{"from": edge.source, "to": edge.target, "text": edge.text} for edge in self.edges],
            "history": self.history,
            "not_known": self.unknown,
        }


@dataclass(frozen=True, slots=True)
class _Made:
    """A registered product, or one that is not registered."""

    kind: str
    title: str
    document: Mapping[str, Any]

    @property
    def address(self) -> str:
        return str(self.document["address"])

    @property
    def prints(self) -> tuple[str, ...]:
        return tuple(self.document["fingerprint"])

    @property
    def node(self) -> Node:
        return Node(self.kind, self.title, details=self.document)


_Holders = dict[str, tuple[Node, int | None] | None]
"""What holds an image, with its position there, by fingerprint; None for what does not hold it."""


@dataclass(frozen=True, slots=True)
class UsedImages:
    """The images of a model: its use of them (``training``), the fingerprint of their split, when that was made, where
    it may be, at the address that the model recorded first, and when the record of the model was made, or the shards
    that it read.
    """

    use: str
    fingerprint: str
    made: str  # empty if it is not known
    addresses: tuple[str, ...]  # none if no split is known
    created: str  # ISO 8601, UTC


class Tracer:
    """Lineages of a keyspace, from its registry."""

    def __init__(self, control: Control, *, keyspace: str) -> None:
        self._control, self._keyspace = control, keyspace
        entries = registry.everything(control, keyspace=keyspace)
        self._made = [
            _Made(entry.kind, entry.title, json.loads(entry.document))
            for entry in entries
            if entry.kind in (SPLIT, SHARD_SET, FEATURE_EXPORT, MODEL)
        ]
        self._views = {
            (entry.kind, entry.title): json.loads(entry.document)
            for entry in entries
            if entry.kind.startswith((FEATURE_VIEW, LABEL_VIEW))
        }

    def of_product(self, product: Product) -> Lineage:
        """The lineage of what jobs made, back to runs and forward to what was made from it."""
        same = [made for made in self._of_kind(product.kind) if made.prints == product.fingerprint]
        unknown = _Made(product.kind, f"{product.address} (not registered)", {"sequence": None, **product.document})
        return self._of(min(same, key=lambda made: made.address != product.address, default=unknown))

    def of_model(self, digest: str, *, name: str) -> Lineage:
        """The lineage of a registered model, by the SHA-256 of its checkpoint. Raises `TableError` if there is none."""
        if known := self._with(digest, MODEL, address=None):
            return self._of(known[0])
        raise TableError(
            f"Wanted a record beside {name}, or a registered model of SHA-256 {digest[:12]} in "
            f"{self._keyspace}.registry. Found: neither. training/train.py writes records; add one with "
            "`imagestrata registry add`."
        )

    def used_by(self, found: Lineage) -> list[UsedImages]:
        """The images that the model of a lineage used, each by the fingerprint of its split: of the split that shards
        were made from, for shards.
        """
        told = found.subject.details
        return [self._used(use, images, created=told["created"]) for use, images in told.get("images", {}).items()]

    def _used(self, use: str, images: Mapping[str, Any], *, created: str) -> UsedImages:
        print_, places = images["fingerprint"], [images["address"]] if images["kind"] in ("split", "rows") else []
        made = images.get("made", "")  # earlier versions did not record it; it is not known for shards
        for shards in self._of_kind(SHARD_SET):
            if print_ in shards.prints and shards.document["source_fingerprint"]:
                print_, created = shards.document["source_fingerprint"], shards.document["created"]
                places += [shards.document["split"]] if shards.document["split"] else []
                break
        places += [made.address for made in self._of_kind(SPLIT) if print_ in made.prints]
        return UsedImages(use, print_, made, tuple(dict.fromkeys(places)), created)

    def of_image(self, image_id: uuid.UUID, *, metadata: TableName, id_column: str = "id") -> Lineage:
        """The lineage of an image: its run and source, and every registered split, shard set and model that holds it.
        Raises `TableError` if there is no such table, or nothing knows the image, and `UnreachableError`.
        """
        check_columns(self._control, metadata, columns=[id_column])
        rows = self._control.execute(f'SELECT * FROM {metadata.quoted} WHERE "{id_column}" = ?', (image_id,))
        history = self._history(metadata, image_id)
        runs = list(self._runs(metadata))
        details = _of_past(history, metadata)
        if rows:
            now = _state_of(rows[0], metadata)
            details = _of_image(rows[0], metadata) | labels_of_image(self._control, metadata, image_id, now=now)
        subject = Node(IMAGE, str(image_id), details=details)
        found = Lineage(subject, history=history)
        written = getattr(rows[0], "ingest_id", None) if rows else None
        before = {state["since"] for state in history}
        for row, node in runs:
            if (written is not None and row.ingest_id == written) or row.sequence in before:
                found.link(node, subject)
        since = getattr(rows[0], "since", None) if rows else None
        removal = last_removal(history) if rows else None
        if removal is not None and is_deleted(since or 0, kind=removal["kind"], until=removal["until"]):
            found.unknown.append(
                f"run {removal['until']}, which deletes this image, was interrupted: it is still there. Run it again"
            )
        self._held(found, image_id, metadata=metadata)
        if not rows and not history and not found.edges and not found.unknown:
            raise TableError(f"Wanted the image {image_id} of {metadata}. Found: no such image, and no split has it.")
        return found

    def image_at(self, path: str, *, metadata: TableName, id_column: str = "id") -> uuid.UUID | None:
        """The id of the image with a path, as the metadata table and the reports of jobs have it, also with its split
        folder before it; also of one that was removed. None if the table has and had no such image. Raises `TableError`
        if there is no such table, and `UnreachableError`.
        """
        check_columns(self._control, metadata, columns=[id_column])
        for one in ids_of_path(dataset_of(self._control, metadata), os.fsencode(path)):
            query = f'SELECT "{id_column}" FROM {metadata.quoted} WHERE "{id_column}" = ?'
            if self._control.execute(query, (one,)) or self._history(metadata, one):
                return one
        return None

    def _source_of(self, images: Mapping[str, Any]) -> tuple[_Made, int] | None:
        """The registered split or shard set of images that a model used, and the number of the split."""
        when = images.get("made", "")  # earlier versions did not record it
        return self._with(
            images["fingerprint"],
            *(SPLIT, SHARD_SET),
            address=images["address"],
            fits=lambda made: not when or made.document.get("created") in (None, when),
        )

    def _split_of(self, shards: _Made) -> tuple[_Made, int] | None:
        """The registered split that shards were made from, and its number."""
        document = shards.document
        return self._with(
            document["source_fingerprint"],
            SPLIT,
            address=document["split"],
            fits=lambda made: (made.document.get("created") or "") <= document["created"],
        )

    def _of_kind(self, kind: str) -> Iterator[_Made]:
        return (made for made in self._made if made.kind == kind)

    def _of(self, made: _Made) -> Lineage:
        found = Lineage(made.node)
        self._back(found, made)
        self._forward(found, made)
        return found

    def _with(
        self,
        fingerprint: str,
        *kinds: str,
        address: str | None,
        fits: Callable[[_Made], bool] = lambda made: True,
    ) -> tuple[_Made, int] | None:
        """The registered product that has this fingerprint, and the number of its split."""
        found = [made for kind in kinds for made in self._of_kind(kind) if fingerprint in made.prints]
        # Several splits may have the same rows: the one that fits the time comes first, and the one at the address, if
        # it is still there.
        known = min(found, key=lambda made: (not fits(made), made.address != address), default=None)
        if len(found) > 1 and known is not None and not _has_files(known):
            known = next(filter(_has_files, found), known)
        return None if known is None else (known, known.prints.index(fingerprint))

    def _back(self, found: Lineage, made: _Made) -> None:
        """Add what a product was made from."""
        if made.kind == MODEL:
            for use, images in made.document["images"].items():
                self._back_of_images(found, made, use=use, images=images)
            return
        of_split = self._split_of(made) if made.kind == SHARD_SET else None
        if of_split is not None:
            found.link(of_split[0].node, made.node, f"split {of_split[1]}")
            self._back(found, of_split[0])
            return
        if made.document["metadata_table"] is None:
            if source := made.document.get("source"):
                found.link(Node(FILES, str(source)), made.node)
            return
        self._back_of_table(found, made.node, made.document["metadata_table"], until=made.document["sequence"])
        self._back_of_views(found, made)
        if made.kind == SPLIT:
            with _noting(found, made.node.key):
                _check_prints(open_split(made.address).fingerprints, made.prints)

    def _back_of_images(self, found: Lineage, model: _Made, *, use: str, images: Mapping[str, Any]) -> None:
        known = self._source_of(images)
        if known is not None:
            made, index = known
            found.link(made.node, model.node, f"{use}: split {index}" if made.kind == SPLIT else use)
            self._back(found, made)
            return
        name = f"{images['address']} (not registered, fingerprint {images['fingerprint'][:12]})"
        node = Node(images["kind"], name, details=images)
        found.link(node, model.node, f"{use}: split {images['index']}")
        if images["kind"] == "split":
            with _noting(found, node.key):
                _check_prints(
                    open_split(images["address"]).fingerprints[images["index"] :][:1], (images["fingerprint"],)
                )
        if images["metadata_table"]:
            self._back_of_table(found, node, images["metadata_table"], until=None)

    def _back_of_views(self, found: Lineage, made: _Made) -> None:
        """Add the versions of labels and features that a split was made with."""
        used = [(FEATURE_VIEW, FEATURE_VIEW, title) for title in made.document.get("features", ())]
        if title := made.document.get("label_view"):
            of_table = registry.label_views_of(TableName.parse(made.document["metadata_table"]))
            used.append((LABEL_VIEW, of_table, title))
        for kind, registered, title in used:
            details = self._views.get((registered, title), {})
            found.link(Node(kind, title, str(details.get("source", "not registered")), details), made.node)

    def _back_of_table(self, found: Lineage, node: Node, metadata: str, *, until: int | None) -> None:
        """Add a table and its runs, up to the newest one that had started when something was made from it."""
        table = TableName.parse(metadata)
        record = record_of(self._control, table)
        details = {} if record is None else {"data_table": str(record.data_table), "dataset": record.dataset}
        of_table = Node(TABLE, metadata, "" if record is None else f"dataset {record.dataset}", details)
        found.link(of_table, node, "" if until is None else f"at run {until} or before")
        for row, run in self._runs(table):
            if row.kind not in _NO_IMAGES and (until is None or row.sequence <= until):
                found.link(run, of_table)

    def _forward(self, found: Lineage, made: _Made) -> None:
        """Add what was made from a split or a shard set."""
        if made.kind == SPLIT:
            for shards in self._of_kind(SHARD_SET):
                print_ = shards.document["source_fingerprint"]
                if print_ in made.prints and not _is_other_version(made, self._split_of(shards)):
                    found.link(made.node, shards.node, f"split {made.prints.index(print_)}")
                    self._forward(found, shards)
        for model in self._of_kind(MODEL):
            for use, images in model.document["images"].items():
                if images["fingerprint"] in made.prints and not _is_other_version(made, self._source_of(images)):
                    text = f"{use}: split {made.prints.index(images['fingerprint'])}" if made.kind == SPLIT else use
                    found.link(made.node, model.node, text)

    def _held(self, found: Lineage, image: uuid.UUID, *, metadata: TableName) -> None:
        """Add everything that holds an image."""
        holders: _Holders = {}
        for made in self._of_kind(SPLIT):
            if made.document["metadata_table"] == str(metadata):
                with _noting(found, made.node.key):
                    _hold_by_split(found, made, image, holders)
        for made in self._of_kind(SHARD_SET):
            if made.document["metadata_table"] in (None, str(metadata)):
                with _noting(found, made.node.key):
                    _hold_by_shards(found, made, image, holders)
        for model in self._of_kind(MODEL):
            for use, images in model.document["images"].items():
                if images["metadata_table"] in ("", str(metadata)):
                    with _noting(found, f"{model.node.key}: {use} used {images['address']}"):
                        self._hold_by_model(found, model, image, holders, use=use, images=images)

    def _hold_by_model(
        self, found: Lineage, model: _Made, image: uuid.UUID, holders: _Holders, *, use: str, images: Mapping[str, Any]
    ) -> None:
        print_ = images["fingerprint"]
        if print_ not in holders and images["kind"] in ("split", "rows"):
            node = Node(images["kind"], f"{images['address']} (not registered)", details=images)
            (place,) = _places(images["address"], (print_,), image, first=images["index"])
            holders[print_] = None if place is None else (node, place[1])
            if place is not None:
                found.link(found.subject, node, f"split {images['index']}")
        if print_ not in holders:
            told = f"{images['kind']} {images['address']} of fingerprint {print_[:12]}"
            found.unknown.append(f"{model.node.key}: {use} used {told}, which cannot be searched")
        elif (holder := holders[print_]) is not None:
            known = self._source_of(images)  # several may have these rows
            found.link(holder[0] if known is None else known[0].node, model.node, use)

    def _runs(self, metadata: TableName) -> Iterator[tuple[RecordedRun, Node]]:
        """The runs on a metadata table, the newest first."""
        for run in recorded_runs(self._control, metadata):
            details = {"kind": run.kind, "source": run.source, "started": _time(run.started)}
            summary = f"{run.kind} of {run.source or 'no source'}, {_time(run.started)}"
            yield run, Node(RUN, f"{metadata}#{run.sequence}", summary, details)

    def _history(self, metadata: TableName, image_id: uuid.UUID) -> list[dict[str, Any]]:
        if (table := history_in(self._control, metadata)) is None:
            return []
        rows = self._control.execute(f"SELECT * FROM {table.quoted} WHERE id = ?", (image_id,))
        return [
            {
                "kind": row.kind,
                "since": row.since,
                "until": row.until,
                "at": _time(row.at),
                "reason": row.reason or "",
                "label": row.label,
                "class": row.or_label,
                "source": row.source,
                "sha256": None if row.sha256 is None else row.sha256.hex(),
            }
            for row in rows
        ]


@contextmanager
def _noting(found: Lineage, about: str) -> Iterator[None]:
    """Go on without files that cannot be read, and report why."""
    try:
        yield
    except FileNotFoundError as error:
        found.unknown.append(f"{about}: its files are not there ({error})")
    except (FormatsError, SchemaError, TableError, OSError) as error:
        found.unknown.append(f"{about}: {error}")


def _is_other_version(made: _Made, known: tuple[_Made, int] | None) -> bool:
    """Whether a product is another version of the one that was used: a split that was made again has the same rows."""
    return known is not None and known[0].address == made.address and known[0].title != made.title


def _has_files(made: _Made) -> bool:
    """Whether the files of a split are those that were registered; others are not looked at."""
    if made.kind != SPLIT:
        return True
    try:
        return tuple(open_split(made.address).fingerprints) == made.prints
    except (FormatsError, SchemaError, OSError):
        return False


def _hold_by_split(found: Lineage, made: _Made, image: uuid.UUID, holders: _Holders) -> None:
    for index, (print_, place) in enumerate(zip(made.prints, _places(made.address, made.prints, image), strict=True)):
        holders[print_] = None if place is None else (made.node, place[1])
        if place is not None:
            label, position = place
            texts = [f"split {index}", "" if position is None else f"position {position}",
                     "" if label is None else f"label {label}"]  # fmt: skip
            found.link(found.subject, made.node, ", ".join(filter(None, texts)))


def _hold_by_shards(found: Lineage, made: _Made, image: uuid.UUID, holders: _Holders) -> None:
    source, (print_, *_) = made.document["source_fingerprint"], made.prints
    if source in holders and holders[source] is None:
        holders[print_] = None
        return
    holder = holders.get(source)
    storage = Storage(made.address)
    manifest = ShardManifest.from_json(storage.read_text(SHARD_MANIFEST), place=f"{made.address}/{SHARD_MANIFEST}")
    if manifest.fingerprint != print_:
        raise TableError("its shards were replaced by others")
    place = find_in_shards(storage, manifest, image.bytes, position=None if holder is None else holder[1])
    holders[print_] = None if place is None else (made.node, None)
    if place is not None:
        found.link(found.subject if holder is None else holder[0], made.node, f"{place.shard}, sample {place.key}")


def _places(
    address: str, prints: Sequence[str], image_id: uuid.UUID, *, first: int = 0
) -> list[tuple[int | None, int | None] | None]:
    """The label and position of an image in splits of these fingerprints, from number ``first`` on; None: not there.
    Raises `FormatsError`, `SchemaError`, and `TableError` if the splits at the address have other fingerprints.
    """
    split = open_split(address)
    _check_prints(split.fingerprints[first:][: len(prints)], prints)
    places = [split.find(index, image_id.bytes) for index in range(first, first + len(prints))]
    if split.manifest.label_type == "int":
        return places
    return [None if place is None else (None, place[1]) for place in places]


def _check_prints(found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) != list(wanted):
        raise TableError("its files were replaced: they have other fingerprints")


def _of_image(row: Any, metadata: TableName) -> dict[str, Any]:
    """What a metadata row says about an image, for people."""
    text = {name: getattr(row, name, None) for name in ("or_split", "path", "source", "or_label", "label", "sha256")}
    path = "/".join(filter(None, (text["or_split"], text["path"])))
    found = {
        "table": str(metadata),
        "path": path,
        "source": text["source"],
        "sha256": text["sha256"].hex() if isinstance(text["sha256"], bytes) else None,
        "class": text["or_label"],
        "label": text["label"],
        "ingested": _time(getattr(row, "ingested_at", None)),
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _state_of(row: Any, metadata: TableName) -> State:
    """What a metadata row says that an image is. Raises `TableError` for rows of earlier versions."""
    since, sha256, label, ingest_id = (getattr(row, name, None) for name in ("since", "sha256", "label", "ingest_id"))
    if since is None and ingest_id is not None:
        raise not_migrated(f"image {row.id} in {metadata} lacks since", metadata=metadata)
    return State(since or 0, sha256 or b"", -1 if label is None else label)


def _of_past(history: Sequence[Mapping[str, Any]], metadata: TableName) -> dict[str, Any]:
    """The details of an image that is not in the metadata table, from its history."""
    if not history:
        return {"table": str(metadata), "state": "not in the table, which has no history of it"}
    last = last_removal(history) or history[0]
    reason = f": {last['reason']}" if last["reason"] else ""
    state = f"{last['kind']} by run {last['until']}, {last['at']}{reason}"
    found = {"table": str(metadata), "state": state, "source": last["source"], "sha256": last["sha256"]}
    return {name: value for name, value in found.items() if value}


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
