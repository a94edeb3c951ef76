"""Sessions of tasks on executors: they write images and their rows, and read rows of images by id."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from pyspark import TaskContext

from etl.cassandra.cluster import CONNECT_SECONDS, REQUEST_SECONDS, Cluster, is_new_table
from etl.errors import TableError, UnreachableError, one_line
from etl.secrets import KEY, PASSWORD
from schemas import TableName
from schemas.tables import check_column

_ATTEMPTS = 4
_FIRST_PAUSE = 0.5  # seconds; it doubles with each attempt
_LONGEST_PAUSE = 2.0
# A node that hung while a table was created learns of it a minute later. Each attempt asks any of the nodes, so others
# answer long before.
_NEW_TABLE_SECONDS = 20.0
_IN_FLIGHT = 128
_TOO_LARGE = ("request is too big", "oversized mutation", "mutation of")  # parts of its message: there is no code

ReadRow: TypeAlias = Callable[..., Awaitable[tuple[Any, ...] | None]]
Done = TypeVar("Done")
Item = TypeVar("Item")


class TooLargeError(Exception):
    """A row is larger than the server accepts. The caller decides what to do."""


class TaskSession:
    """Prepared reads and writes from coroutines, through many connections. Made by `task_session`."""

    def __init__(self, session: Any, cluster: Cluster) -> None:
        self._session = session
        self._cluster = cluster

    async def prepare(self, query: str) -> Any:
        """Prepare a statement in CQL. Raises `TableError` if the table does not accept it, and `UnreachableError`."""

        wanted = f"Wanted a table that accepts {query} at {self._cluster}."

        async def attempt() -> Any:
            try:
                return await self._session.create_prepared(query)
            except _refusals() as error:
                if is_new_table(error):
                    raise
                raise TableError(f"{wanted} Found: {one_line(error)}") from None

        return await self._tried(attempt, wanted=wanted)

    async def read(self, prepared: Any, image: uuid.UUID, *more: Any, about: str) -> tuple[Any, ...] | None:
        """Read a row, or None, with a query of the id of an image, and more values. Errors say what it is ``about``."""
        return next(iter(await self.read_all(prepared, image, *more, about=about)), None)

    async def read_all(self, prepared: Any, image: uuid.UUID, *more: Any, about: str) -> list[tuple[Any, ...]]:
        """Read all rows of a query like that of `read`, for queries that find few."""

        async def attempt() -> list[tuple[Any, ...]]:
            return [tuple(row.as_tuple()) for row in await self._session.execute(prepared.bind((str(image), *more)))]

        return await self._tried(attempt, wanted=f"Wanted {about} at {self._cluster}.")

    async def write(self, rows: Sequence[tuple[Any, Sequence[Any]]], *, about: str) -> None:
        """Write rows (prepared statements with their values) and wait until a quorum has them. Errors say what it is
        ``about``. Raises `TooLargeError` or `TableError` if the server refuses the rows, and `UnreachableError`.
        """
        import acsylla

        wanted = f"Wanted to write {about} to {self._cluster}."

        async def attempt() -> None:
            try:
                if len(rows) == 1:
                    ((prepared, values),) = rows
                    await self._session.execute(prepared.bind(values))
                    return
                # Rows of one partition of one keyspace are one mutation, of any size, and are written together or not
                # at all.
                batch = acsylla.create_batch_unlogged()
                for prepared, values in rows:
                    batch.add_statement(prepared.bind(values))
                await self._session.execute_batch(batch)
            except acsylla.errors.CassErrorServerInvalidQuery as error:
                if is_new_table(error):
                    raise
                if any(words in str(error).lower() for words in _TOO_LARGE):
                    raise TooLargeError(one_line(error)) from None
                raise TableError(f"{wanted} Found: {one_line(error)}") from None

        await self._tried(attempt, wanted=wanted)

    async def _tried(self, attempt: Callable[[], Awaitable[Done]], *, wanted: str) -> Done:
        """Try something a few times, and for longer while a node does not know a new table. Raises
        `UnreachableError` or `TableError`, which begins with ``wanted``.
        """
        import acsylla

        begun, left, pause = time.monotonic(), _ATTEMPTS, _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except acsylla.errors.CassException as error:
                is_new = is_new_table(error)
                left -= not is_new
                if left == 0 or (is_new and time.monotonic() - begun > _NEW_TABLE_SECONDS):
                    raise (TableError if is_new else UnreachableError)(f"{wanted} Found: {one_line(error)}") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _refusals() -> tuple[type[Exception], ...]:
    """What a server says of a statement that it will never accept."""
    from acsylla.errors import CassErrorServerInvalidQuery, CassErrorServerSyntaxError, CassErrorServerUnauthorized

    return CassErrorServerInvalidQuery, CassErrorServerSyntaxError, CassErrorServerUnauthorized


def insert_into(table: TableName, columns: Sequence[str], *, has_ttl: bool = False) -> str:
    """The statement that writes these columns, then the time of the write in microseconds and the ttl in seconds."""
    names = ", ".join(f'"{check_column(name)}"' for name in columns)
    return f"INSERT INTO {table.quoted} ({names}) VALUES ({', '.join('?' for _ in columns)}) USING TIMESTAMP ?" + (
        " AND TTL ?" if has_ttl else ""
    )


async def gathered(act: Callable[[Item], Awaitable[Done]], items: Sequence[Item]) -> list[Done]:
    """What an action gives for each item, with a bounded number in flight."""
    found: list[Done] = []
    for start in range(0, len(items), _IN_FLIGHT):
        found += await asyncio.gather(*map(act, items[start : start + _IN_FLIGHT]))
    return found


@asynccontextmanager
async def row_reader(
    cluster: Cluster, table: TableName, *, columns: Sequence[str], has_ttl: bool = False, by: str | None = None
) -> AsyncIterator[ReadRow]:
    """Open a session that reads the rows of images. The function that it yields takes an id (16 bytes), and a value of
    the column ``by`` if the key has it too, and returns the values of the columns after the first, which is that of the
    id; None if there is no row. With ``has_ttl``, the seconds until the last of them expires follow; None if it does
    not. Raises `TableError` too.
    """
    key, *wanted = (f'"{check_column(name)}"' for name in columns)
    wanted += [f"TTL({wanted[-1]})"] if has_ttl else []
    query = f"SELECT {', '.join(wanted)} FROM {table.quoted} WHERE {key} = ?"
    query += f' AND "{check_column(by)}" = ?' if by else ""
    async with task_session(cluster) as session:
        prepared = await session.prepare(query)

        async def read(one: bytes, *more: Any) -> tuple[Any, ...] | None:
            image = uuid.UUID(bytes=one)
            return await session.read(prepared, image, *more, about=f"image {image} of {table}")

        yield read


@asynccontextmanager
async def task_session(cluster: Cluster) -> AsyncIterator[TaskSession]:
    """Connect on an executor, with password and key of `secrets_on_executors`. Raises `UnreachableError`."""
    import acsylla

    task = TaskContext.get()
    password, key = (None if task is None else task.getLocalProperty(name) for name in (PASSWORD, KEY))
    where: dict[str, Any] = {"contact_points": list(cluster.hosts), "port": cluster.port}
    if cluster.bundle is not None:
        where = {"cloud_secure_connection_bundle": cluster.bundle_file}
    driver = acsylla.create_cluster(
        **where,
        username=cluster.username,
        password=password if cluster.username is not None else None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        consistency=acsylla.Consistency.LOCAL_QUORUM,
        core_connections_per_host=2,
        # Reading the definitions of all tables costs server and client a tenth of a second for 800 of them.
        use_schema=False,
        load_balance_dc_aware=cluster.datacenter,
        **({} if cluster.tls is None else cluster.tls.for_acsylla(key)),
        log_level="disabled",  # its log callback outlives the session; errors are raised as exceptions
    )
    try:
        session = await driver.create_session()
    except acsylla.errors.CassException as error:
        raise cluster.unreachable(one_line(error)) from None
    try:
        yield TaskSession(session, cluster)
    finally:
        await session.close()
