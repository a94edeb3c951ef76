"""Class numbers. A number never changes, and ingests that run at the same time get the same numbers.

All reads and transactions use SERIAL, so that ingests in different datacenters agree as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from etl.batches import bounded
from etl.cassandra.control import Control
from etl.cassandra.transactions import TransactionRetries
from schemas import TableName

_CHUNK_NAMES = 100
_CHUNK_BYTES = 16_384  # a batch is refused by servers above 50 kB


def class_names(control: Control, *, keyspace: str, dataset: str) -> dict[str, int]:
    """The class numbers of a dataset by name; empty without any, or without a table of classes."""
    return next_number(control, keyspace=keyspace, dataset=dataset)[0]


def next_number(control: Control, *, keyspace: str, dataset: str) -> tuple[dict[str, int], int]:
    """Read the class numbers of a dataset as `class_names` does, and the number of the next new class."""
    if control.columns(TableName(keyspace, "classes")) is None:
        return {}, 0
    known, total = _numbers(control, keyspace=keyspace, dataset=dataset)
    return known, _first(known, total)


def take_numbers(
    control: Control,
    *,
    keyspace: str,
    dataset: str,
    names: Iterable[str],
    order: Sequence[str] = (),
    lost: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Give every class name of a dataset a number; returns those of all its classes. Names that have a number keep it.
    Those in ``lost`` get the number that they had, which no class has. New names follow, first those in ``order``, then
    others in code-point order. Runs with the same names agree, in any order. Raises `UnreachableError`, also if no
    transaction was applied within two minutes.
    """
    places = {name: place for place, name in enumerate(order)}
    wanted = sorted(set(names), key=lambda name: (places.get(name, len(places)), name))
    table = TableName(keyspace, "classes").quoted
    insert = f"INSERT INTO {table} (dataset, name, label) VALUES (?, ?, ?)"
    update = f"UPDATE {table} SET total = ? WHERE dataset = ? IF total = ?"
    what = "to restore class numbers" if lost else f"numbers for {len(wanted)} classes of {dataset!r}"
    retries = TransactionRetries(f"Wanted {what} in {keyspace}.classes at {control.cluster}.")
    while True:
        known, total = _numbers(control, keyspace=keyspace, dataset=dataset)
        new = [name for name in wanted if name not in known]
        if not new:
            return known
        # Each chunk is a transaction on condition that the next free number is still the one that was read. It is
        # larger than all lost numbers from the first one on, so that no other run takes them.
        after = _first({**lost, **known}, total)
        for chunk in bounded(new, most=_CHUNK_NAMES, most_bytes=_CHUNK_BYTES, size=lambda name: len(name.encode())):
            labels = {name: lost.get(name, label) for label, name in enumerate(chunk, after)}
            after = max(after, *(label + 1 for label in labels.values()))
            statements: list[tuple[str, tuple[object, ...]]] = [(insert, (dataset, *one)) for one in labels.items()]
            if not control.apply([*statements, (update, (after, dataset, total))]):
                retries.wait()  # another run took numbers in the meantime, or the outcome is unknown
                break
            total = after
            retries.renew()


def _numbers(control: Control, *, keyspace: str, dataset: str) -> tuple[dict[str, int], int | None]:
    """The numbers by class name, and the next free number if it is recorded."""
    query = f"SELECT name, label, total FROM {TableName(keyspace, 'classes').quoted} WHERE dataset = ?"
    rows = control.execute(query, (dataset,), is_serial=True)
    known = {row.name: row.label for row in rows if row.name is not None and row.label is not None}
    return known, rows[0].total if rows else None


def _first(known: Mapping[str, int], total: int | None) -> int:
    return max(total or 0, *(number + 1 for number in known.values()), 0)  # a restored table may lack the total
