"""Class numbers: taken once for ever, safely against other ingests that take numbers at the same time."""

import random
import time
from collections.abc import Iterable, Iterator

from etl.cassandra import Control
from etl.errors import UnreachableError
from schemas import TableName

_CHUNK_NAMES = 100
_CHUNK_BYTES = 16_384  # a batch is refused by servers above 50 kB
_PATIENCE_SECONDS = 120.0
_BACK_OFF_SECONDS = 1.0


def take_numbers(control: Control, *, keyspace: str, dataset: str, names: Iterable[str]) -> dict[str, int]:
    """The number of every name of a dataset, after new names have taken theirs in code-point order.

    Known names keep their numbers. New ones are taken in chunks, each in a lightweight transaction on ``total``, the
    next free number, which is written together with the names: a transaction that is applied on the total that was
    read was made on the names that were read. A run that finds that another was faster reads again and goes on from
    there, so runs with the same names agree whatever their order. Raises `UnreachableError` if that takes too long.
    """
    wanted = sorted(set(names))
    table = TableName(keyspace, "classes").quoted
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        rows = control.execute(f"SELECT name, label, total FROM {table} WHERE dataset = ?", (dataset,))
        known = {row.name: row.label for row in rows if row.name is not None}
        new = [name for name in wanted if name not in known]
        if not new:
            return known
        total = rows[0].total if rows else None
        first = max([-1, *known.values()]) + 1 if total is None else total
        for chunk in _chunks(new):
            statements: list[tuple[str, tuple[object, ...]]] = [
                (f"INSERT INTO {table} (dataset, name, label) VALUES (?, ?, ?)", (dataset, name, label))
                for label, name in enumerate(chunk, first)
            ]
            after = first + len(chunk)
            statements.append((f"UPDATE {table} SET total = ? WHERE dataset = ? IF total = ?", (after, dataset, total)))
            if not control.apply(statements):
                # Somebody else took numbers meanwhile, or it is not known whether we did. Rivals that try again at
                # the same time get into each other's way for as long as the server lets them.
                time.sleep(random.uniform(0, _BACK_OFF_SECONDS))
                break
            total = first = after
            deadline = time.monotonic() + _PATIENCE_SECONDS
    raise UnreachableError(
        f"Wanted numbers for {len(wanted)} classes of {dataset!r} in {keyspace}.classes at {control.cluster}. "
        f"Found: none could be taken in {_PATIENCE_SECONDS:.0f} s, because others did or the server was too busy. "
        "Run again later."
    )


def _chunks(names: list[str]) -> Iterator[list[str]]:
    """The names in order, in pieces that fit into one batch."""
    chunk: list[str] = []
    size = 0
    for name in names:
        length = len(name.encode())
        if chunk and (len(chunk) == _CHUNK_NAMES or size + length > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += length
    if chunk:
        yield chunk
