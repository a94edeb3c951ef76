"""The client that reads from Cassandra: acsylla without TLS, DataStax's Python driver with TLS, or the installed one.

acsylla is faster. Its wheel bundles OpenSSL 1.1.1k, which OpenSSL no longer supports and only a new release of acsylla
can replace. The driver uses Python's OpenSSL, which updates of the system or of Python replace.
"""

import importlib
import logging
from typing import Literal, TypeAlias, get_args

from loader.cassandra.access import Access
from loader.cassandra.fetch_acsylla import AcsyllaFetcher
from loader.cassandra.fetch_driver import DriverFetcher
from loader.cassandra.target import Consistency, Kind, Target
from loader.errors import MissingExtraError
from loader.options import check_choice, check_int
from loader.splits import Split
from schemas import TableName

ClientName: TypeAlias = Literal["acsylla", "cassandra-driver"]
TableReader: TypeAlias = AcsyllaFetcher | DriverFetcher

_MOST_CONNECTIONS = 1024  # to each node: more than any link needs, fewer than a node refuses

_log = logging.getLogger(__name__)
_warned: set[str] = set()
_WARNINGS: dict[ClientName, str] = {
    "acsylla": (
        "cassandra-driver cannot be imported (%s): reading over TLS with acsylla. It bundles OpenSSL 1.1.1k, which "
        "OpenSSL no longer supports: your system's security updates do not reach it, only a new release of acsylla "
        "does. To use the OpenSSL of Python: pip install cassandra-driver"
    ),
    "cassandra-driver": (
        "acsylla cannot be imported (%s): reading with cassandra-driver, which takes about three times the CPU time"
    ),
}
_LABELS: dict[str, Kind | None] = {"int": "int", "blob": "blob", "multi": "blob", "none": None}
"""The type of a data table's label column, by the type of labels."""


def target_of(
    split: Split,
    *,
    metadata: tuple[str, ...],
    hosts: tuple[str, ...],
    port: int,
    datacenter: str | None,
    access: Access,
    consistency: Consistency = "LOCAL_QUORUM",
) -> Target:
    """What is read for a split, including labels if the split does not have them."""
    table = TableName.parse(split.data_table)
    return Target(
        table=table,
        columns=split.columns,
        label=_LABELS[split.label_type] if split.labels is None else None,
        metadata_table=TableName.parse(split.metadata_table) if metadata else table,
        metadata=metadata,
        hosts=hosts,
        port=port,
        datacenter=datacenter,
        access=access,
        consistency=consistency,
        origin=_origin(split),
    )


def _origin(split: Split) -> str:
    """Why a split's image may be missing from the table, with the tables that the split names."""
    if split.recorded_table not in ("", split.data_table):
        return (
            f"{split.address} names the table {split.recorded_table}, but {split.data_table} is read instead. "
            "Give the data_table that belongs to it, or none."
        )
    if split.expires:
        return (
            f"Images of {split.address} expire from {split.expires} on (ingest.py --ttl), so this one may have "
            "expired. Ingest the images again, or make the split again."
        )
    made = f" of {split.metadata_table}" if split.metadata_table else ""
    return (
        f"{split.address} lists images{made}, which are read from {split.data_table}. Was the split made from other "
        "tables, or was the image deleted? Ingest the images again, or make the split again."
    )


def fetcher(target: Target, *, client: ClientName | None, connections: int | None) -> TableReader:
    """A reader of the target with this client, or the default one, and ``connections`` to each node.

    Raises `MissingExtraError`.
    """
    if (client or default_client(uses_tls=target.access.uses_tls)) == "acsylla":
        return AcsyllaFetcher(target, connections=connections)
    return DriverFetcher(target, connections=connections)


def check_client(client: ClientName | None, connections: int | None) -> None:
    """Raise `OptionError` for an unknown client or an impossible number of connections."""
    if client is not None:
        check_choice("client", client, get_args(ClientName))
    if connections is not None:
        check_int("connections", connections, 1, _MOST_CONNECTIONS)


def default_client(*, uses_tls: bool) -> ClientName:
    """The client that reads by default. Raises `MissingExtraError`.

    If it is the other one because the preferred one is missing, a warning is logged, once a process.
    """
    reasons: list[str] = []
    modules: dict[ClientName, str] = {"acsylla": "acsylla", "cassandra-driver": "cassandra.cluster"}
    wanted, other = sorted(modules, key=lambda client: (client == "acsylla") == uses_tls)
    for client in (wanted, other):
        try:
            importlib.import_module(modules[client])
        except ImportError as error:
            reasons.append(str(error))
            continue
        if client == other and client not in _warned:
            _warned.add(client)
            _log.warning(_WARNINGS[client], *reasons)
        return client
    raise MissingExtraError(
        f"Wanted acsylla or cassandra-driver for reading from Cassandra. Found: neither can be imported "
        f"({'; '.join(reasons)}). Install them: pip install 'imagestrata[loader]'",
        name="acsylla",
    )
