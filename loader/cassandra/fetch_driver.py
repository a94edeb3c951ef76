"""Reads rows with DataStax's Python driver, which uses Python's TLS."""

import asyncio
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from typing import Any
from uuid import UUID

from formats.tls import Bundle, proxied
from loader.cassandra.access import FilePath, by_name
from loader.cassandra.target import Target
from loader.errors import AccessError, LoaderError, TableError, UnreachableError, require
from schemas import TableName

_REQUEST_SECONDS = 30.0  # a read may wait for hundreds of others on a slow link
_STEP_SECONDS = 5.0  # for a connection, and for the metadata service of a bundle
_RECONNECT_SECONDS = (0.5, 2.0)  # first and longest pause before reconnecting to a node that went away
_HEARTBEAT_SECONDS = 5.0  # how often a node is asked whether it is up, and how long it may take to answer
_PROTOCOL = 4  # supported since 2.2; version 5 adds checksums, which cost time
_QUORUM = "quorum"
# How much the driver asks a socket for. It goes on reading while it gets that much, and then copies all that it has
# read for each answer in it; over TLS it gets a record of 16 kB at most. Measured with 256 reads in flight over TLS:
# 0.7 ms CPU an image, against 1.15 ms with the driver's own 4 kB.
_READ_BYTES = 1 << 16


class DriverClient:
    """Sessions of the driver, for `loader.cassandra.clients.TableReader`."""

    bytes_a_second = 200e6  # more than one thread of Python reads
    error = Exception  # its errors have no root in common

    def __init__(self, target: Target) -> None:
        self._target = target
        self._driver, self._connection, self._policies, self._query, self._auth = (
            require(f"cassandra.{name}", extra="loader", purpose="reading from Cassandra")
            for name in ("cluster", "connection", "policies", "query", "auth")
        )
        self._errors = require("cassandra", extra="loader", purpose="reading from Cassandra")
        # Its messages are shown only if there is a handler: what matters to the caller is raised as an error.
        logging.getLogger("cassandra").addHandler(logging.NullHandler())
        self._cluster: Any = None
        # A session of the driver has one connection to each node, so there are as many sessions, which take turns.
        self._sessions: list[Any] = []
        self._turns: Iterator[Any] = iter(())

    @property
    def connections(self) -> int:
        states = (state for session in self._sessions for state in session.get_pool_state().values())
        return sum(int(state["open_count"]) for state in states)

    async def open(self, connections: int) -> None:
        """Open so many sessions; fewer if the server refuses some after the first."""
        self._cluster = await _in_thread(partial(self._make_cluster, connections))
        # If the first fails, the driver shuts the cluster down, and others would raise that instead of the cause.
        first = await _in_thread(self._cluster.connect)
        others = (_in_thread(self._cluster.connect) for _ in range(connections - 1))
        found = await asyncio.gather(*others, return_exceptions=True)
        self._sessions = [first, *(session for session in found if not isinstance(session, BaseException))]
        self._turns = itertools.cycle(self._sessions)

    async def prepare(self, select: str) -> Any:
        return await _in_thread(partial(self._sessions[0].prepare, select))

    async def row(self, select: Any, one: bytes, *more: Any, at_quorum: bool = False) -> tuple[Any, ...] | None:
        level = {"execution_profile": _QUORUM} if at_quorum else {}
        rows = await self._ask(select.bind((UUID(bytes=one), *more)), **level)
        return rows[0] if rows else None

    async def close(self) -> None:
        self._sessions = []
        if self._cluster is not None:
            await _in_thread(self._cluster.shutdown)

    def _make_cluster(self, count: int) -> Any:
        """The driver's cluster, not yet connected; blocks while names are looked up."""
        access, policies = self._target.cluster.access, self._policies
        where, datacenter = self._where()
        if access.username is not None:
            where["auth_provider"] = self._auth.PlainTextAuthProvider(access.username, access.password)
        where.setdefault("connection_class", _buffered(self._driver.Cluster.connection_class))
        local = policies.DCAwareRoundRobinPolicy(**({"local_dc": datacenter} if datacenter else {}))
        profile = partial(
            self._driver.ExecutionProfile,
            load_balancing_policy=policies.TokenAwarePolicy(local),
            row_factory=self._query.tuple_factory,
            request_timeout=_REQUEST_SECONDS,
            # Our own retries wait in between. The driver's sometimes end before it has noted why the first try failed.
            retry_policy=policies.FallthroughRetryPolicy(),
        )
        level = self._errors.ConsistencyLevel
        return self._driver.Cluster(
            **where,
            executor_threads=count,  # each makes a connection, which takes several round trips
            protocol_version=_PROTOCOL,
            compression=False,  # images are compressed
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # else small requests wait for each other
            connect_timeout=_STEP_SECONDS,
            control_connection_timeout=_STEP_SECONDS,
            idle_heartbeat_interval=_HEARTBEAT_SECONDS,
            idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
            reconnection_policy=policies.ExponentialReconnectionPolicy(*_RECONNECT_SECONDS),
            execution_profiles={
                self._driver.EXEC_PROFILE_DEFAULT: profile(
                    consistency_level=level.name_to_value[self._target.consistency]
                ),
                _QUORUM: profile(consistency_level=level.LOCAL_QUORUM),
            },
            application_name="imagestrata.loader",
        )

    def _where(self) -> tuple[dict[str, Any], str | None]:
        """Hosts and trusted authorities as options of the driver, and the datacenter to read from."""
        cluster, access = self._target.cluster, self._target.cluster.access
        if access.bundle is not None:
            return self._behind_proxy(access.bundle)
        if (context := access.strict_tls()) is None:
            return {"contact_points": list(cluster.hosts), "port": cluster.port}, cluster.datacenter
        factory = _endpoints(self._connection, named=by_name(cluster.hosts))(port=cluster.port)
        addresses: dict[str, None] = {}  # a set with an order
        for host in cluster.hosts:
            with suppress(OSError):  # others may resolve, or else the diagnosis says what is wrong
                found = socket.getaddrinfo(host, cluster.port, type=socket.SOCK_STREAM)
                addresses |= dict.fromkeys(str(info[4][0]) for info in found)
        return {
            "contact_points": [factory.at(address) for address in addresses],
            "port": cluster.port,
            "endpoint_factory": factory,
            "ssl_context": context,
        }, cluster.datacenter

    def _behind_proxy(self, path: FilePath) -> tuple[dict[str, Any], str | None]:
        """As `_where`, from the metadata service of a bundle. The driver itself would not check its name."""
        bundle = Bundle.open(path)
        context = bundle.context()
        contacts = bundle.contacts(context, timeout=_STEP_SECONDS)
        factory = self._connection.SniEndPointFactory(contacts.host, contacts.port)
        return {
            "contact_points": [factory.create_from_sni(node) for node in contacts.nodes],
            "endpoint_factory": factory,
            "ssl_context": proxied(context, contacts.host),
        }, self._target.cluster.datacenter or contacts.datacenter

    async def _ask(self, statement: Any, values: Any = None, **options: Any) -> list[tuple[Any, ...]]:
        """Rows of an answer, which comes on a thread of the driver."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()
        next(self._turns).execute_async(statement, values, **options).add_callbacks(
            partial(_hand_over, loop, answer, answer.set_result),
            partial(_hand_over, loop, answer, answer.set_exception),
        )
        return await answer

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        """The type and kind of each column of a table by its name; none if there is no such table."""
        rows = await self._ask(
            "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s",
            (table.keyspace, table.table),
        )
        return {name: (cql_type, kind) for name, cql_type, kind in rows}

    async def explained(self, error: Exception, wanted: str, level: str) -> LoaderError:
        """The driver's error of a read at a consistency level as ours."""
        # The errors of the hosts, if none was left; or a list of hosts that were not asked.
        said = getattr(error, "errors", None)
        reasons = [one for one in said.values() if isinstance(one, Exception)] if isinstance(said, dict) else []
        reason = ", ".join(dict.fromkeys(map(_said, reasons))) or _said(error)
        for one in (error, *reasons):
            if isinstance(one, self._errors.AuthenticationFailed):
                return self._target.refusal(wanted, _said(one))
        if isinstance(error, self._errors.Unauthorized):
            return AccessError(f"Wanted {wanted}. Found: no permission ({reason})")
        if isinstance(error, self._errors.RequestValidationException):
            return TableError(f"Wanted {wanted}. Found: {reason}")
        if any(isinstance(one, self._errors.Unavailable) for one in (error, *reasons)):
            return self._target.too_few(wanted, reason, level)
        if "certificate" in reason.lower():
            return AccessError(f"Wanted {wanted}. Found: {reason}. Check the certificates.")
        if isinstance(said, list):
            return self._target.no_answer(wanted, reason, is_elsewhere=bool(said))
        return UnreachableError(f"Wanted {wanted}. Found: {reason}")


