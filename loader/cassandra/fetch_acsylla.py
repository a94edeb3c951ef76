"""Reads rows with acsylla, DataStax's C++ driver under asyncio."""

import logging
import os
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from loader.cassandra.probe import BYTES_A_SECOND
from loader.cassandra.target import Target
from loader.errors import AccessError, LoaderError, TableError, UnreachableError, require
from schemas import TableName

_log = logging.getLogger("loader.driver")

_REQUEST_SECONDS = 30.0  # a read may wait for hundreds of others on a slow link
_QUEUE = 1 << 15  # reads that wait for a connection; the driver refuses more of them
_RECONNECT_MS = (500, 2000)  # first and longest pause before reconnecting to a node that went away
_HEARTBEAT_SECONDS, _SILENT_SECONDS = 2, 10  # a node is asked this often, and is away after this long without answer

_clients: "WeakSet[AcsyllaClient]" = WeakSet()
_inherited: list["AcsyllaClient"] = []


def _keep_inherited() -> None:
    """Keep the sessions of the parent alive in a forked child: to free one, the driver joins threads that the child
    lacks.
    """
    _inherited.extend(_clients)


os.register_at_fork(after_in_child=_keep_inherited)


class AcsyllaClient:
    """A session of acsylla, for `loader.cassandra.clients.TableReader`."""

    bytes_a_second = BYTES_A_SECOND

    def __init__(self, target: Target) -> None:
        self._target = target
        self._acsylla = require("acsylla", extra="loader", purpose="reading from Cassandra")
        self._errors = require("acsylla.errors", extra="loader", purpose="reading from Cassandra")
        self._no_trust = tuple(one for name, one in vars(self._errors).items() if name.startswith("CassErrorSsl"))
        self.error: type[Exception] = self._errors.CassException  # the root of its errors
        self._cluster: Any = None
        self._opening: Any = None
        self._session: Any = None
        _clients.add(self)

    @property
    def connections(self) -> int:
        return 0 if self._session is None else self._session.metrics().stats_total_connections

    async def open(self, connections: int) -> None:
        cluster = self._target.cluster
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
            use_schema=False,  # tables are not looked up; tokens of replicas are known without it
            consistency=getattr(self._acsylla.Consistency, self._target.consistency),
            logging_callback=_pass_on,
            application_name="imagestrata.loader",
        )
        self._opening = self._cluster.create_session()  # held, like the session, for a child that is forked meanwhile
        self._session = await self._opening

    async def prepare(self, select: str) -> Any:
        return await self._session.create_prepared(select)

    async def row(self, select: Any, one: bytes, *more: Any, at_quorum: bool = False) -> tuple[Any, ...] | None:
        text = one.hex()  # acsylla takes a UUID as text
        key = (f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}", *more)
        level = {"consistency": self._acsylla.Consistency.LOCAL_QUORUM} if at_quorum else {}
        found = (await self._session.execute(select.bind(key, **level))).first()
        return None if found is None else tuple(found.as_tuple())

    async def close(self) -> None:
        # A session must be closed before it is freed, even if nobody waits for its connection any more.
        if self._session is not None:
            await self._session.close()
        if self._cluster is not None:
            self._cluster.destroy()

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        """The type and kind of each column of a table by its name; none if there is no such table."""
        statement = self._acsylla.create_statement(
            "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?", 2
        )
        statement.bind_list([table.keyspace, table.table])
        result = await self._session.execute(statement)
        return {name: (cql_type, kind) for name, cql_type, kind in (row.as_tuple() for row in result.all())}

    async def explained(self, error: Exception, wanted: str, level: str) -> LoaderError:
        """The driver's error of a read at a consistency level as ours. Raises `TableError` if the table is gone."""
        if isinstance(error, self._errors.CassErrorLibNoHostsAvailable) and self._session is not None:
            # Also raised if nodes are up and refuse to prepare the statement again, because the table is gone, or
            # because too few replicas are up.
            with suppress(self._errors.CassException):
                self._target.check(await self.columns(self._target.table))
                return self._target.too_few(wanted, str(error).strip(), level)
        reason = str(error).strip() or type(error).__name__
        if isinstance(error, self._errors.CassErrorServerBadCredentials):
            return self._target.refusal(wanted, reason)
        if isinstance(error, self._errors.CassErrorLibNoHostsAvailable):
            return self._target.no_answer(wanted, reason, is_elsewhere="datacenter" in reason)
        if isinstance(error, self._errors.CassErrorServerUnavailable):
            return self._target.too_few(wanted, reason, level)
        if isinstance(error, self._no_trust):
            return AccessError(f"Wanted {wanted}. Found: {reason}. Check the certificates.")
        if isinstance(error, self._errors.CassErrorServerUnauthorized):
            return AccessError(f"Wanted {wanted}. Found: no permission ({reason})")
        if isinstance(error, self._errors.CassErrorServerInvalidQuery):
            return TableError(f"Wanted {wanted}. Found: {reason}")
        return UnreachableError(f"Wanted {wanted}. Found: {reason}")


def _pass_on(message: Any) -> None:
    """Log the driver's messages; what matters to the caller is raised as an error."""
    _log.info("%s: %s", message.log_level.lower(), message.message)
