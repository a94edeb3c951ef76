"""Class numbers. A number never changes, and ingests that run at the same time get the same numbers.

All reads and transactions use SERIAL, so that ingests in different datacenters agree as well.
"""

from collections.abc import Iterable

from etl.batches import bounded
from etl.cassandra.control import Control
from etl.cassandra.transactions import TransactionRetries
from schemas import TableName

_CHUNK_NAMES = 100
_CHUNK_BYTES = 16_384  # a batch is refused by servers above 50 kB


def class_names(control: Control, *, keyspace: str, dataset: str) -> dict[str, int]:
    """Read the class numbers of a dataset.

    Args:
        control: The session.
        keyspace: The keyspace of the metadata table.
        dataset: The dataset.

    Returns:
        The numbers by class name. Empty if no class has a number yet, or the table does not exist.

    Raises:
        UnreachableError: The servers did not answer.
    """
    table = TableName(keyspace, "classes")
    if control.columns(table) is None:
        return {}
    query = f"SELECT name, label FROM {table.quoted} WHERE dataset = ?"
    rows = control.execute(query, (dataset,), is_serial=True)
    return {row.name: row.label for row in rows if row.name is not None}


def take_numbers(control: Control, *, keyspace: str, dataset: str, names: Iterable[str]) -> dict[str, int]:
    """Give every class name of a dataset a number.

    Names that have a number keep it. New names follow in code-point order, in chunks. Each chunk is one lightweight
    transaction with the condition that ``total``, the next free number, is still the one that was read. If another run
    was faster, this one reads again and continues from there. So runs with the same names agree, in any order.

    Args:
        control: The session.
        keyspace: The keyspace of the metadata table. Its table of classes exists.
        dataset: The dataset.
        names: The class names.

    Returns:
        The numbers by class name, of all classes of the dataset.

    Raises:
        UnreachableError: The servers did not answer, or no transaction was applied within two minutes.
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
                retries.wait()  # another run took numbers in the meantime, or the outcome is unknown
                break
            total = first = after
            retries.renew()
