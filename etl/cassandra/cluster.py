"""The address of Cassandra and the user's name."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from etl.errors import UnreachableError

CONNECT_SECONDS = 5.0  # with Spark's own start, a job still gives up within 15
REQUEST_SECONDS = 30.0
_TLS = tuple(
    f"spark.cassandra.connection.ssl.{name}"
    for name in ("enabled", "clientAuth.enabled", "trustStore.path", "keyStore.path")
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of Cassandra and the user's name. Without the password, so that plans and messages may contain it."""

    hosts: tuple[str, ...]  # the contact points
    port: int = 9042
    datacenter: str | None = None  # the local one; None for that of the first contact point
    username: str | None = None  # None for a server that does not authenticate

    @classmethod
    def from_spark(cls, spark: SparkSession) -> "Cluster":
        """Read ``spark.cassandra.*``. Raises `UnreachableError` if a setting is not an address, or asks for TLS."""
        get = spark.conf.get
        hosts = tuple(host.strip() for host in (get("spark.cassandra.connection.host", None) or "127.0.0.1").split(","))
        port = get("spark.cassandra.connection.port", None) or "9042"
        if not all(hosts) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UnreachableError(
                "Wanted hosts, separated by commas, in spark.cassandra.connection.host and a port in "
                f"spark.cassandra.connection.port. Found: {','.join(hosts)!r} and {port!r}"
            )
        # Without `enabled` the connector ignores the other settings and sends passwords in clear text.
        asked = [name for name in _TLS if (get(name, None) or "false").lower() != "false"]
        if asked:
            raise UnreachableError(
                "Wanted a connection without TLS: the Spark jobs do not support it yet. "
                f"Found: {', '.join(asked)}. Unset them, and write over a trusted network."
            )
        return cls(
            hosts=hosts,
            port=int(port),
            datacenter=get("spark.cassandra.connection.localDC", None),
            username=get("spark.cassandra.auth.username", None),
        )

    def __str__(self) -> str:
        return f"{','.join(self.hosts)} port {self.port}"

    def unreachable(self, found: str) -> UnreachableError:
        """Make the error for a cluster that does not answer."""
        if "protocol version" in found:
            found = f"a server that is not Cassandra ({found})"
        is_here = all(host == "localhost" or host.startswith("127.") for host in self.hosts)
        remedy = "Start one here with `imagestrata up`, or set" if is_here else "Is it running there? Set"
        return UnreachableError(
            f"Wanted Cassandra at {self}. Found: {found}. {remedy} spark.cassandra.connection.host and "
            "spark.cassandra.connection.port."
        )
