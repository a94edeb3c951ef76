"""Everything of this package that speaks to Cassandra: control queries, reading tables, writing from executors.

Contact points, port, datacenter and user come from ``spark.cassandra.*``, as they do for the Spark connector. The
password is not part of a `Cluster`, so it is in no closure and no plan: `etl.secrets` brings it to executors.
"""

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Self, TypeAlias

import cassandra
import cassandra.cluster
from cassandra.auth import PlainTextAuthProvider
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.cluster import Cluster
from etl.cassandra.transactions import Patience
from etl.errors import TableError, UnreachableError
from etl.secrets import PASSWORD, password_of
from schemas import TableName
from schemas.tables import check_column

_CONNECT_SECONDS = 5.0  # with Spark's own start, a job still gives up within 15
_REQUEST_SECONDS = 30.0
_WRITE_ATTEMPTS = 4
_TOGETHER = 64
_PAGE_ROWS = "5000"  # of metadata: 1 to 2 MB; a fifth faster than the connector's own 1,000
_TOO_LARGE = ("request is too big", "oversized mutation", "mutation of")  # as the server says it; it has no code for it
_FORMAT = "org.apache.spark.sql.cassandra"
_TCP_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
ReadPicture: TypeAlias = Callable[[bytes], Awaitable[tuple[Any, ...] | None]]


class TooLargeError(Exception):
    """A row is larger than the server takes; what to do about it is the caller's."""


