"""The source that reads from Cassandra."""

from collections.abc import Sequence

from loader.cassandra.access import Access
from loader.cassandra.clients import Client
from loader.cassandra.connection import CassandraPlace
from loader.cassandra.target import Consistency
from loader.errors import OptionError
from loader.folder.folders import Folder
from loader.order.permutation import LastBatchPolicy
from loader.prefetch.stream import OnMissing
from loader.source import Source
from loader.splits import Split


class CassandraSource(Source):
    """Batches of a split on one rank, read from Cassandra ahead of their use.

    Order, ranks, policies, faults and the options that all sources have are as in `Source`.

    Connections, too, follow the round trip and the rate that are measured; ``connections`` (to each node) is for those
    who insist. ``metadata`` names columns of the split's metadata table, which are read beside the images: a second
    read for each. Labels that the split does not know are read with the images.

    ``hosts`` are contact points, one name or address as a string or several in a list; ``datacenter`` is the one to
    read from, by default the one of the first contact point that answers. ``username`` and ``password`` log in;
    ``access`` says all that `Access` can, with a bundle also where to go, without hosts. Without ``access``, what is
    not given comes from the environment: `Access.from_environment`.

    ``consistency`` says how many replicas answer a read, in CQL's words. LOCAL_QUORUM finds what an ingest, also one
    with ``--overwrite``, or a repair wrote last; LOCAL_ONE saves the servers work, but a replica that missed a write
    gives old bytes. With one copy of each row both are the same. Where the writer is in another datacenter, say QUORUM.

    ``client`` is the library that reads. By default it is ``"acsylla"`` without TLS and ``"cassandra-driver"`` over
    TLS; if one is not installed, the other. acsylla reads more than twice as many images a second, but its wheel
    bundles OpenSSL 1.1.1k, which your system's security updates do not reach; the driver uses the OpenSSL of Python.

    Raises `OptionError` for an option out of its range. Reading raises `UnreachableError`, `AccessError`,
    `TableError`, `MissingImageError` and, after `close`, `ClosedError`.
    """

    def __init__(
        self,
        split: Split,
        *,
        hosts: str | Sequence[str] | None = None,
        port: int = 9042,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        last_batch_policy: LastBatchPolicy = "PARTIAL",
        in_order: bool = True,
        metadata: Sequence[str] = (),
        on_missing: OnMissing = "raise",
        max_missing: float = 0.01,
        memory_budget: int = 256_000_000,
        timeout: float = 60.0,
        max_in_flight: int = 4096,
        connections: int | None = None,
        client: Client | None = None,
        username: str | None = None,
        password: str | None = None,
        access: Access | None = None,
        datacenter: str | None = None,
        consistency: Consistency = "LOCAL_QUORUM",
    ) -> None:
        if not isinstance(split, Split) or isinstance(split, Folder):
            raise OptionError(f"Wanted a split, as loader.open_split gives it. Found: {split!r}")
        place = CassandraPlace.checked(
            hosts=hosts,
            port=port,
            metadata=metadata,
            connections=connections,
            client=client,
            username=username,
            password=password,
            access=access,
            datacenter=datacenter,
            consistency=consistency,
        )
        self.hosts, self.port = place.hosts, place.port
        super().__init__(
            split,
            place.fetchers(split),
            place.options(),
            metadata=place.metadata,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            last_batch_policy=last_batch_policy,
            in_order=in_order,
            on_missing=on_missing,
            max_missing=max_missing,
            memory_budget=memory_budget,
            timeout=timeout,
            max_in_flight=max_in_flight,
        )

    def _where(self) -> str:
        return f"hosts={list(self.hosts)}, port={self.port}, "
