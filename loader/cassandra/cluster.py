"""A Cassandra cluster, and how it is read."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from formats.local_node import LocalNode
from loader.cassandra.access import Access
from loader.errors import OptionError, UnreachableError
from loader.options import check_choice, check_int

ClientName: TypeAlias = Literal["acsylla", "cassandra-driver"]
Consistency: TypeAlias = Literal["LOCAL_QUORUM", "LOCAL_ONE", "ONE", "TWO", "THREE", "QUORUM", "ALL"]
OnChanged: TypeAlias = Literal["raise", "accept"]
# Levels that find every row that was written at a quorum.
QUORUMS: tuple[Consistency, ...] = ("LOCAL_QUORUM", "QUORUM", "ALL")

_PORT = 9042
_MOST_CONNECTIONS = 1024  # to each node: more than any link needs, fewer than a node refuses
_HOST = re.compile(r"[^,\s/:]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")  # a name or IPv4, or an IPv6


class ClusterOptions(TypedDict, total=False):
    """The arguments of `Cluster`, for functions that take them instead of one."""

    hosts: str | Sequence[str] | None
    port: int | None
    username: str | None
    password: str | None
    access: Access | None
    datacenter: str | None
    consistency: Consistency | None
    on_changed: OnChanged
    client: ClientName | None
    connections: int | None


@dataclass(frozen=True, init=False)
class Cluster:
    """A Cassandra cluster, access to it, and how it is read. Say it once, and give it to all that reads from it::

        cluster = loader.Cluster(hosts=["db1", "db2"], access=loader.Access.from_environment(ca="ca.pem"))
        split.show(cluster=cluster)
        source = loader.CassandraSource(split, cluster=cluster, batch_size=256)

    It holds no connection. Its pickle has the password, its repr does not.

    acsylla reads more than twice as many images a second as cassandra-driver, but its wheel bundles OpenSSL 1.1.1k,
    which the security updates of your system do not replace. The driver uses Python's OpenSSL. So the default client is
    acsylla without TLS and cassandra-driver with TLS, or the other one if that is not installed.

    A split has a checksum of each image, with which each read is compared. So one replica is asked (LOCAL_ONE), and a
    quorum only if it has no image or other bytes. If these stay other bytes, because an ingest with ``--overwrite`` has
    replaced the image since, or the bytes are damaged, reading raises `ChangedImageError`, unless ``on_changed`` is
    "accept". A replica that missed a deletion can deliver the image until it is repaired; LOCAL_QUORUM does not.

    Without checksums, LOCAL_QUORUM finds what the last ingest or repair wrote. LOCAL_ONE costs the servers less, but a
    replica that missed a write returns old bytes. With one copy of each row both are the same. If the writer is in
    another datacenter, use QUORUM.

    Args:
        hosts: Contact points: a name or address, or a list of them, without ports. By default the Cassandra that
            ``imagestrata up`` started.
        port: Cassandra's port, by default 9042, or that of this Cassandra.
        username: The user to log in as. What you do not give comes from the environment: `Access.from_environment`.
            Without either, the Cassandra that ``imagestrata up --secure`` started is read with its access.
        password: The user's password.
        access: Everything about access and TLS, instead of ``username`` and ``password``; with a bundle, instead of
            ``hosts``, too.
        datacenter: The datacenter to read from, by default that of the first contact point that answers.
        consistency: How many replicas answer a read, in CQL's words. By default "LOCAL_ONE" for splits with checksums,
            otherwise "LOCAL_QUORUM".
        on_changed: "raise" if an image has other bytes than when the split was made, or "accept" to read the newest
            bytes without a comparison.
        client: "acsylla" or "cassandra-driver".
        connections: Connections to each node; by default they follow from the measured round trip and rate.

    Raises:
        OptionError: An option is out of its range, or no hosts are given and ``imagestrata up`` started none.
        UnreachableError: The Cassandra that ``imagestrata up`` started no longer runs.
    """

    hosts: tuple[str, ...]
    port: int
    access: Access
    datacenter: str | None
    consistency: Consistency | None
    on_changed: OnChanged
    client: ClientName | None
    connections: int | None

    def __init__(
        self,
        *,
        hosts: str | Sequence[str] | None = None,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        access: Access | None = None,
        datacenter: str | None = None,
        consistency: Consistency | None = None,
        on_changed: OnChanged = "raise",
        client: ClientName | None = None,
        connections: int | None = None,
    ) -> None:
        if access is None:
            access = Access.from_environment(username=username, password=password)
        elif not isinstance(access, Access):
            raise OptionError(f"Wanted access as loader.Access(...). Found: {type(access).__name__}")
        elif username is not None or password is not None:
            raise OptionError("Wanted access, or username and password. Found: both. Put all into the access.")
        if hosts is None and access.bundle is None and (node := LocalNode.find()) is not None:
            if port in (None, node.port) and not node.is_running:
                raise UnreachableError(node.not_running("hosts"))
            hosts, port = node.hosts, node.port if port is None else port
        names = _hosts(hosts, access)
        port = check_int("port", _PORT if port is None else port, 1, 65535)
        if access == Access() and (node := LocalNode.at(names, port)) is not None:
            access = Access.from_environment(node.variables("reader"))
        if datacenter is not None and not (isinstance(datacenter, str) and datacenter):
            raise OptionError(f"Wanted datacenter as a name. Found: {datacenter!r}")
        if consistency is not None:
            check_choice("consistency", consistency, get_args(Consistency))
        check_choice("on_changed", on_changed, get_args(OnChanged))
        if client is not None:
            check_choice("client", client, get_args(ClientName))
        if connections is not None:
            check_int("connections", connections, 1, _MOST_CONNECTIONS)
        vars(self).update(  # it is frozen
            hosts=names,
            port=port,
            access=access,
            datacenter=datacenter,
            consistency=consistency,
            on_changed=on_changed,
            client=client,
            connections=connections,
        )

    @property
    def place(self) -> str:
        """The contact points, as messages name them."""
        if self.access.bundle is not None:
            return f"the hosts of the bundle {self.access.bundle}"
        return f"{', '.join(self.hosts)} port {self.port}"


def cluster_of(cluster: Cluster | None, given: ClusterOptions) -> Cluster:
    """The cluster, or the one of these options. Raises `OptionError` for both, and what `Cluster` raises."""
    if cluster is None:
        return Cluster(**given)
    if not isinstance(cluster, Cluster):
        raise OptionError(f"Wanted cluster as loader.Cluster(...). Found: {type(cluster).__name__}")
    if named := names_given(None, given):
        raise OptionError(
            f"Wanted cluster, or {' and '.join(named)}. Found: both. Put all into the cluster: "
            f"loader.Cluster({', '.join(f'{name}=...' for name in named)})."
        )
    return cluster


def names_given(cluster: Cluster | None, options: ClusterOptions) -> list[str]:
    """The names of what is given to say where images are read, sorted."""
    return sorted(name for name, value in {"cluster": cluster, **options}.items() if value is not None)


def _hosts(hosts: str | Sequence[str] | None, access: Access) -> tuple[str, ...]:
    """Contact points as given, one or several, without ports; none with a bundle, which names them."""
    is_list = isinstance(hosts, Iterable) and not isinstance(hosts, str)
    names: tuple[Any, ...] = () if hosts is None else tuple(hosts) if is_list else (hosts,)
    if access.bundle is not None:
        if names:
            raise OptionError(
                f"Wanted either hosts or a bundle, which names its hosts. Found: {hosts!r} and {access.bundle}, "
                "from access or from IMAGESTRATA_BUNDLE"
            )
        return ()
    if hosts is None:
        raise OptionError("No Cassandra is configured. Start one with `imagestrata up`, or pass hosts=[...].")
    if not names or not all(isinstance(name, str) and _HOST.fullmatch(name) for name in names):
        raise OptionError(f"Wanted hosts as a list of names or addresses, without port. Found: {hosts!r}")
    return names
