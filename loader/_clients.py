"""Which client of Cassandra reads: acsylla, or DataStax's Python driver where that is not installed."""

import importlib
import logging
from typing import Literal, TypeAlias, get_args

from loader._access import Access
from loader._errors import MissingExtraError, OptionError
from loader._fetch import Consistency, Fetcher, Kind, Target
from loader._fetch_acsylla import AcsyllaFetcher
from loader._fetch_driver import DriverFetcher
from loader._options import check_choice, check_int
from loader._splits import Split
from schemas import TableName

Client: TypeAlias = Literal["acsylla", "cassandra-driver"]

_MOST_CONNECTIONS = 1024  # to each node: more than any link asks for, fewer than a node refuses

_log = logging.getLogger(__name__)
_warned: set[str] = set()
_LABELS: dict[str, Kind | None] = {"int": "int", "blob": "blob", "multi": "blob", "none": None}
"""What stands in a data table's label column, by the type of labels."""


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
    """What is read for a split: labels, too, where it does not know them."""
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
    """Why a split's image may be missing from the table, with the tables that the split itself names."""
    if split.recorded_table not in ("", split.data_table):
        return (
            f"{split.address} itself names the table {split.recorded_table}, and {split.data_table} is read in its "
            "place: give the data_table that belongs to it, or none."
        )
    made = f" of {split.metadata_table}" if split.metadata_table else ""
    return (
        f"{split.address} lists images{made}, which are read from {split.data_table}: was it made of other tables than "
        "these, or was the image deleted since? Ingest the images again, or make the split again."
    )


def fetcher(target: Target, *, client: Client | None, connections: int | None) -> Fetcher:
    """A reader of the target over this client, or over the best one that is installed.

    ``connections`` to each node are acsylla's affair; the other makes one. Raises `MissingExtraError`.
    """
    if (client or _installed()) == "acsylla":
        return AcsyllaFetcher(target, connections=connections)
    return DriverFetcher(target)


def check_client(client: Client | None, connections: int | None) -> None:
    """Raises `OptionError` for another client, or options that it has not."""
    if client is not None:
        check_choice("client", client, get_args(Client))
    if connections is not None:
        check_int("connections", connections, 1, _MOST_CONNECTIONS)
        if client == "cassandra-driver":
            raise OptionError("Wanted connections for acsylla. Found: cassandra-driver, which makes one to each node")


def _installed() -> Client:
    reasons: dict[str, str] = {}
    names: dict[Client, str] = {"acsylla": "acsylla", "cassandra-driver": "cassandra.cluster"}
    for client, module in names.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            reasons[client] = str(error)
            continue
        if reasons and client not in _warned:
            _warned.add(client)
            _log.warning(
                "acsylla cannot be imported (%s): reading with %s, which is several times slower "
                "and makes one connection to each node",
                *reasons.values(),
                client,
            )
        return client
    raise MissingExtraError(
        f"Wanted acsylla or cassandra-driver for reading from Cassandra. Found: neither can be imported "
        f"({'; '.join(reasons.values())}). Install them: pip install 'imagestrata[loader]'",
        name="acsylla",
    )
