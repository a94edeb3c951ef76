"""One Cassandra process: its folder, its configuration, how it starts and stops.

    FOLDER/cassandra.yaml  logback.xml  pid
           logs/system.log  logs/console.log
           data/  commitlog/  hints/  saved_caches/  tmp/

The commit log is synced before a write is acknowledged (`group`, 15 ms): acknowledged writes survive kill -9.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from imagestrata.devstack import NodeError, PortError, java
from imagestrata.devstack.servers import ports, processes

DATACENTER = "datacenter1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
# A mutation has at most half a segment, so a picture at most 32 MiB.
_SEGMENT_MIB = 64
_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_LOGBACK = """\
<configuration scan="false">
  <shutdownHook class="ch.qos.logback.core.hook.DefaultShutdownHook"/>
  <appender name="FILE" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{logs}/system.log</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{logs}/system.log.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>3</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>20MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


def address_of(number: int) -> str:
    """The address of a node by its number, from 0."""
    return f"127.0.0.{number + 1}"


@dataclass(frozen=True)
class Settings:
    """The settings of a cluster that are fixed while its folder has data; in its `cluster.json`."""

    nodes: int
    port: int
    storage_port: int
    auth: bool
    secure: bool = False  # with TLS, client certificates and roles

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The settings in a folder, or None. Raises `NodeError` if they cannot be read."""
        path = folder / "cluster.json"
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise NodeError(
                f"Wanted the settings of a cluster in {path}. Found: {error}. Delete {folder} by hand."
            ) from error

    def words(self) -> str:
        """The settings that fit the data, for messages."""
        kind = "with TLS and roles" if self.secure else "with log-in" if self.auth else "without log-in"
        return f"{self.nodes} node{'s' * (self.nodes > 1)} {kind}"


@dataclass(frozen=True)
class Node:
    """One process of a cluster: its number, from 0. ``changes`` replace our settings of cassandra.yaml."""

    cluster: Path
    number: int
    settings: Settings
    heap_mb: int
    changes: Mapping[str, object]
    options: Sequence[str]
    """Options of its Java."""

    @property
    def folder(self) -> Path:
        return self.cluster / f"node{self.number + 1}"

    @property
    def host(self) -> str:
        return address_of(self.number)

    @property
    def port(self) -> int:
        return self.settings.port

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def log(self) -> Path:
        return self.folder / "logs" / "system.log"

    @property
    def pid(self) -> int | None:
        """The pid of the process, or None if it does not run."""
        return processes.recall(self.pid_file)

    @property
    def runtime(self) -> java.Java | None:
        """The Java that the process runs on, or None."""
        pid = self.pid
        try:
            return java.read(Path(os.readlink(f"/proc/{pid}/exe")).parents[1]) if pid is not None else None
        except (OSError, IndexError):
            return None

    def listens(self) -> bool:
        """Whether our process listens on the CQL port."""
        pid = self.pid
        return pid is not None and ports.holds(pid, self.port, self.host)

    def yaml(self) -> str:
        """The node's configuration as JSON, which is valid YAML."""
        port, storage_port, is_alone = self.port, self.settings.storage_port, self.settings.nodes == 1
        settings: dict[str, object] = {
            "cluster_name": "imagestrata",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "num_tokens": 16 if is_alone else 1,
            "auto_bootstrap": False,
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"{address_of(0)}:{storage_port}"}],
                }
            ],
            "listen_address": self.host,
            "rpc_address": self.host,
            "storage_port": storage_port,
            "native_transport_port": port,
            "start_native_transport": True,
            "data_file_directories": [str(self.folder / "data")],
            "commitlog_directory": str(self.folder / "commitlog"),
            "hints_directory": str(self.folder / "hints"),
            "saved_caches_directory": str(self.folder / "saved_caches"),
            "commitlog_sync": "group",
            "commitlog_sync_group_window": "15ms",
            "commitlog_segment_size": f"{_SEGMENT_MIB}MiB",
            "commitlog_total_space": "1024MiB",
            "native_transport_max_frame_size": f"{_SEGMENT_MIB // 2}MiB",
            "native_transport_max_message_size": f"{_SEGMENT_MIB // 2}MiB",
            # The default, a fortieth of the heap, is too little for one large picture.
            "native_transport_max_request_data_in_flight": f"{2 * _SEGMENT_MIB}MiB",
            "native_transport_max_request_data_in_flight_per_ip": f"{_SEGMENT_MIB}MiB",
            # A write holds a thread until its group is synced.
            "concurrent_writes": 256,
            "concurrent_reads": 32,
            "disk_failure_policy": "stop",
            "commit_failure_policy": "stop",
            "auto_snapshot": False,
            "authenticator": "PasswordAuthenticator" if self.settings.auth else "AllowAllAuthenticator",
            "authorizer": "CassandraAuthorizer" if self.settings.auth else "AllowAllAuthorizer",
            "role_manager": "CassandraRoleManager",
            "read_request_timeout": "20s",
            "range_request_timeout": "30s",
            "write_request_timeout": "20s",
            "cas_contention_timeout": "5s",
            "request_timeout": "30s",
            "internode_compression": "none",
            "memtable_allocation_type": "offheap_buffers",
            "file_cache_size": "64MiB",
            "key_cache_size": "16MiB",
            "counter_cache_size": "0MiB",
        }
        if not is_alone:  # one token each, evenly spaced, so that the shares are equal without a bootstrap
            settings["initial_token"] = str(-(2**63) + (2 * self.number + 1) * (2**63 // self.settings.nodes))
        settings |= self.changes
        if settings["commitlog_sync"] != "group":  # the server refuses settings of another way of syncing
            del settings["commitlog_sync_group_window"]
        return json.dumps(settings, indent=2) + "\n"

    def start(self, java_home: Path, class_path: list[Path], *, tied: bool, progress: Callable[[str], None]) -> None:
        """Start the process, and wait until it listens. A ``tied`` one, for tests, is killed when the thread that
        started it ends. Raises `PortError` if another process uses a port, and `NodeError` if it does not start.
        """
        self.refuse_foreign_ports()
        for name in ("data", "commitlog", "hints", "saved_caches", "tmp", "logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "cassandra.yaml").write_text(self.yaml(), encoding="utf-8")
        (self.folder / "logback.xml").write_text(_LOGBACK.format(logs=self.folder / "logs"), encoding="utf-8")
        # A tied node is one of a test: it compiles for a quick start.
        options = [*(["-XX:TieredStopAtLevel=1"] if tied else []), *self.options]
        command = self._command(java_home, class_path, options)
        process = processes.launch(command, self.pid_file, log=self.folder / "logs" / "console.log", tied=tied)
        processes.await_ready(
            process, self.listens, what="a Cassandra node", folder=self.folder, address=f"on {self.host}:{self.port}",
            log=self.log, complaint=self.complaint, timeout_s=START_TIMEOUT_S,
            progress=lambda text: progress(f"node {self.number + 1}: {text}"),
        )  # fmt: skip

    def refuse_foreign_ports(self) -> None:
        """Raise `PortError` if another process uses a port of this node."""
        for port, use in ((self.port, "CQL"), (self.settings.storage_port, "traffic between nodes")):
            if ports.is_held(port, self.host):
                raise PortError(
                    f"wanted port {port} of {self.host} for {use}. "
                    f"Found: {ports.holder(port, self.host)} uses it. Stop it, or choose another port with --port."
                )

    def stop(self) -> bool:
        """Stop the process and wait until it ends; False if it did not run."""
        return processes.end(self.pid_file, timeout_s=STOP_TIMEOUT_S)

    def kill(self) -> bool:
        """Kill the process with SIGKILL; False if it did not run."""
        return processes.end(self.pid_file, timeout_s=STOP_TIMEOUT_S, by=signal.SIGKILL)

    def complaint(self) -> str:
        """The first error in the logs since the last start, for messages. Raises `PortError` if it is a port in use."""
        for log in (self.folder / "logs" / "console.log", self.log):
            try:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            starts = [n for n, line in enumerate(lines) if "Cassandra version:" in line]
            lines = lines[starts[-1] :] if starts else lines
            errors = [line for line in lines if "ERROR" in line or "Exception" in line or "rror:" in line]
            if errors:
                if "already in use" in errors[0]:
                    self.refuse_foreign_ports()
                return errors[0].strip()
        return "no error in its logs"

    def _command(self, java_home: Path, class_path: list[Path], options: list[str]) -> list[str]:
        agent = [path for path in class_path if path.name.startswith("jamm-")]
        if not agent:
            raise NodeError("wanted the jar jamm in Cassandra's set. Found: none. Run 'make setup'.")
        command = [str(java_home / "bin" / "java"), *options, f"-Xms{self.heap_mb}m", f"-Xmx{self.heap_mb}m"]
        # The serial garbage collector needs little memory on few cores.
        command += ["-XX:+UseSerialGC", "-Xss512k", "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData", "-Xshare:auto"]
        command += [f"-XX:MaxDirectMemorySize={self.heap_mb}m", f"-XX:HeapDumpPath={self.folder / 'tmp'}"]
        command += [f"-javaagent:{agent[0]}", "-Djdk.attach.allowAttachSelf=true"]
        command += [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
        command += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]
        properties = {
            "java.io.tmpdir": self.folder / "tmp",
            "java.net.preferIPv4Stack": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            "logback.configurationFile": self.folder / "logback.xml",
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": self.folder,
            "cassandra.logdir": self.folder / "logs",
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "2000",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.allow_unsafe_join": "true",
        }
        command += [f"-D{name}={value}" for name, value in properties.items()]
        return [*command, "-cp", os.pathsep.join(map(str, class_path)), "org.apache.cassandra.service.CassandraDaemon"]
