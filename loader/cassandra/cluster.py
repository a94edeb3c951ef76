"""The options about a cluster, checked."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, get_args

from formats.local_node import LocalNode
from loader.cassandra.access import Access
from loader.cassandra.clients import ClientName, TableReader, check_client, fetcher, target_of
from loader.cassandra.target import Consistency
from loader.errors import OptionError, UnreachableError
from loader.options import check_choice, check_int, check_names
from loader.splits import Split

_PORT = 9042
_HOST = re.compile(r"[^,\s/:]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")  # a name or IPv4, or an IPv6


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster, access to it, and the metadata columns to read beside images and labels."""

    hosts: tuple[str, ...]
    port: int
    metadata: tuple[str, ...]
    connections: int | None
    client: ClientName | None
    access: Access
    datacenter: str | None
    consistency: Consistency

    @classmethod
    def checked(
        cls,
        *,
        hosts: str | Sequence[str] | None = None,
        port: int | None = None,
        metadata: Sequence[str] = (),
        connections: int | None = None,
        client: ClientName | None = None,
        username: str | None = None,
        password: str | None = None,
        access: Access | None = None,
        datacenter: str | None = None,
        consistency: Consistency = "LOCAL_QUORUM",
    ) -> Self:
        """Check these options. Without hosts, it is the cluster that `imagestrata up` started.

        Raises `OptionError`, and `UnreachableError` if that cluster no longer runs.
        """
        names = check_names("metadata", metadata)
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
        found = _hosts(hosts, access)
        port = check_int("port", _PORT if port is None else port, 1, 65535)
        if datacenter is not None and not (isinstance(datacenter, str) and datacenter):
            raise OptionError(f"Wanted datacenter as a name. Found: {datacenter!r}")
        check_choice("consistency", consistency, get_args(Consistency))
        check_client(client, connections)
        return cls(
            hosts=found,
            port=port,
            metadata=names,
            connections=connections,
            client=client,
            access=access,
            datacenter=datacenter,
            consistency=consistency,
        )

    def fetchers(self, split: Split) -> Callable[[], TableReader]:
        """A function that makes a reader of a split's tables, one for each process."""
        target = target_of(
            split,
            metadata=self.metadata,
            hosts=self.hosts,
            port=self.port,
            datacenter=self.datacenter,
            access=self.access,
            consistency=self.consistency,
        )
        return partial(fetcher, target, client=self.client, connections=self.connections)


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
