"""The table that is read, and what all clients of Cassandra have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from formats.checksums import COLUMN as CHECKSUM
from loader.cassandra.cluster import QUORUMS, Cluster, Consistency
from loader.errors import (
    AccessError,
    ChangedImageError,
    DeletedImageError,
    MissingImageError,
    TableError,
    UnreachableError,
)
from loader.prefetch.fetcher import Label
from schemas import Columns, TableName
from schemas.tables import kept_of

CONNECT_SECONDS = 14.0  # the first answer of a cluster usually takes well under a second
_WHOLE = ("int", "tinyint", "smallint", "bigint")  # types of class numbers in tables of other tools

_ACCEPT = "Make the split again, or read the newest bytes with on_changed='accept'."

Kind: TypeAlias = Literal["int", "blob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that is read, and the cluster that it is in."""

    cluster: Cluster
    consistency: Consistency
    table: TableName
    columns: Columns
    label: Kind | None  # the type of labels that are read with the images; None if none are
    metadata_table: TableName
    metadata: tuple[str, ...]  # the columns to read of it
    origin: str = "Was it deleted since the split was made?"  # the likely cause if an image is missing
    split: str = "the split"  # for messages

    @property
    def select(self) -> str:
        """The statement for an image, and its label if requested, by id."""
        column = self.columns
        wanted = f'"{column.data}", "{column.label}"' if self.label else f'"{column.data}"'
        return f'SELECT {wanted} FROM {self.table.quoted} WHERE "{column.id}" = ?'

    @property
    def select_metadata(self) -> str:
        """The statement for the metadata columns, by id."""
        names = ", ".join(f'"{name}"' for name in self.metadata)
        return f'SELECT {names} FROM {self.metadata_table.quoted} WHERE "{self.columns.id}" = ?'

    @property
    def kept(self) -> TableName:
        """The table of replaced bytes (``ingest.py --keep-replaced``), which need not exist."""
        return kept_of(self.table)

    @property
    def select_kept(self) -> str:
        """The statement for a replaced image, and its mask or array if requested, by id and checksum."""
        wanted = '"data", "label"' if self.label else '"data"'
        return f'SELECT {wanted} FROM {self.kept.quoted} WHERE "id" = ? AND "{CHECKSUM}" = ?'

    @property
    def select_recorded(self) -> str:
        """The statement for what the metadata says of the bytes of an image, by id: `changed` takes such a row."""
        names = f'"{CHECKSUM}", "since", "ingest_id"'
        return f'SELECT {names} FROM {self.metadata_table.quoted} WHERE "{self.columns.id}" = ?'

    def wanted(self, one: bytes, /) -> str:
        """An image with its table and hosts, for messages."""
        return f"image {UUID(bytes=one)} from {self.table} at {self.cluster.place}"

    def no_answer(self, wanted: str, reason: str, *, is_elsewhere: bool) -> UnreachableError:
        """The error for a read that no node answers; ``is_elsewhere``: only nodes of other datacenters do."""
        if (datacenter := self.cluster.datacenter) is not None and is_elsewhere:
            return UnreachableError(
                f"Wanted {wanted}, from the datacenter {datacenter}. Found: no node of it among the hosts. "
                "Give the name that SELECT data_center FROM system.local returns, or none."
            )
        return UnreachableError(f"Wanted {wanted}. Found: no node that answers ({reason})")

    def too_few(self, wanted: str, reason: str, level: str) -> UnreachableError:
        """The error for a read at a consistency level for which too few replicas are up."""
        advice = (
            ""
            if self.consistency not in QUORUMS
            else (" Start its nodes. consistency='LOCAL_ONE' reads from one replica, which may have old bytes.")
        )
        return UnreachableError(f"Wanted {wanted} at {level}. Found: too few replicas answer ({reason}).{advice}")

    def refusal(self, wanted: str, reason: str) -> AccessError:
        """The error for a refused log-in."""
        if (user := self.cluster.access.username) is None:
            return AccessError(
                f"Wanted {wanted}. Found: it requires a log-in ({reason}). Give username and password, or "
                "IMAGESTRATA_USERNAME and IMAGESTRATA_PASSWORD."
            )
        return AccessError(
            f"Wanted {wanted}. Found: user {user!r} is refused ({reason}). Correct the user name or the password."
        )

    def check(self, found: Mapping[str, tuple[str, str]], /) -> None:
        """Compare the table's columns (type and kind by name) with what is read. Raises `TableError`."""
        column = self.columns
        label = f", and the column {column.label} {self.label}" if self.label else ""
        wanted = (
            f"Wanted {self.table} with the key {column.id} uuid and the column {column.data} blob{label} "
            f"at {self.cluster.place}."
        )
        if not found:
            raise TableError(f"{wanted} Found: no such table")
        key = [name for name, (_, kind) in found.items() if kind in ("partition_key", "clustering")]
        types = {name: cql_type for name, (cql_type, _) in found.items()}
        is_right = key == [column.id] and types[column.id] in ("uuid", "timeuuid") and types.get(column.data) == "blob"
        is_right &= self.label is None or types.get(column.label) in (_WHOLE if self.label == "int" else ("blob",))
        if not is_right:
            has = ", ".join(f"{name} {cql_type}" for name, cql_type in sorted(types.items()))
            raise TableError(f"{wanted} Found: the key ({', '.join(key)}) and the columns {has}")

    def check_metadata(self, found: Mapping[str, tuple[str, str]], /) -> None:
        """Compare the metadata table's columns (type and kind by name) with the requested ones. Raises `TableError`."""
        gone = [name for name in self.metadata if name not in found]
        if gone or self.columns.id not in found:
            has = ", ".join(sorted(found)) or "no such table"
            raise TableError(
                f"Wanted the columns {', '.join([self.columns.id, *self.metadata])} in {self.metadata_table} at "
                f"{self.cluster.place}. Found: {has}"
            )

    def image(self, one: bytes, row: Sequence[Any] | None, /) -> tuple[bytes, Label]:
        """Image and label of a row. Raises `DeletedImageError` for a row whose image is null, `MissingImageError` for
        no row or an empty image, and `TableError` without a label.
        """
        if row is None:
            raise MissingImageError(f"Wanted {self.wanted(one)}. Found: no such row. {self.origin}")
        data: bytes | None = row[0]
        if data is None:
            raise DeletedImageError(
                f"Wanted {self.wanted(one)}. Found: it was deleted (its {self.columns.data} is null). "
                "on_missing='skip' leaves deleted images out; a new split does not have them."
            )
        if not data:
            raise MissingImageError(
                f"Wanted {self.wanted(one)}. Found: its {self.columns.data} has 0 bytes. {self.origin}"
            )
        return data, self._label(one, row[1]) if self.label else None

    def changed(self, one: bytes, found: int, /, *, wanted: int, row: Sequence[Any] | None) -> ChangedImageError:
        """The error for an image with another checksum than the split's; ``row`` has what `select_recorded` found."""
        recorded, since, ingest = row or (None, None, None)
        if recorded == wanted:
            why = (
                f"{self.metadata_table} still has the checksum of the split, so the stored bytes are damaged. "
                "jobs/verify.py with the source and --repair writes them again, on all nodes with "
                "--conf spark.cassandra.input.consistency.level=ALL."
            )
        elif recorded == found:
            why = f"Run {since} (ingest {ingest}) has replaced the image since. {_ACCEPT}"
        else:
            why = f"The image was replaced since, or is being replaced now. {_ACCEPT}"
        return ChangedImageError(
            f"Wanted {self.wanted(one)} with the checksum {wanted} of {self.split}. Found: other bytes, with the "
            f"checksum {found}. {why}"
        )

    def values(self, one: bytes, row: Sequence[Any] | None, /) -> tuple[Any, ...]:
        """The values of a metadata row; raises `MissingImageError` without one."""
        if row is None:
            raise MissingImageError(
                f"Wanted the metadata of image {UUID(bytes=one)} from {self.metadata_table} at {self.cluster.place}. "
                "Found: no such row"
            )
        return tuple(row)

    def _label(self, one: bytes, label: Any) -> int | bytes:
        if self.label == "blob":
            if not isinstance(label, bytes):
                raise TableError(
                    f"Wanted a label for {self.wanted(one)}. Found: its {self.columns.label} is null. "
                    "Write it to the table."
                )
            return label
        if not isinstance(label, int) or not -(1 << 31) <= label < 1 << 31:
            raise TableError(
                f"Wanted a label of 32 bits for {self.wanted(one)}. "
                f"Found: its {self.columns.label} is {'null' if label is None else repr(label)}. "
                "Write it to the table."
            )
        return label
