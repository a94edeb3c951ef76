"""Everything that a keyspace has: datasets, their tables, classes and runs, and all registered objects.

Datasets, tables, classes and runs are read from the tables of ingests; the registry has only what people say of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import DATASET, Entry
from etl.tables.class_numbers import class_names
from etl.tables.runs import recorded_runs
from etl.tables.table_records import TableRecord, read_records
from schemas import TableName

TABLE, CLASSES, RUN = "table", "classes", "run"
READ_KINDS = (TABLE, CLASSES, RUN)
"""The kinds of objects that are read from the tables of ingests. They cannot be described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a keyspace has."""

    kind: str  # one of `registry.KINDS` or `READ_KINDS`
    title: str  # With the version for registered objects; ``ks.metadata#3`` for the third run on a table.
    summary: str  # what it is, in a few words
    definition: Mapping[str, Any] = field(default_factory=dict)  # what it is, in full
    entry: Entry | None = None  # in the registry; None if it has none
    at: datetime | None = None  # when it was registered, or when the run started; UTC

    @property
    def owner(self) -> str:
        """Who is responsible for it."""
        return "" if self.entry is None else self.entry.owner

    @property
    def name(self) -> str:
        """The title without the version."""
        return self.title if self.entry is None else self.entry.name

    def as_dict(self) -> dict[str, Any]:
        """All that is known, for JSON."""
        entry = self.entry
        at = None if self.at is None else f"{self.at:%Y-%m-%dT%H:%M:%SZ}"
        return {
            "kind": self.kind,
            "name": self.name,
            "version": None if entry is None else entry.version,
            "owner": self.owner,
            "description": self.summary if entry is None else entry.description,
            "tags": {} if entry is None else dict(entry.tags),
            "started" if self.kind == RUN else "registered": at,
            "definition": dict(self.definition),
        }


def contents(control: Control, *, keyspace: str) -> list[Item]:
    """Everything that a keyspace has: datasets, tables, classes and runs, then registered objects by kind and name, the
    newest version first. Raises `UnreachableError`.
    """
    records = read_records(control, keyspace=keyspace)
    entries = registry.everything(control, keyspace=keyspace)
    described = {entry.name: entry for entry in entries if entry.kind == DATASET}
    names = sorted({record.dataset for record in records} | described.keys())
    found = [_dataset(name, records, entry=described.get(name)) for name in names]
    found += [_table(record) for record in records]
    for name in sorted({record.dataset for record in records}):
        if numbers := class_names(control, keyspace=keyspace, dataset=name):
            found.append(Item(kind=CLASSES, title=name, summary=f"{len(numbers):,} classes", definition=numbers))
    found += _runs(control, keyspace=keyspace)
    others = (entry for entry in entries if entry.kind != DATASET)
    return [*found, *(_registered(entry) for entry in others)]


def _dataset(name: str, records: list[TableRecord], *, entry: Entry | None) -> Item:
    tables = [str(record.metadata_table) for record in records if record.dataset == name]
    said = entry.description if entry is not None and entry.description else f"in {', '.join(tables) or 'no table'}"
    at = None if entry is None else entry.registered
    return Item(kind=DATASET, title=name, summary=said, definition={"tables": tables}, entry=entry, at=at)


def _table(record: TableRecord) -> Item:
    definition = {
        "metadata_table": str(record.metadata_table),
        "data_table": str(record.data_table),
        "dataset": record.dataset,
        "label_type": record.label_type,
        "numbering": record.numbering,
    }
    summary = f"{record.content}, with {record.data_table}"
    return Item(kind=TABLE, title=str(record.metadata_table), summary=summary, definition=definition)


def _runs(control: Control, *, keyspace: str) -> list[Item]:
    runs = TableName(keyspace, "ingests")
    if control.columns(runs) is None:
        return []
    found = []
    for table in sorted(row.table_name for row in control.execute(f"SELECT DISTINCT table_name FROM {runs.quoted}")):
        for run in recorded_runs(control, TableName(keyspace, table)):
            definition = {"table": f"{keyspace}.{table}", "sequence": run.sequence, "kind": run.kind,
                          "dataset": run.dataset, "source": run.source}  # fmt: skip
            summary = " of ".join(filter(None, (run.kind, run.source)))
            title = f"{keyspace}.{table}#{run.sequence}"
            found.append(Item(kind=RUN, title=title, summary=summary, definition=definition, at=run.started))
    return found


def _registered(entry: Entry) -> Item:
    return Item(
        kind=entry.kind,
        title=entry.title,
        summary=entry.description,
        definition=json.loads(entry.document),
        entry=entry,
        at=entry.registered,
    )
