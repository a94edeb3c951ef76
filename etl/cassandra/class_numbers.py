"""Class numbers: taken once for ever, safely against other ingests that take numbers at the same time.

All reads and transactions hold in all datacenters (SERIAL): two ingests in different ones agree, too.
"""

from collections.abc import Iterable

from etl.batches import bounded
from etl.cassandra.control import Control
from etl.cassandra.transactions import TransactionRetries
from schemas import TableName

_CHUNK_NAMES = 100
_CHUNK_BYTES = 16_384  # a batch is refused by servers above 50 kB


def class_names(control: Control, *, keyspace: str, dataset: str) -> dict[str, int]:
    """The class numbers of a dataset by class name; empty where they were never taken or the table is not there."""
    table = TableName(keyspace, "classes")
    if control.columns(table) is None:
        return {}
    query = f"SELECT name, label FROM {table.quoted} WHERE dataset = ?"
    rows = control.execute(query, (dataset,), is_serial=True)
    return {row.name: row.label for row in rows if row.name is not None}


def take_numbers(control: Control, *, keyspace: str, dataset: str, names: Iterable[str]) -> dict[str, int]:
    """The number of every name of a dataset, after new names have taken theirs in code-point order.

    Known names keep their numbers. New ones are taken in chunks, each in a lightweight transaction on ``total``, the
    next free number, which is written together with the names: a transaction that is applied on the total that was
    read was made on the names that were read. A run that finds that another was faster reads again and goes on from
    there, so runs with the same names agree whatever their order. Raises `UnreachableError` if that takes too long.
    """
    wanted = sorted(set(names))
    table = TableName(keyspace, "classes").quoted
    retries = TransactionRetries(
        f"Wanted numbers for {len(wanted)} classes of {dataset!r} in {keyspace}.classes at {control.cluster}."
    )
    while True:
        query = f"SELECT name, label, total FROM {table} WHERE dataset = ?"
        rows = control.execute(query, (dataset,), is_serial=True)
        known = {row.name: row.label for row in rows if row.name is not None}
        new = [name for name in wanted if name not in known]
        if not new:
            return known
        total = rows[0].total if rows else None
        first = max([-1, *known.values()]) + 1 if total is None else total
        for chunk in bounded(new, most=_CHUNK_NAMES, most_bytes=_CHUNK_BYTES, size=lambda name: len(name.encode())):
            statements: list[tuple[str, tuple[object, ...]]] = [
                (f"INSERT INTO {table} (dataset, name, label) VALUES (?, ?, ?)", (dataset, name, label))
                for label, name in enumerate(chunk, first)
            ]
            after = first + len(chunk)
            statements.append((f"UPDATE {table} SET total = ? WHERE dataset = ? IF total = ?", (after, dataset, total)))
            if not control.apply(statements):
                retries.wait()  # another run took numbers meanwhile, or it is not known whether this one did
                break
            total = first = after
            retries.renew()
