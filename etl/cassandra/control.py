"""Control queries: definitions, small reads and transactions, from the driver.

Contact points, port, datacenter, user and TLS come from ``spark.cassandra.*``, as they do for the Spark connector. The
password and the client's key are not part of a `Cluster`, so they are in no closure and no plan: `etl.secrets` brings
them to executors.
"""

import logging
import re
import socket
import ssl
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import cassandra
import cassandra.cluster
import cassandra.connection
from cassandra.auth import PlainTextAuthProvider
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType
from pyspark.sql import SparkSession

from etl.cassandra.cluster import CONNECT_SECONDS, REQUEST_SECONDS, Cluster, is_new_table
from etl.cassandra.transactions import TransactionRetries
from etl.errors import TableError, UnreachableError, one_line
from etl.secrets import client_key_of, password_of
from formats.errors import FormatsError
from formats.retries import Retries
from formats.tls import proxied
from schemas import TableName

log = logging.getLogger("imagestrata")
_TOGETHER = 64
_TCP_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_NEW_TABLE_RETRIES = Retries(seconds=5.0)
# A node that ends, restarts or hangs, or has not heard of a table yet: others answer, or it does after some seconds.
_OUTAGES = (
    cassandra.Unavailable, cassandra.Timeout, cassandra.CoordinationFailure, cassandra.OperationTimedOut,
    cassandra.connection.ConnectionException, cassandra.cluster.NoHostAvailable,
)  # fmt: skip
_OUTAGE_RETRIES = Retries(seconds=30.0)
# A node that hung, or had no room on its disk, while a table was created waits a minute before it fetches the new
# schema. Reads that involve it fail until then.
_SCHEMA_RETRIES = Retries(seconds=100.0)
_FAILURES = (
    cassandra.DriverException, cassandra.cluster.NoHostAvailable, cassandra.cluster.ServerError,
    cassandra.connection.ConnectionException,
)  # fmt: skip

Found = TypeVar("Found")


