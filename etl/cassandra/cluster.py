"""The address of Cassandra, the user's name, and the certificates of TLS."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from etl.errors import UnreachableError
from etl.tls import BUNDLE, ENABLED, KEYS, TRUST, WITH_CLIENT, Tls, tls_of
from formats.errors import FormatsError
from formats.tls import Bundle

_CONNECTION, _USER = "spark.cassandra.connection", "spark.cassandra.auth.username"
CONNECT_SECONDS = 5.0  # with Spark's own start, a job still gives up within 15
REQUEST_SECONDS = 30.0
# How a server ends a connection whose TLS it does not accept, in lower case: it depends on versions and libraries.
_REFUSALS = (
    "reset by peer", "eof occurred", "handshake failure", "bad certificate", "certificate required",
    "certificate unknown",
)  # fmt: skip
# What a node says of a table that was created a moment ago: it does not know it yet, or does not use it yet.
_NEW_TABLE = re.compile(r"Unknown CF|[Uu]nknown keyspace|unconfigured table|(table|keyspace) \S+ does not exist")


def is_new_table(error: Exception) -> bool:
    """Whether a node may know the table of a query a moment later."""
    return bool(_NEW_TABLE.search(str(error)))


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of Cassandra, the user's name, and certificates. Without secrets, so that plans and messages may
    contain it.
    """

    hosts: tuple[str, ...]  # the contact points; none with a bundle
    port: int = 9042
    datacenter: str | None = None  # the local one; None for that of the first contact point
    username: str | None = None  # None for a server that does not authenticate
    tls: Tls | None = field(default=None, repr=False)
    # A secure connect bundle, which names hosts and has certificates and key: a path, or a name among ``--files``.
    bundle: str | None = None

    @classmethod
    def from_spark(cls, spark: SparkSession) -> "Cluster":
        """Read ``spark.cassandra.*``. Raises `UnreachableError` if a setting is not an address, or as `tls_of`
        does.
        """
        get = spark.conf.get
        datacenter, user = get(f"{_CONNECTION}.localDC", None), get(_USER, None)
        if bundle := get(BUNDLE, None):
            if (get(ENABLED, None) or "false").lower() != "false":
                raise UnreachableError(
                    f"Wanted {BUNDLE}, which has all certificates, or {ENABLED}. Found: both. Unset one."
                )
            return cls((), datacenter=datacenter, username=user, bundle=_path_of(bundle))
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
            datacenter=datacenter,
            username=user,
            tls=tls_of(spark),
        )

    def __str__(self) -> str:
        return f"the hosts of the bundle {self.bundle}" if self.bundle else f"{','.join(self.hosts)} port {self.port}"

    @property
    def first(self) -> tuple[str, int]:
        """The first contact point, or the metadata service of the bundle. Raises `UnreachableError`."""
        return (self.hosts[0], self.port) if self.bundle is None else self.opened_bundle.service

    @property
    def opened_bundle(self) -> Bundle:
        """The bundle. Raises `UnreachableError` if it cannot be read."""
        try:
            return Bundle.open(self.bundle_file)
        except FormatsError as error:
            raise UnreachableError(str(error)) from None

    @property
    def bundle_file(self) -> str:
        """The path of the bundle on this machine."""
        assert self.bundle is not None
        return self.bundle if os.path.isabs(self.bundle) else SparkFiles.get(self.bundle)

    def unreachable(self, found: str) -> UnreachableError:
        """Make the error for a cluster that does not answer."""
        if "protocol version" in found:
            found = f"a server that is not Cassandra ({found})"
        if self.bundle is not None:
            return UnreachableError(
                f"Wanted Cassandra at {self}. Found: {found}. Is the database running? Does the bundle belong to it?"
            )
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


def _path_of(bundle: str) -> str:
    """The path in a ``file:`` URL, which the connector takes; or the path, or name, as it is."""
    parts = urlsplit(bundle)
    if parts.scheme not in ("", "file"):
        raise UnreachableError(
            f"Wanted a path, a file: URL or a name among --files in {BUNDLE}. Found: {bundle}. Download the bundle."
        )
    return url2pathname(parts.path) if parts.scheme else bundle
