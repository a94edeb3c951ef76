"""An embedded Cassandra of one to three nodes, on 127.0.0.1 to 127.0.0.3.

`Cassandra(folder, ...)` describes it. Its settings and data stay in `folder` when the processes end. As a context
manager, it is a new server on free ports for a test:

    with Cassandra(tmp_path) as server:
        connect(server.hosts, server.port)
"""

import itertools
import json
import shutil
import ssl
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from formats import local_node
from formats.durability import whole_file
from imagestrata.devstack import NodeError, jars, java
from imagestrata.devstack.servers import access, ports
from imagestrata.devstack.servers.node import DATACENTER, START_TIMEOUT_S, Node, Settings, address_of
from imagestrata.devstack.steps import locked, step

LEAST_ROOM = 250_000_000
"""The free bytes that a node needs to start: its commit log, its system tables, and a first flush."""
MAX_NODES = 3
DEFAULT_USER = "cassandra"
DEFAULT_PASSWORD = "cassandra"

_DEFAULT = (DEFAULT_USER, DEFAULT_PASSWORD)
_SCHEMA_VERSION = "SELECT schema_version FROM system.local"


class Cassandra:
    """A server with its settings, data and logs in a folder. Without ``port``, it has that of the folder's last run, or
    a free one. ``auth`` requires a user and a password: cassandra, cassandra. ``secure`` requires TLS, a certificate
    and a password, which are in `access`. ``yaml`` replaces settings of cassandra.yaml; ``tls`` is for our own sessions
    if these make the nodes use TLS. Raises `NodeError` for values out of range, or data with other settings.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        nodes: int = 1,
        auth: bool = False,
        secure: bool = False,
        heap_mb: int = 512,
        yaml: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise NodeError(f"wanted 1 to {MAX_NODES} nodes. Found: {nodes}.")
        if port is not None and not 1024 <= port <= 65535:
            raise NodeError(f"wanted a port from 1024 to 65535. Found: {port}.")
        self.folder = Path(folder).resolve()
        self.heap_mb = heap_mb
        self._yaml = dict(yaml or {})
        self._options = tuple(options)
        self._tls = tls
        self._asked_port = port
        self._nodes = nodes
        self._auth = auth or secure
        self._secure = secure
        self._settings: Settings | None = self._read_settings()

    datacenter = DATACENTER

    @classmethod
    def existing(cls, folder: Path, *, port: int | None = None) -> Self | None:
        """The server that was started in a folder, or None. Raises `NodeError` if its settings cannot be read."""
        settings = Settings.read(folder)
        return (
            None
            if settings is None
            else cls(folder, port=port, nodes=settings.nodes, auth=settings.auth, secure=settings.secure)
        )

    @property
    def hosts(self) -> list[str]:
        """The addresses of the nodes."""
        return [address_of(number) for number in range(self._nodes)]

    @property
    def port(self) -> int:
        """The CQL port, the same for all nodes. Raises `NodeError` before the first start."""
        return self._known().port

    @property
    def nodes(self) -> list[Node]:
        """The nodes, running or not; empty before the first start."""
        settings = self._settings
        if settings is None:
            return []
        yaml = self._yaml if self.access is None else {**access.yaml(self.access), **self._yaml}
        return [Node(self.folder, number, settings, self.heap_mb, yaml, self._options) for number in range(self._nodes)]

    @property
    def access(self) -> Path | None:
        """The folder of certificates and passwords, if it requires them: see `imagestrata.devstack.servers.access`."""
        return self.folder / "access" if self._secure else None

    @property
    def spark_properties(self) -> dict[str, str]:
        """The properties of jobs that use it, with passwords if it is secure. Raises `NodeError` before the first
        start.
        """
        where = {"host": ",".join(self.hosts), "port": str(self.port)}
        found = {f"spark.cassandra.connection.{name}": value for name, value in where.items()}
        return found if self.access is None else found | local_node.properties_in(self.access / local_node.JOBS)

    @property
    def runtime(self) -> java.Java | None:
        """The Java that the first node runs on, or None."""
        return self.nodes[0].runtime if self.nodes else None

    @property
    def log(self) -> Path:
        """The first node's log."""
        return self.folder / "node1" / "logs" / "system.log"

    def is_up(self) -> bool:
        """Whether every node runs and listens on its port."""
        return bool(self.nodes) and all(node.listens() for node in self.nodes)

    def start(self, *, tied: bool = False, progress: Callable[[str], None] = lambda text: None) -> bool:
        """Start the nodes that do not run, and wait until they answer; False if all were running. ``tied`` nodes are
        killed when the thread that starts them ends. Raises `PortError` if another process uses a port, `JavaError`
        without a Java 17, and `NodeError` if the disk is full or a node does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / "lock", timeout_s=START_TIMEOUT_S * self._nodes, what=f"Cassandra in {self.folder}"):
            self._settings = self._read_settings()
            if self.is_up() and self._same_port():
                for node in self.nodes:
                    self._version(node)
                self._await_peers()
                self._write_note()
                return False
            check_room(self.folder, shutil.disk_usage(self.folder).free, nodes=self._nodes)
            site_packages = Path(sysconfig.get_path("purelib"))
            java_home = java.find(site_packages).home
            if not jars.folder().is_dir():  # in an installed package, which no set-up has prepared
                with step("jars") as current:
                    jars.fetch(site_packages, current)
            class_path = jars.paths("cassandra")
            started: list[Node] = []
            if self.access is not None:
                self.folder.chmod(0o700)  # cassandra.yaml has the nodes' key
                access.make(self.access, hosts=self.hosts)

            def begin() -> None:
                self._settle()
                for node in self.nodes:
                    if not node.listens():
                        node.stop()
                        started.append(node)
                        node.start(java_home, class_path, tied=tied, progress=progress)
                for node in started:  # a log-in needs a quorum of the nodes
                    progress(f"node {node.number + 1}: Cassandra {self._version(node)} answers")

            change_ports = self._forget_ports if self._asked_port is None else None
            ports.start(begin, undo=lambda: _kill(started), change_ports=change_ports)
            self._await_peers()
            self._make_roles()
            self._write_note()
            return True

    def stop(self) -> bool:
        """Stop all nodes and wait until they end; False if none ran."""
        ran = [node.stop() for node in reversed(self.nodes)]
        self._note.unlink(missing_ok=True)
        return any(ran)

    def kill(self, number: int = 0) -> bool:
        """Kill node `number`, from 0, with SIGKILL; False if it did not run."""
        return self.nodes[number].kill()

    def clean(self) -> None:
        """Stop the nodes and delete the folder with all its data."""
        # The data are deleted: an orderly stop would only take seconds longer.
        _kill(self.nodes)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._settings = None

    def __enter__(self) -> Self:
        self.start(tied=True)
        return self

    def __exit__(self, *_: object) -> None:
        _kill(self.nodes)  # a test's data are deleted

    def session(self) -> AbstractContextManager[Any]:
        """A session of the Python driver with `execute(query, values)`, as the superuser if log-in is required."""
        return self._connected(self.hosts)

    @property
    def _note(self) -> Path:
        return self.folder / local_node.NAME

    def _write_note(self) -> None:
        """Write the note by which jobs and trainings find the Cassandra in the usual folder of their checkout."""
        pids = [pid for node in self.nodes if (pid := node.pid) is not None]
        local_node.LocalNode.of(self.hosts, self.port, pids, self.access).write(self._note)

    def _known(self) -> Settings:
        if self._settings is None:
            raise NodeError(f"wanted the port of the Cassandra in {self.folder}. Found: it was never started.")
        return self._settings

    def _read_settings(self) -> Settings | None:
        settings = Settings.read(self.folder)
        wanted = None if settings is None else replace(settings, **self._kind)
        if settings is not None and wanted is not None and settings != wanted:
            raise NodeError(
                f"wanted {wanted.words()} in {self.folder}. Found: data of {settings.words()}. "
                "Ask for those, or stop the nodes and delete the folder."
            )
        return settings

    def _same_port(self) -> bool:
        return self._asked_port is None or self._known().port == self._asked_port

    def _settle(self) -> None:
        """Choose the ports and write the settings, before any node starts."""
        if self._settings is not None and self._same_port():
            return
        if self._settings is not None and any(node.pid for node in self.nodes):
            raise NodeError(
                f"wanted port {self._asked_port}. Found: this Cassandra runs on {self._settings.port}. "
                "Run 'make down' first."
            )
        if self._asked_port is None:
            port, storage_port = ports.free(self.hosts, 2)
        else:
            # Between nodes; fixed, so that the nodes find each other again.
            port = self._asked_port
            storage_port = port + 10000 if port + 10000 <= 65535 else port - 10000
        self._settings = Settings(port=port, storage_port=storage_port, **self._kind)
        with whole_file(self.folder / "cluster.json") as file:
            file.write(json.dumps(self._settings.__dict__).encode("utf-8"))

    def _forget_ports(self) -> None:
        (self.folder / "cluster.json").unlink(missing_ok=True)
        self._settings = None

    def _version(self, node: Node) -> str:
        """The version that a node answers. Raises `NodeError` if it does not in time."""
        with self._connected([node.host]) as session:
            return str(session.execute("SELECT release_version FROM system.local").one().release_version)

    @property
    def _kind(self) -> dict[str, Any]:
        """The settings that fit its data."""
        return {"nodes": self._nodes, "auth": self._auth, "secure": self._secure}

    def _connected(self, hosts: list[str]) -> AbstractContextManager[Any]:
        """A session of our own with some nodes. Before the roles are made, the superuser is the default one."""
        if self.access is None:
            return connect(hosts, self.port, logins=[_DEFAULT] if self._auth else (), tls=self._tls)
        logins = [access.login(self.access), _DEFAULT]
        return connect(hosts, self.port, logins=logins, tls=access.tls(self.access))

    def _await_peers(self) -> None:
        """Wait until each node knows the others and has their tables. Before that, tables that are created would differ
        between nodes, and a node that was down may not know those that were created meanwhile.
        """
        if self._nodes == 1:
            return
        deadline = time.monotonic() + START_TIMEOUT_S
        with ExitStack() as stack:
            sessions = [stack.enter_context(self._connected([node.host])) for node in self.nodes]
            while True:
                peers = [len(list(session.execute("SELECT peer FROM system.peers"))) for session in sessions]
                versions = {session.execute(_SCHEMA_VERSION).one().schema_version for session in sessions}
                if min(peers) >= self._nodes - 1 and len(versions) == 1:
                    return
                if time.monotonic() > deadline:
                    raise NodeError(
                        f"wanted {self._nodes} nodes that know each other and have the same tables, within "
                        f"{START_TIMEOUT_S:.0f} s. Found: {min(peers) + 1} that know each other, and "
                        f"{len(versions)} versions of the tables. See {self.folder}/node*/logs."
                    )
                time.sleep(0.1)

    def _make_roles(self) -> None:
        """Make the roles of a secure Cassandra, and remove the default superuser, whose password everybody knows."""
        if self.access is None:
            return
        first, then = access.statements(self.access, nodes=self._nodes, datacenter=DATACENTER)
        for statements in (first, then):
            with self._connected(self.hosts) as session:
                for statement in statements:
                    session.execute(statement)


def _kill(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.kill()


def check_room(folder: Path, free: int, *, nodes: int) -> None:
    """Raise `NodeError` if a disk with this many free bytes is too full for a server that is to start."""
    wanted = nodes * LEAST_ROOM
    if free < wanted:
        raise NodeError(
            f"Wanted {wanted / 1e6:,.0f} MB of free space for Cassandra in {folder}. Found: {free / 1e6:,.0f} MB. Free "
            "some, or use a folder on another disk with --data."
        )


@contextmanager
def connect(
    hosts: list[str],
    port: int,
    *,
    logins: Sequence[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
) -> Iterator[Any]:
    """A session of the Python driver for control queries, as the first of these users, with passwords, that the server
    knows. Raises `NodeError` if nothing answers in time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
        from cassandra.policies import RoundRobinPolicy

    deadline = time.monotonic() + timeout_s
    for login in itertools.cycle(logins or [None]):
        cluster = Cluster(
            hosts,
            port=port,
            protocol_version=5,
            auth_provider=None if login is None else PlainTextAuthProvider(*login),
            ssl_context=tls,
            connect_timeout=5,
            schema_metadata_enabled=False,  # a quarter of a second for 800 tables
            execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(RoundRobinPolicy(), request_timeout=30)},
        )
        try:
            session = cluster.connect()
            break
        except NoHostAvailable as error:
            cluster.shutdown()
            # The default user is created just after the port opens.
            if time.monotonic() > deadline:
                raise NodeError(
                    f"wanted an answer by CQL from {', '.join(hosts)} port {port} within {timeout_s:.0f} s. "
                    f"Found: {error}"
                ) from None
            time.sleep(0.1)
    try:
        yield session
    finally:
        cluster.shutdown()