class Control:
    """A session for definitions and small queries. A context manager: on entering, it connects, or raises
    `UnreachableError` within 15 seconds if no contact point answers, or it refuses the user.
    """

    def __init__(self, cluster: Cluster, *, password: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """``tls``: the context of connections, with the client's key; a bundle has its own."""
        self.cluster = cluster
        where, datacenter = self._where(tls)
        user = cluster.username
        profile = cassandra.cluster.ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(datacenter)),
            consistency_level=cassandra.ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=cassandra.ConsistencyLevel.SERIAL,
            request_timeout=REQUEST_SECONDS,
        )
        try:
            self._driver = cassandra.cluster.Cluster(
                **where,
                auth_provider=None if user is None else PlainTextAuthProvider(user, password or ""),
                protocol_version=cassandra.ProtocolVersion.V4,
                connect_timeout=CONNECT_SECONDS / len(where["contact_points"]),
                control_connection_timeout=CONNECT_SECONDS / len(where["contact_points"]),
                execution_profiles={cassandra.cluster.EXEC_PROFILE_DEFAULT: profile},
                schema_metadata_enabled=False,
                token_metadata_enabled=False,
                sockopts=[_TCP_NODELAY],  # without it every small query waits for the last one's acknowledgement
            )
        except cassandra.UnresolvableContactPoints:
            raise UnreachableError(
                f"Wanted Cassandra at {cluster}. Found: no address for that name. "
                "Check spark.cassandra.connection.host."
            ) from None
        self._session: Any = None
        self._prepared: dict[str, Any] = {}

    def _where(self, tls: ssl.SSLContext | None) -> tuple[dict[str, Any], str]:
        """The driver's options of hosts and TLS, and the datacenter. Raises `UnreachableError`."""
        cluster, datacenter = self.cluster, self.cluster.datacenter or ""
        if cluster.bundle is None:
            return {"contact_points": cluster.hosts, "port": cluster.port, "ssl_context": tls}, datacenter
        try:
            bundle = cluster.opened_bundle
            context = bundle.context()
            found = bundle.contacts(context, timeout=CONNECT_SECONDS)
        except FormatsError as error:
            raise UnreachableError(str(error)) from None
        except OSError as error:
            raise cluster.unreachable(f"its metadata service does not answer: {one_line(error)}") from None
        factory = cassandra.connection.SniEndPointFactory(found.host, found.port)
        return {
            "contact_points": [factory.create_from_sni(node) for node in found.nodes],
            "endpoint_factory": factory,
            "ssl_context": proxied(context, found.host),
        }, datacenter or found.datacenter

    @classmethod
    def from_spark(cls, spark: SparkSession) -> "Control":
        """Make a session from ``spark.cassandra.*``, not yet connected. Raises `EtlError` if a setting is wrong."""
        cluster = Cluster.from_spark(spark)
        tls = None if cluster.tls is None else cluster.tls.context(client_key_of(spark))
        return cls(cluster, password=password_of(spark), tls=tls)

    def __enter__(self) -> Self:
        try:
            self._session = self._driver.connect()
        except (cassandra.DriverException, cassandra.cluster.NoHostAvailable, OSError) as error:
            self._driver.shutdown()
            raise _unreachable(self.cluster, error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.shutdown()

    @property
    def datacenter(self) -> str:
        """The datacenter of new keyspaces: the configured one, else that of the first contact point."""
        return self.cluster.datacenter or str(self.execute("SELECT data_center FROM system.local")[0].data_center)

    @property
    def located(self) -> Cluster:
        """The cluster with its datacenter, for executors."""
        return replace(self.cluster, datacenter=self.datacenter)

    def execute(self, query: str, values: Sequence[Any] = (), *, is_serial: bool = False) -> list[Any]:
        """Run a query with the values of its placeholders, and return its rows, at SERIAL for rows that `apply` writes.
        It is repeated for half a minute if nodes fail, so it must do the same twice. Raises `TableError` if the server
        rejects it, and `UnreachableError` for any other failure.
        """
        with self._translated():
            bound = self._prepare(query).bind(values)
            if not is_serial:
                return list(_answered(lambda: self._session.execute(bound)))
            bound.consistency_level = cassandra.ConsistencyLevel.SERIAL
            retries = TransactionRetries(f"Wanted rows of {query.partition(' FROM ')[2]} at {self.cluster}.")
            while True:
                try:
                    return list(_once_created(lambda: self._session.execute(bound)))
                except _OUTAGES:  # or transactions of other runs conflict
                    retries.wait()

    def schema(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Rows of ``system_schema``, once all nodes agree on them: one that has not heard of a table would leave it
        out. Raises as `execute` does.
        """
        self._agree()
        return self.execute(query, values)

    def rows(self, query: str) -> Iterator[Any]:
        """Run a query with a large result. Yields its rows, of which a page is in memory; raises as `execute` does."""
        with self._translated():
            bound = self._prepare(query).bind(())
            yield from _answered(lambda: self._session.execute(bound))

    def define(self, statement: str) -> None:
        """Create, change or drop a keyspace or a table. All nodes agree on what there is before that, and after it.
        Raises as `execute` does.
        """
        self._agree()  # else the statement may reach a node that does not know what an earlier one has made
        with self._translated():
            up = (host for host in self._driver.metadata.all_hosts() if host.is_up is not False)
            # All runs in a datacenter send such statements to the same node, which runs one after the other. Two nodes
            # that create the same table at the same time give it two ids, and rows that are written under one of them
            # are lost.
            hosts = sorted((host for host in up if self._is_near(host)), key=lambda host: str(host.host_id))
            self._session.execute(statement, host=hosts[0] if hosts else None)
        self._agree()

    def _is_near(self, host: Any) -> bool:
        """Whether this session has connections to a node: the driver's policy ignores other datacenters."""
        return any(host is one for one in self._session.get_pool_state())

    def _agree(self) -> None:
        """Wait until all nodes that are up have the same schema. Raises `UnreachableError`."""
        attempts = _SCHEMA_RETRIES.begin()
        while not self._agrees():
            if attempts.count == 1:
                log.info("wait until all nodes of Cassandra have the same tables")
            if not attempts.again():
                raise UnreachableError(
                    f"Wanted all nodes of Cassandra at {self.cluster} to agree on their tables. Found: they have "
                    f"different schemas after {attempts.seconds:.0f} s. See `nodetool describecluster`, and run again."
                )

    def _agrees(self) -> bool:
        try:
            return bool(self._driver.control_connection.wait_for_schema_agreement(wait_time=1.0))
        except _OUTAGES:  # the node that is asked went away; the driver connects to another one
            return False

    def apply(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> bool:
        """Run statements of one partition as one transaction across all datacenters, and return whether it was applied;
        False if nodes failed, too. Raises as `execute` does.
        """
        with self._translated():
            batch = BatchStatement(BatchType.LOGGED, consistency_level=cassandra.ConsistencyLevel.QUORUM)
            batch.serial_consistency_level = cassandra.ConsistencyLevel.SERIAL
            for query, values in statements:
                batch.add(self._prepare(query).bind(values))
            try:
                return bool(_once_created(lambda: self._session.execute(batch)).was_applied)
            except _OUTAGES:
                return False  # the outcome is unknown: read again before you continue

    def create_table(self, table: TableName, statement: str) -> None:
        """Create a table unless it exists. Raises as `execute` does."""
        if self.columns(table) is None:
            log.info("create table %s", table)
            self.define(statement)

    def tables(self, keyspace: str) -> dict[str, uuid.UUID]:
        """The tables of a keyspace with their ids: a table that is dropped and created again has another id."""
        query = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?"
        return {row.table_name: row.id for row in self.schema(query, (keyspace,))}

    def columns(self, table: TableName) -> dict[str, str] | None:
        """The columns of a table and their CQL types; None if the table does not exist."""
        return {row.column_name: row.type for row in self._columns(table)} or None

    def key(self, table: TableName) -> list[str]:
        """The columns of a table's primary key, sorted."""
        return sorted(row.column_name for row in self._columns(table) if row.kind in ("partition_key", "clustering"))

    def _columns(self, table: TableName) -> list[Any]:
        query = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
        return self.schema(query, (table.keyspace, table.table))

    def execute_all(self, query: str, values: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
        """Run a query once for each tuple of values, several at a time, and yield the rows of each in this order. Each
        is repeated as by `execute`, which says what is raised.
        """
        with self._translated():
            prepared = self._prepare(query)
            for start in range(0, len(values), _TOGETHER):
                bound = list(map(prepared.bind, values[start:][:_TOGETHER]))
                for one, answer in [(one, self._session.execute_async(one)) for one in bound]:
                    yield list(self._result(one, answer))

    def _result(self, bound: Any, answer: Any) -> Any:
        """The result of a query that was sent; it is sent again if nodes fail."""
        try:
            return answer.result()
        except _OUTAGES:
            return _answered(lambda: self._session.execute(bound))

    def _prepare(self, query: str) -> Any:
        if query not in self._prepared:
            self._prepared[query] = _answered(lambda: self._session.prepare(query))
        return self._prepared[query]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (cassandra.InvalidRequest, cassandra.AlreadyExists) as error:
            raise TableError(f"Wanted a query that Cassandra at {self.cluster} accepts. Found: {error}") from None
        except cassandra.Unauthorized as error:
            found = re.search('message="(.*)"', str(error))
            raise TableError(
                f"Wanted a role with this permission in Cassandra at {self.cluster}. "
                f"Found: {found[1] if found else error}. GRANT it, or log in as another role."
            ) from None
        except _FAILURES as error:
            raise _unreachable(self.cluster, error) from None


def _once_created(run: Callable[[], Found]) -> Found:
    """Run a query, again for a few seconds if its table is being created by another run."""
    errors = (cassandra.InvalidRequest, *_FAILURES)
    return _NEW_TABLE_RETRIES.run(run, errors, is_passing=is_new_table)


def _answered(run: Callable[[], Found]) -> Found:
    """Run a query that may run twice, again for half a minute if nodes fail, and for longer while they have different
    schemas.
    """
    return _SCHEMA_RETRIES.run(
        lambda: _OUTAGE_RETRIES.run(lambda: _once_created(run), _OUTAGES),
        (cassandra.CoordinationFailure,),
        is_passing=lambda error: "INCOMPATIBLE_SCHEMA" in str(error),
    )


def check_columns(control: Control, table: TableName, *, columns: Sequence[str]) -> None:
    """Raise `TableError`, which names all columns that are missing, unless a table exists and has these columns."""
    found = control.columns(table)
    if found is None:
        raise TableError(f"Wanted the table {table} at {control.cluster}. Found: no such table. Has it been ingested?")
    if missing := [name for name in columns if name not in found]:
        raise TableError(
            f"Wanted the columns {', '.join(missing)} in {table}. Found: {', '.join(sorted(found))}. "
            "If your columns have other names, set --id-col, --label-col and --data-col."
        )


def _unreachable(cluster: Cluster, error: Exception) -> UnreachableError:
    """Make the error for a failed connection or request. It contains neither the password nor traces."""
    by_host = getattr(error, "errors", None)
    causes = list(by_host.values()) if isinstance(by_host, dict) else []
    user = "no user" if cluster.username is None else f"user {cluster.username!r}"
    if any(isinstance(cause, cassandra.AuthenticationFailed) for cause in [error, *causes]):
        return UnreachableError(
            f"Wanted to log in to Cassandra at {cluster}. Found: it refuses {user} with this password. "
            "Set spark.cassandra.auth.username and spark.cassandra.auth.password, or IMAGESTRATA_USERNAME and "
            "IMAGESTRATA_PASSWORD for a command."
        )
    return cluster.unreachable("; ".join(dict.fromkeys(map(_reason, causes[:3]))) or _reason(error))


def _reason(error: Exception) -> str:
    """The message of an error, without the address that the driver puts before the system's own words."""
    before, found, reason = one_line(error).partition(" Last error: ")
    return f"{reason[:1].lower()}{reason[1:]}" if found and "Tried connecting to" in before else one_line(error)