class Control:
    """A session for definitions and small queries; a context manager, connected inside its block.

    Entering raises `UnreachableError`, within 15 seconds, if nobody answers or we are refused.
    """

    def __init__(self, cluster: Cluster, *, password: str | None = None) -> None:
        self.cluster = cluster
        user = cluster.username
        profile = cassandra.cluster.ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(cluster.datacenter or "")),
            consistency_level=cassandra.ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=cassandra.ConsistencyLevel.SERIAL,
            request_timeout=_REQUEST_SECONDS,
        )
        try:
            self._driver = cassandra.cluster.Cluster(
                contact_points=cluster.hosts,
                port=cluster.port,
                auth_provider=None if user is None else PlainTextAuthProvider(user, password or ""),
                protocol_version=cassandra.ProtocolVersion.V4,
                connect_timeout=_CONNECT_SECONDS / len(cluster.hosts),
                control_connection_timeout=_CONNECT_SECONDS / len(cluster.hosts),
                execution_profiles={cassandra.cluster.EXEC_PROFILE_DEFAULT: profile},
                schema_metadata_enabled=False,
                token_metadata_enabled=False,
                sockopts=[_TCP_NODELAY],  # without it every small query waits for the last one's acknowledgement
            )
        except cassandra.UnresolvableContactPoints:
            raise UnreachableError(
                f"Wanted Cassandra at {cluster}. Found: no address of that name. Check spark.cassandra.connection.host."
            ) from None
        self._session: Any = None
        self._prepared: dict[str, Any] = {}

    @classmethod
    def from_spark(cls, spark: SparkSession) -> "Control":
        """A session that is not yet connected, by the settings of ``spark.cassandra.*``. Raises `EtlError`."""
        return cls(Cluster.from_spark(spark), password=password_of(spark))

    def __enter__(self) -> Self:
        try:
            self._session = self._driver.connect()
        except (cassandra.DriverException, cassandra.cluster.NoHostAvailable, OSError) as error:
            self._driver.shutdown()
            raise UnreachableError(_refusal(self.cluster, error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.shutdown()

    @property
    def datacenter(self) -> str:
        """The datacenter that our keyspaces are replicated in: the configured one, or the first contact point's."""
        return self.cluster.datacenter or str(self.execute("SELECT data_center FROM system.local")[0].data_center)

    @property
    def located(self) -> Cluster:
        """The cluster with its datacenter, as executors need it."""
        return replace(self.cluster, datacenter=self.datacenter)

    def execute(self, query: str, values: Sequence[Any] = (), *, is_serial: bool = False) -> list[Any]:
        """Run a query with its values bound; returns the rows, as named tuples.

        ``is_serial`` reads rows of one partition that `apply` writes, as they are in all datacenters.
        Raises `TableError` for what the server does not understand, `UnreachableError` for everything else.
        """
        with self._translated():
            bound = self._prepare(query).bind(values)
            if not is_serial:
                return list(self._session.execute(bound))
            bound.consistency_level = cassandra.ConsistencyLevel.SERIAL
            patience = Patience(f"Wanted rows of {query.partition(' FROM ')[2]} at {self.cluster}.")
            while True:
                try:
                    return list(self._session.execute(bound))
                except cassandra.ReadTimeout:  # transactions and reads of other runs are in the way
                    patience.pause()

    def define(self, statement: str) -> None:
        """Run a statement that makes a keyspace or a table. Raises as `execute` does."""
        with self._translated():
            self._session.execute(statement)

    def apply(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> bool:
        """Run statements of one partition as one transaction for all datacenters; returns whether it was applied.

        False also if the outcome is not known: read again before going on. Raises as `execute` does.
        """
        with self._translated():
            batch = BatchStatement(BatchType.LOGGED, consistency_level=cassandra.ConsistencyLevel.QUORUM)
            batch.serial_consistency_level = cassandra.ConsistencyLevel.SERIAL
            for query, values in statements:
                batch.add(self._prepare(query).bind(values))
            try:
                return bool(self._session.execute(batch).was_applied)
            except (cassandra.WriteTimeout, cassandra.OperationTimedOut):
                return False

    def columns(self, table: TableName) -> dict[str, str] | None:
        """The columns of a table and their CQL types, or None if there is no such table."""
        return {row.column_name: row.type for row in self._columns(table)} or None

    def key(self, table: TableName) -> list[str]:
        """The columns of a table's primary key, sorted."""
        return sorted(row.column_name for row in self._columns(table) if row.kind in ("partition_key", "clustering"))

    def _columns(self, table: TableName) -> list[Any]:
        query = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
        return self.execute(query, (table.keyspace, table.table))

    def execute_all(self, query: str, values: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
        """Run a query with each of many values, some at a time; yields the rows of each. Raises as `execute` does."""
        with self._translated():
            prepared = self._prepare(query)
            for start in range(0, len(values), _TOGETHER):
                for answer in [self._session.execute_async(prepared.bind(one)) for one in values[start:][:_TOGETHER]]:
                    yield list(answer.result())

    def _prepare(self, query: str) -> Any:
        if query not in self._prepared:
            self._prepared[query] = self._session.prepare(query)
        return self._prepared[query]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (cassandra.InvalidRequest, cassandra.AlreadyExists) as error:
            raise TableError(f"Wanted a query that Cassandra at {self.cluster} takes. Found: {error}") from None
        except (cassandra.DriverException, cassandra.cluster.NoHostAvailable) as error:
            raise UnreachableError(_refusal(self.cluster, error)) from None


def check_columns(control: Control, table: TableName, *, columns: Sequence[str]) -> None:
    """Raise `TableError`, with all that is missing, unless a table is there and has these columns."""
    found = control.columns(table)
    if found is None:
        raise TableError(f"Wanted the table {table} at {control.cluster}. Found: no such table. Has it been ingested?")
    if missing := [name for name in columns if name not in found]:
        raise TableError(
            f"Wanted the columns {', '.join(missing)} in {table}. Found: {', '.join(sorted(found))}. "
            "Columns of another name are told by --id-col, --label-col and --data-col."
        )


def read_table(
    spark: SparkSession,
    table: TableName,
    *,
    columns: Sequence[str],
    page_rows: int | None = None,
    write_time_of: str | None = None,
) -> DataFrame:
    """The rows of a table, these columns in this order; uuids are text (see `uuid_bytes`).

    ``page_rows`` is how many rows the server sends at a time: few where rows hold pictures, because it has whole pages
    in memory. ``write_time_of`` adds ``write_time``, the write time of that column in microseconds.
    Raises `TableError` naming all columns that are missing, `UnreachableError`.
    """
    with Control.from_spark(spark) as control:
        check_columns(control, table, columns=columns)
    # A quorum of each datacenter, as rows are written with: one replica alone may not have the last ones.
    consistency = spark.conf.get("spark.cassandra.input.consistency.level", None) or "LOCAL_QUORUM"
    reader = spark.read.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    reader = reader.option("spark.cassandra.input.consistency.level", consistency)
    rows = str(page_rows or spark.conf.get("spark.cassandra.input.fetch.sizeInRows", None) or _PAGE_ROWS)
    reader = reader.option("spark.cassandra.input.fetch.sizeInRows", rows)
    if page_rows is not None:  # such a table is large: tasks of seconds, whatever is lost with one
        split = spark.conf.get("spark.cassandra.input.split.sizeInMB", None) or "256"
        reader = reader.option("spark.cassandra.input.split.sizeInMB", split)
    # The connector would turn joins on uuids that we made binary into look-ups by uuid, and fail.
    frame = _load(reader.option("directJoinSetting", "off"))
    time_of = [] if write_time_of is None else [F.expr(f"writetime(`{check_column(write_time_of)}`) AS write_time")]
    return frame.select(*(F.col(check_column(name)) for name in columns), *time_of)


def _load(reader: DataFrameReader) -> DataFrame:
    """Open a table that is known to be there: the connector learns of a new one about a second after it was made."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return reader.load()
        except AnalysisException as error:
            if "Couldn't find" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)  # between two looks


def uuid_bytes(column: str | Column) -> Column:
    """The 16 big-endian bytes of a uuid that `read_table` gave as text."""
    return F.unhex(F.replace(F.col(column) if isinstance(column, str) else column, F.lit("-"), F.lit("")))


def uuid_text(column: str | Column) -> Column:
    """The text of a uuid's 16 bytes, as `append_rows` takes it."""
    digits = F.lower(F.hex(column))
    return F.regexp_replace(digits, "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def append_rows(frame: DataFrame, *, table: TableName, clock: int | None = None) -> None:
    """Write small rows to a table, over those of the same key; columns that the frame lacks are left as they are.

    ``clock`` is their write time, in microseconds since 1970; that of each machine unless it is given.
    """
    written = frame.write.format(_FORMAT).options(keyspace=table.keyspace, table=table.table)
    if clock is not None:
        written = written.option("spark.cassandra.output.timestamp", str(clock))
    written.mode("append").save()


class Writer:
    """Prepared writes through many connections, from a coroutine; `writer` makes one."""

    def __init__(self, session: Any, cluster: Cluster) -> None:
        self._session = session
        self._cluster = cluster

    async def prepare(self, query: str) -> Any:
        """A statement for `write`. Raises `TableError` if the table does not take it."""
        import acsylla

        try:
            return await self._session.create_prepared(query)
        except acsylla.errors.CassException as error:
            raise TableError(f"Wanted a table that takes {query} at {self._cluster}. Found: {_text(error)}") from None

    async def write(self, rows: Sequence[tuple[Any, Sequence[Any]]], *, about: str) -> None:
        """Write rows and wait until a quorum has them; ``about`` names them in errors.

        Each row is a prepared statement with its values. Several must be of one partition of one keyspace: they are one
        mutation then, however large, and all there or none. What a busy server drops is written again, a few times.
        Raises `TooLargeError`, `TableError` for what the table does not take, `UnreachableError`.
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
                    raise TooLargeError(_text(error)) from None
                raise TableError(f"{wanted} Found: {_text(error)}") from None
            except acsylla.errors.CassException as error:
                if attempt + 1 == _WRITE_ATTEMPTS:
                    raise UnreachableError(f"{wanted} Found: {_text(error)}") from None
            await asyncio.sleep(0.5 * 2**attempt)


@asynccontextmanager
async def picture_reader(cluster: Cluster, table: TableName, *, columns: Sequence[str]) -> AsyncIterator[ReadPicture]:
    """What reads ``columns`` by the first of them, the id (16 bytes), on an executor; None for a row that is not there.

    The password is that of `secrets_on_executors`. Raises `UnreachableError`, `TableError`.
    """
    import acsylla

    key, *wanted = (f'"{check_column(name)}"' for name in columns)
    query = f"SELECT {', '.join(wanted)} FROM {table.quoted} WHERE {key} = ?"
    async with _session(cluster) as session:
        prepared = await Writer(session, cluster).prepare(query)

        async def read(one: bytes) -> tuple[Any, ...] | None:
            name = str(uuid.UUID(bytes=one))
            for attempt in range(_WRITE_ATTEMPTS):
                if attempt:
                    await asyncio.sleep(0.5 * 2 ** (attempt - 1))
                try:
                    row = (await session.execute(prepared.bind((name,)))).first()
                    return None if row is None else tuple(row.as_tuple())
                except acsylla.errors.CassException as error:
                    found = _text(error)
            raise UnreachableError(f"Wanted image {name} of {table} at {cluster}. Found: {found}")

        yield read


@asynccontextmanager
async def writer(cluster: Cluster) -> AsyncIterator[Writer]:
    """A writer on an executor, with the password of `secrets_on_executors`. Raises `UnreachableError`."""
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
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        consistency=acsylla.Consistency.LOCAL_QUORUM,
        core_connections_per_host=2,
        load_balance_dc_aware=cluster.datacenter,
        log_level="disabled",  # its log callback outlives the session; errors come to us as exceptions anyway
    )
    try:
        session = await driver.create_session()
    except acsylla.errors.CassException as error:
        raise UnreachableError(_refusal(cluster, error)) from None
    try:
        yield session
    finally:
        await session.close()


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _refusal(cluster: Cluster, error: Exception) -> str:
    """One line for a failed connection or request, without the password and without a list of traces."""
    by_host = getattr(error, "errors", None)
    causes = list(by_host.values()) if isinstance(by_host, dict) else []
    user = "no user" if cluster.username is None else f"user {cluster.username!r}"
    if any(isinstance(cause, cassandra.AuthenticationFailed) for cause in [error, *causes]):
        return (
            f"Wanted to log in to Cassandra at {cluster}. Found: it refuses {user} with this password. "
            "Set spark.cassandra.auth.username and spark.cassandra.auth.password."
        )
    found = "; ".join(_text(cause) for cause in causes[:3]) or _text(error)
    if "protocol version" in found:
        found = f"something answers there that is not Cassandra ({found})"
    return (
        f"Wanted Cassandra at {cluster}. Found: {found}. Is it running there? "
        "Set spark.cassandra.connection.host and spark.cassandra.connection.port."
    )
