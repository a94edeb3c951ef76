"""Sessions of tasks on executors: they write images and their rows, and read images by id."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from pyspark import TaskContext

from etl.cassandra.cluster import CONNECT_SECONDS, REQUEST_SECONDS, Cluster
from etl.errors import TableError, UnreachableError, one_line
from etl.secrets import PASSWORD
from schemas import TableName
from schemas.tables import check_column

_WRITE_ATTEMPTS = 4
_TOO_LARGE = ("request is too big", "oversized mutation", "mutation of")  # parts of its message: there is no code
ReadPicture: TypeAlias = Callable[[bytes], Awaitable[tuple[Any, ...] | None]]


class TooLargeError(Exception):
    """A row is larger than the server accepts. The caller decides what to do."""


class Writer:
    """Prepared reads and writes from coroutines, through many connections. Made by `writer`."""

    def __init__(self, session: Any, cluster: Cluster) -> None:
        self._session = session
        self._cluster = cluster

    async def prepare(self, query: str) -> Any:
        """Prepare a statement for `write`.

        Args:
            query: The statement in CQL.

        Returns:
            The prepared statement.

        Raises:
            TableError: The table does not accept the statement.
        """
        import acsylla

        try:
            return await self._session.create_prepared(query)
        except acsylla.errors.CassException as error:
            raise TableError(
                f"Wanted a table that accepts {query} at {self._cluster}. Found: {one_line(error)}"
            ) from None

    async def read(self, prepared: Any, image: uuid.UUID, *, about: str) -> tuple[Any, ...] | None:
        """Read a row by an image's id.

        Args:
            prepared: A prepared query whose one value is the id.
            image: The image.
            about: What is read, for errors.

        Returns:
            The values of the row; None if there is none.

        Raises:
            UnreachableError: All attempts failed.
        """
        return await _read(self._session, prepared, str(image), wanted=f"Wanted {about} at {self._cluster}.")

    async def write(self, rows: Sequence[tuple[Any, Sequence[Any]]], *, about: str) -> None:
        """Write rows and wait until a quorum has them. Failed writes are retried a few times.

        Args:
            rows: Prepared statements with their values. Several rows must belong to one partition of one keyspace:
                then they are one mutation, of any size, and are written together or not at all.
            about: What is written, for errors.

        Raises:
            TooLargeError: The server does not accept rows of that size.
            TableError: The table does not accept the rows.
            UnreachableError: All attempts failed.
        """
        import acsylla

        wanted = f"Wanted to write {about} to {self._cluster}."
        for attempt in range(_WRITE_ATTEMPTS):
            try:
                if len(rows) == 1:
                    ((prepared, values),) = rows
                    await self._session.execute(prepared.bind(values))
                    return
                batch = acsylla.create_batch_unlogged()
                for prepared, values in rows:
                    batch.add_statement(prepared.bind(values))
                await self._session.execute_batch(batch)
                return
            except acsylla.errors.CassErrorServerInvalidQuery as error:
                if any(words in str(error).lower() for words in _TOO_LARGE):
                    raise TooLargeError(one_line(error)) from None
                raise TableError(f"{wanted} Found: {one_line(error)}") from None
            except acsylla.errors.CassException as error:
                if attempt + 1 == _WRITE_ATTEMPTS:
                    raise UnreachableError(f"{wanted} Found: {one_line(error)}") from None
            await asyncio.sleep(0.5 * 2**attempt)


async def _read(session: Any, prepared: Any, image: str, *, wanted: str) -> tuple[Any, ...] | None:
    """Read the row of an image, with a few attempts; ``wanted`` begins the error."""
    import acsylla

    found = ""
    for attempt in range(_WRITE_ATTEMPTS):
        if attempt:
            await asyncio.sleep(0.5 * 2 ** (attempt - 1))
        try:
            row = (await session.execute(prepared.bind((image,)))).first()
            return None if row is None else tuple(row.as_tuple())
        except acsylla.errors.CassException as error:
            found = one_line(error)
    raise UnreachableError(f"{wanted} Found: {found}")


def insert_into(table: TableName, columns: Sequence[str], *, has_ttl: bool = False) -> str:
    """The statement that writes these columns of a row.

    Its last value is the write time, in microseconds; with ``has_ttl``, that is followed by the time to live, in
    seconds.
    """
    names = ", ".join(f'"{check_column(name)}"' for name in columns)
    return f"INSERT INTO {table.quoted} ({names}) VALUES ({', '.join('?' for _ in columns)}) USING TIMESTAMP ?" + (
        " AND TTL ?" if has_ttl else ""
    )


@asynccontextmanager
async def picture_reader(cluster: Cluster, table: TableName, *, columns: Sequence[str]) -> AsyncIterator[ReadPicture]:
    """Open a session on an executor that reads images by id, with the password of `secrets_on_executors`.

    Args:
        cluster: The cluster.
        table: The data table.
        columns: The column of the id, then the columns to read.

    Yields:
        A coroutine function from an id (16 bytes) to the values of the columns after the first; None if there is no
        such row.

    Raises:
        UnreachableError: Cassandra does not answer.
        TableError: The table or a column does not exist.
    """
    key, *wanted = (f'"{check_column(name)}"' for name in columns)
    query = f"SELECT {', '.join(wanted)} FROM {table.quoted} WHERE {key} = ?"
    async with _session(cluster) as session:
        prepared = await Writer(session, cluster).prepare(query)

        async def read(one: bytes) -> tuple[Any, ...] | None:
            name = str(uuid.UUID(bytes=one))
            return await _read(session, prepared, name, wanted=f"Wanted image {name} of {table} at {cluster}.")

        yield read


@asynccontextmanager
async def writer(cluster: Cluster) -> AsyncIterator[Writer]:
    """Open a `Writer` on an executor, with the password of `secrets_on_executors`.

    Args:
        cluster: The cluster.

    Yields:
        The writer.

    Raises:
        UnreachableError: Cassandra does not answer.
    """
    async with _session(cluster) as session:
        yield Writer(session, cluster)


@asynccontextmanager
async def _session(cluster: Cluster) -> AsyncIterator[Any]:
    import acsylla

    task = TaskContext.get()
    password = None if task is None else task.getLocalProperty(PASSWORD)
    driver = acsylla.create_cluster(
        list(cluster.hosts),
        port=cluster.port,
        username=cluster.username,
        password=password if cluster.username is not None else None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        consistency=acsylla.Consistency.LOCAL_QUORUM,
        core_connections_per_host=2,
        load_balance_dc_aware=cluster.datacenter,
        log_level="disabled",  # its log callback outlives the session; errors are raised as exceptions
    )
    try:
        session = await driver.create_session()
    except acsylla.errors.CassException as error:
        raise cluster.unreachable(one_line(error)) from None
    try:
        yield session
    finally:
        await session.close()