def _hand_over(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], put: Callable[[Any], None], what: Any
) -> None:
    """Settle a future of the event loop from a thread of the driver."""
    with suppress(RuntimeError):  # the loop is closed: nothing waits for the answer
        loop.call_soon_threadsafe(_settle, answer, put, what)


def _settle(answer: asyncio.Future[Any], put: Callable[[Any], None], what: Any) -> None:
    if not answer.done():  # or cancelled
        put(what)


def _said(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run a blocking function in a thread that does not delay the end of the process."""
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()  # else a cancelled wait would make the thread's result an error

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="loader-driver", daemon=True).start()
    return asyncio.wrap_future(done)


def _endpoints(connection: Any, *, named: bool) -> Any:
    """The driver's idea of addresses, each with what its certificate must name: itself, or what a reverse lookup calls
    it, because nodes tell each other's addresses only."""

    class EndPoint(connection.DefaultEndPoint):  # type: ignore[misc]
        @property
        def ssl_options(self) -> dict[str, str]:
            called = socket.getnameinfo((self.address, 0), 0)[0].rstrip(".") if named else self.address
            return {"server_hostname": called}

    class Factory(connection.DefaultEndPointFactory):  # type: ignore[misc]
        def at(self, address: str, port: int | None = None) -> EndPoint:
            return EndPoint(address, port or self.port)

        def create(self, row: Any) -> EndPoint | None:
            plain = super().create(row)
            return plain and self.at(plain.address, plain.port)

    return Factory


@cache
def _buffered(connection_class: Any) -> Any:
    """Connections that read more at a time. One class for all: the driver has an event loop for each."""
    return type("Connection", (connection_class,), {"in_buffer_size": _READ_BYTES})
