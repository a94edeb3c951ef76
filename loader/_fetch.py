"""Reading images by id. The only module of the loader that talks to Cassandra."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from loader._errors import AccessError, LoaderError, MissingImageError, TableError, UnreachableError
from loader._extras import require
from schemas import Columns, TableName

_log = logging.getLogger("loader.driver")

_CONNECT_SECONDS = 14.0  # the first answer of a cluster that is there takes well under one
_REQUEST_SECONDS = 30.0  # a read may stand behind hundreds of others on a slow link
_IO_THREADS = 2
_CONNECTIONS = 2  # for each node and thread: one connection carries at most its window per round trip
_QUEUE = 1 << 15  # reads that wait for a connection; the driver refuses more
_WHOLE = ("int", "tinyint", "smallint", "bigint")  # what others keep class numbers in


Fetched: TypeAlias = tuple[list[bytes], NDArray[np.int32]]
"""The images of some ids, and their labels int32 ``(b,)``, or ``(0,)`` where none were asked for."""


class Fetcher(Protocol):
    """What the prefetch engine asks of a client; all of it is called on one event loop."""

    async def connect(self) -> None:
        """Be ready to read. Raises `UnreachableError`, `AccessError` or `TableError`."""

    async def get(self, ids: NDArray[np.uint8], /) -> Fetched:
        """What belongs to uint8 ``(b, 16)`` ids, in their order.

        Raises `MissingImageError`, `TableError` for an image without a label, `UnreachableError`.
        """

    async def close(self) -> None:
        """Let go of all connections; also after a failed or cancelled `connect`."""


class AcsyllaFetcher:
    """Reads over acsylla, which is DataStax's C++ driver under asyncio; ``with_labels`` in the same reads."""

    def __init__(
        self,
        *,
        table: TableName,
        columns: Columns,
        with_labels: bool,
        hosts: Sequence[str],
        port: int,
        username: str | None,
        password: str | None,
        datacenter: str | None,
    ) -> None:
        self._table, self._columns, self._with_labels = table, columns, with_labels
        self._hosts, self._port = tuple(hosts), port
        self._username, self._password, self._datacenter = username, password, datacenter
        self._acsylla = require("acsylla", extra="loader", purpose="reading from Cassandra")
        self._errors = require("acsylla.errors", extra="loader", purpose="reading from Cassandra")
        self._cluster: Any = None
        self._connecting: asyncio.Task[Any] | None = None
        self._session: Any = None
        self._select: Any = None

    @property
    def place(self) -> str:
        """The cluster as messages name it."""
        return f"{', '.join(self._hosts)} port {self._port}"

    async def connect(self) -> None:
        """Connect, check the table's columns and prepare the one statement."""
        self._cluster = self._acsylla.create_cluster(
            list(self._hosts),
            port=self._port,
            username=self._username,
            password=self._password,
            connect_timeout=5.0,
            request_timeout=_REQUEST_SECONDS,
            load_balance_dc_aware=self._datacenter,
            num_threads_io=_IO_THREADS,
            core_connections_per_host=_CONNECTIONS,
            queue_size_io=_QUEUE,
            # An image never changes under its id, so that one replica's answer is as good as a quorum's, for a third
            # of the work. A replica that has missed a write is not believed: see _read_missing.
            consistency=self._acsylla.Consistency.LOCAL_ONE,
            logging_callback=_pass_on,
            application_name="imagestrata.loader",
        )
        self._connecting = asyncio.create_task(self._cluster.create_session())
        done, _ = await asyncio.wait({self._connecting}, timeout=_CONNECT_SECONDS)
        if not done:
            raise UnreachableError(
                f"Wanted Cassandra at {self.place}. Found: no answer within {_CONNECT_SECONDS:.0f} s"
            )
        try:
            self._session = self._connecting.result()
            await self._check_columns()
            column = self._columns
            wanted = f'"{column.data}", "{column.label}"' if self._with_labels else f'"{column.data}"'
            self._select = await self._session.create_prepared(
                f'SELECT {wanted} FROM {self._table.quoted} WHERE "{column.id}" = ?'
            )
        except self._errors.CassException as error:
            raise self._translate(error, f"Cassandra at {self.place}") from error

    async def get(self, ids: NDArray[np.uint8], /) -> Fetched:
        rows = await asyncio.gather(*map(self._read, _uuids(ids)))
        labels = [label for _, label in rows if label is not None]
        return [image for image, _ in rows], np.array(labels, dtype=np.int32)

    async def close(self) -> None:
        if self._connecting is None:
            return
        # A session must be closed before it is forgotten, also one that comes up after nobody waits for it.
        await asyncio.wait({self._connecting})
        if not self._connecting.cancelled() and self._connecting.exception() is None:
            await self._connecting.result().close()
        self._cluster.destroy()

    async def _read(self, image: str) -> tuple[bytes, int | None]:
        try:
            row = (await self._session.execute(self._select.bind((image,)))).first()
            if row is None:
                row = await self._read_missing(image)
        except self._errors.CassException as error:
            wanted = f"image {image} from {self._table} at {self.place}"
            raise self._translate(error, wanted) from error
        data: bytes | None = None if row is None else row.column_value_by_index(0)
        if data is None:
            found = "no such row" if row is None else f"its {self._columns.data} is null"
            raise MissingImageError(
                f"Wanted image {image} from {self._table} at {self.place}. Found: {found}. "
                "Was it deleted since the split was made? Ingest the images again, or make the split again."
            )
        return data, self._label(image, row.column_value_by_index(1)) if self._with_labels else None

    def _label(self, image: str, label: Any) -> int:
        if not isinstance(label, int) or not -(1 << 31) <= label < 1 << 31:
            raise TableError(
                f"Wanted a label of 32 bits for image {image} from {self._table} at {self.place}. "
                f"Found: its {self._columns.label} is {'null' if label is None else repr(label)}. "
                "Write it to the table."
            )
        return label

    async def _read_missing(self, image: str) -> Any:
        """Ask a quorum before a row is called missing: the one replica asked may have missed its write."""
        again = self._select.bind((image,), consistency=self._acsylla.Consistency.LOCAL_QUORUM)
        return (await self._session.execute(again)).first()

    async def _check_columns(self) -> None:
        statement = self._acsylla.create_statement(
            "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?", 2
        )
        statement.bind_list([self._table.keyspace, self._table.table])
        result = await self._session.execute(statement)
        found = {name: (cql_type, kind) for name, cql_type, kind in (row.as_tuple() for row in result.all())}
        column = self._columns
        label = f", and the column {column.label} int" if self._with_labels else ""
        wanted = (
            f"Wanted {self._table} with the key {column.id} uuid and the column {column.data} blob{label} "
            f"at {self.place}."
        )
        if not found:
            raise TableError(f"{wanted} Found: no such table")
        key = [name for name, (_, kind) in found.items() if kind in ("partition_key", "clustering")]
        types = {name: cql_type for name, (cql_type, _) in found.items()}
        is_right = key == [column.id] and types[column.id] in ("uuid", "timeuuid") and types.get(column.data) == "blob"
        if not is_right or (self._with_labels and types.get(column.label) not in _WHOLE):
            has = ", ".join(f"{name} {cql_type}" for name, cql_type in sorted(types.items()))
            raise TableError(f"{wanted} Found: the key ({', '.join(key)}) and the columns {has}")

    def _translate(self, error: Exception, wanted: str) -> LoaderError:
        """The driver's error as one of ours."""
        reason = str(error).strip() or type(error).__name__
        if isinstance(error, self._errors.CassErrorServerBadCredentials):
            user = "no user name" if self._username is None else f"user {self._username!r}"
            return AccessError(f"Wanted {wanted}. Found: {user} is refused ({reason})")
        if isinstance(error, self._errors.CassErrorServerUnauthorized):
            return AccessError(f"Wanted {wanted}. Found: no permission ({reason})")
        if isinstance(error, self._errors.CassErrorServerInvalidQuery):
            return TableError(f"Wanted {wanted}. Found: {reason}")
        return UnreachableError(f"Wanted {wanted}. Found: {reason}")


def _uuids(ids: NDArray[np.uint8]) -> list[str]:
    """The ids as the driver takes them."""
    packed = ids.tobytes()
    return [str(UUID(bytes=packed[start : start + 16])) for start in range(0, len(packed), 16)]


def _pass_on(message: Any) -> None:
    """The driver's remarks, for those who want them: what matters to the caller arrives as an error."""
    _log.info("%s: %s", message.log_level.lower(), message.message)
