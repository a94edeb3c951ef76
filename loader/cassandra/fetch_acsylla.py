"""Reads images with acsylla, DataStax's C++ driver under asyncio."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from loader.cassandra.cluster import QUORUMS
from loader.cassandra.diagnosis import diagnosis
from loader.cassandra.probe import connections_for, round_trip
from loader.cassandra.target import CONNECT_SECONDS, Target
from loader.errors import AccessError, LoaderError, TableError, UnreachableError, require
from loader.prefetch.fetcher import Label
from schemas import TableName

_log = logging.getLogger("loader.driver")

_REQUEST_SECONDS = 30.0  # a read may wait for hundreds of others on a slow link
_QUEUE = 1 << 15  # reads that wait for a connection; the driver refuses more of them
_RECONNECT_MS = (500, 2000)  # first and longest pause before reconnecting to a node that went away
_HEARTBEAT_SECONDS, _SILENT_SECONDS = 2, 10  # a node is asked this often, and is away after this long without answer

_fetchers: "WeakSet[AcsyllaFetcher]" = WeakSet()
_inherited: list["AcsyllaFetcher"] = []


def _keep_inherited() -> None:
    """Keep the sessions of the parent alive in a forked child: to free one, the driver joins threads that the child
    lacks.
    """
    _inherited.extend(_fetchers)


os.register_at_fork(after_in_child=_keep_inherited)


class AcsyllaFetcher:
    """Reads a target, with as many connections to each node as its cluster says, or as the round trip needs."""

    most_in_flight = None

    def __init__(self, target: Target) -> None:
        self._target = target
        self._acsylla = require("acsylla", extra="loader", purpose="reading from Cassandra")
        self._errors = require("acsylla.errors", extra="loader", purpose="reading from Cassandra")
        self._no_trust = tuple(one for name, one in vars(self._errors).items() if name.startswith("CassErrorSsl"))
        self._cluster: Any = None
        self._connecting: asyncio.Task[Any] | None = None
        self._session: Any = None
        self._select: Any = None
        self._select_metadata: Any = None
        _fetchers.add(self)

    @property
    def connections(self) -> int:
        return 0 if self._session is None else self._session.metrics().stats_total_connections

    async def connect(self) -> None:
        cluster = self._target.cluster
        try:
            await self._connect()
        except self._errors.CassException as error:
            found = self._translate(error, f"Cassandra at {cluster.place}")
            if isinstance(error, (self._errors.CassErrorLibNoHostsAvailable, *self._no_trust)):
                found = await diagnosis(cluster) or found
            raise found from error

    async def _connect(self) -> None:
        target, cluster = self._target, self._target.cluster
        connections = cluster.connections
        if connections is None:
            connections = connections_for(await round_trip(cluster.hosts, cluster.port, cluster.access.tls()))
        self._cluster = self._acsylla.create_cluster(
            **cluster.access.for_acsylla(cluster.hosts),
            port=cluster.port,
            connect_timeout=5.0,
            request_timeout=_REQUEST_SECONDS,
            load_balance_dc_aware=cluster.datacenter,
            num_threads_io=1,  # measured: a second one costs CPU and reads no more
            core_connections_per_host=connections,
            exponential_reconnect_base_delay_ms=_RECONNECT_MS[0],
            exponential_reconnect_max_delay_ms=_RECONNECT_MS[1],
            heartbeat_interval_sec=_HEARTBEAT_SECONDS,
            idle_timeout_sec=_SILENT_SECONDS,
            queue_size_io=_QUEUE,
            consistency=getattr(self._acsylla.Consistency, cluster.consistency),
            logging_callback=_pass_on,
            application_name="imagestrata.loader",
        )
        self._connecting = asyncio.create_task(self._cluster.create_session())
        done, _ = await asyncio.wait({self._connecting}, timeout=CONNECT_SECONDS)
        if not done:
            raise UnreachableError(f"Wanted Cassandra at {cluster.place}. Found: no answer in {CONNECT_SECONDS:.0f} s")
        self._session = self._connecting.result()
        target.check(await self.columns(target.table))
        self._select = await self._session.create_prepared(target.select)
        if target.metadata:
            target.check_metadata(await self.columns(target.metadata_table))
            self._select_metadata = await self._session.create_prepared(target.select_metadata)

    async def read(self, one: bytes, /) -> tuple[bytes, Label]:
        statement = self._select.bind(_parameters(one))
        try:
            row = (await self._session.execute(statement)).first()
            if row is None or row.column_value_by_index(0) is None:
                row = await self._missing(self._select, one, row)
        except self._errors.CassErrorLibNoHostsAvailable as error:
            # Also raised if nodes are up and refuse to prepare the statement again, because the table is gone, or
            # because too few replicas are up.
            with suppress(self._errors.CassException):
                self._target.check(await self.columns(self._target.table))
                raise self._target.too_few(self.wanted(one), str(error).strip()) from error
            raise self._translate(error, self.wanted(one)) from error
        except self._errors.CassException as error:
            raise self._translate(error, self.wanted(one)) from error
        if row is not None and self._target.label is None and (data := row.column_value_by_index(0)):
            return data, None
        return self._target.image(one, row and row.as_tuple())

    async def metadata(self, one: bytes, /) -> tuple[Any, ...]:
        try:
            row = (await self._session.execute(self._select_metadata.bind(_parameters(one)))).first()
            if row is None:
                row = await self._missing(self._select_metadata, one, row)
        except self._errors.CassException as error:
            raise self._translate(error, self.wanted(one)) from error
        return self._target.values(one, row and row.as_tuple())

    async def _missing(self, statement: Any, one: bytes, row: Any) -> Any:
        """Ask a quorum before a row counts as missing or deleted: the replicas that were asked may have missed its
        write.
        """
        if self._target.cluster.consistency in QUORUMS:
            return row
        again = statement.bind(_parameters(one), consistency=self._acsylla.Consistency.LOCAL_QUORUM)
        return (await self._session.execute(again)).first()

    def wanted(self, one: bytes, /) -> str:
        return self._target.wanted(one)

    async def close(self) -> None:
        if self._connecting is None:
            return
        # A session must be closed before it is freed, even if nobody waits for its connection any more.
        await asyncio.wait({self._connecting})
        if not self._connecting.cancelled() and self._connecting.exception() is None:
            await self._connecting.result().close()
        self._cluster.destroy()

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        """The type and kind of each column of a table by its name; none if there is no such table."""
        statement = self._acsylla.create_statement(
            "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?", 2
        )
        statement.bind_list([table.keyspace, table.table])
        result = await self._session.execute(statement)
        return {name: (cql_type, kind) for name, cql_type, kind in (row.as_tuple() for row in result.all())}

    def _translate(self, error: Exception, wanted: str) -> LoaderError:
        """The driver's error as one of ours."""
        reason = str(error).strip() or type(error).__name__
        if isinstance(error, self._errors.CassErrorServerBadCredentials):
            return self._target.refusal(wanted, reason)
        if isinstance(error, self._errors.CassErrorLibNoHostsAvailable):
            return self._target.no_answer(wanted, reason, is_elsewhere="datacenter" in reason)
        if isinstance(error, self._errors.CassErrorServerUnavailable):
            return self._target.too_few(wanted, reason)
        if isinstance(error, self._no_trust):
            return AccessError(f"Wanted {wanted}. Found: {reason}. Check the certificates.")
        if isinstance(error, self._errors.CassErrorServerUnauthorized):
            return AccessError(f"Wanted {wanted}. Found: no permission ({reason})")
        if isinstance(error, self._errors.CassErrorServerInvalidQuery):
            return TableError(f"Wanted {wanted}. Found: {reason}")
        return UnreachableError(f"Wanted {wanted}. Found: {reason}")


def _parameters(one: bytes) -> tuple[str]:
    """An id as the driver takes it."""
    text = one.hex()
    return (f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}",)


def _pass_on(message: Any) -> None:
    """Log the driver's messages; what matters to the caller is raised as an error."""
    _log.info("%s: %s", message.log_level.lower(), message.message)
