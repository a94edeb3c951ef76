"""Traces of an image: its id, names, hashes and bytes, in all tables of a keyspace and all files of a folder."""

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from etl.cassandra.control import Control

Traces = Mapping[str, tuple[bytes, ...]]
"""What identifies an image, by its kind, in all forms in which it can be written."""

Found = set[tuple[str, str]]
"""Places with a trace, and the kind of the trace."""


def forms(value: "uuid.UUID | bytes | str") -> tuple[bytes, ...]:
    """The forms in which an id, bytes or a text can be written."""
    if isinstance(value, uuid.UUID):
        return str(value).encode(), value.hex.encode(), value.bytes
    return (value.encode(),) if isinstance(value, str) else (value, value.hex().encode())


def in_tables(control: Control, keyspace: str, traces: Traces) -> Found:
    """The columns of all tables of a keyspace with traces, as ``table.column``."""
    return {
        (f"{name}.{column}", kind)
        for name in control.tables(keyspace)
        for row in control.execute(f'SELECT * FROM "{keyspace}"."{name}"')
        for column, value in row._asdict().items()
        for kind in _kinds(value, traces)
    }


def in_files(folder: Path, traces: Traces) -> Found:
    """The files below a folder with traces in their names or contents, by path; of Parquet, the columns too."""
    found = set()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = str(file.relative_to(folder))
        found |= {(place, kind) for kind in (*_kinds(place, traces), *_kinds(file.read_bytes(), traces))}
        if file.suffix == ".parquet":
            table = pq.ParquetFile(file).read()
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            found |= {(f"{place}:{name}", kind) for name, column in columns.items() for kind in _kinds(column, traces)}
    return found


def _kinds(value: Any, traces: Traces) -> Iterator[str]:
    texts = list(_texts(value))
    return (kind for kind, all_forms in traces.items() if any(form in text for text in texts for form in all_forms))


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)
    elif isinstance(value, str):
        yield value.encode(errors="surrogateescape")
        yield json.dumps(value).encode()
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _texts(one)
    elif value is not None:
        yield str(value).encode()
