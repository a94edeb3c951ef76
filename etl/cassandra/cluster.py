"""The address of Cassandra, the user's name, and the certificates of TLS."""

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from etl.errors import UnreachableError
from etl.tls import ENABLED, KEYS, TRUST, WITH_CLIENT, Tls, tls_of

CONNECT_SECONDS = 5.0  # with Spark's own start, a job still gives up within 15
REQUEST_SECONDS = 30.0
# How a server ends a connection whose TLS it does not accept, in lower case: it depends on versions and libraries.
_REFUSALS = (
    "reset by peer", "eof occurred", "handshake failure", "bad certificate", "certificate required",
    "certificate unknown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of Cassandra, the user's name, and certificates. Without secrets, so that plans and messages may
    contain it.
    """

    hosts: tuple[str, ...]  # the contact points
    port: int = 9042
    datacenter: str | None = None  # the local one; None for that of the first contact point
    username: str | None = None  # None for a server that does not authenticate
    tls: Tls | None = field(default=None, repr=False)

    @classmethod
    def from_spark(cls, spark: SparkSession) -> "Cluster":
        """Read ``spark.cassandra.*``. Raises `UnreachableError` if a setting is not an address, or as `tls_of`
        does.
        """
        get = spark.conf.get
        hosts = tuple(host.strip() for host in (get("spark.cassandra.connection.host", None) or "127.0.0.1").split(","))
        port = get("spark.cassandra.connection.port", None) or "9042"
        if not all(hosts) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UnreachableError(
                "Wanted hosts, separated by commas, in spark.cassandra.connection.host and a port in "
                f"spark.cassandra.connection.port. Found: {','.join(hosts)!r} and {port!r}"
            )
        return cls(
            hosts=hosts,
            port=int(port),
            datacenter=get("spark.cassandra.connection.localDC", None),
            username=get("spark.cassandra.auth.username", None),
            tls=tls_of(spark),
        )

    def __str__(self) -> str:
        return f"{','.join(self.hosts)} port {self.port}"

    def unreachable(self, found: str) -> UnreachableError:
        """Make the error for a cluster that does not answer."""
        if "protocol version" in found:
            found = f"a server that is not Cassandra ({found})"
        found += self._about_tls(found.lower())
        is_here = all(host == "localhost" or host.startswith("127.") for host in self.hosts)
        remedy = "Start one here with `imagestrata up`, or set" if is_here else "Is it running there? Set"
        return UnreachableError(
            f"Wanted Cassandra at {self}. Found: {found}. {remedy} spark.cassandra.connection.host and "
            "spark.cassandra.connection.port."
        )

    def _about_tls(self, found: str) -> str:
        """What a failed connection says of TLS, if it does: the settings of jobs, and the variables of commands."""
        if "certificate verify failed" in found:
            return f" (is its authority in {TRUST}.path or IMAGESTRATA_CA, and its address in its certificate?)"
        if any(text in found for text in _REFUSALS):
            if self.tls is None:
                return f", as by a server that requires TLS ({ENABLED}, or IMAGESTRATA_CA)"
            if self.tls.certificate is None:
                wanted = f"{WITH_CLIENT}, or IMAGESTRATA_CERTIFICATE"
                return f", as by a server that requires a client certificate ({wanted})"
            return f", as by a server that refuses the certificate in {KEYS}.path or IMAGESTRATA_CERTIFICATE"
        return ""
