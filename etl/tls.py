"""TLS to Cassandra: from the key stores of the Spark connector's settings to PEM, which the Python clients take.

The driver's JVM reads both stores. Certificates are no secrets: executors get them with the `Cluster`. The client's key
is a secret: `etl.secrets` brings it to executors, as it does with the password.
"""

import base64
import enum
import os
import ssl
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from etl.errors import UnreachableError
from etl.py4j_log import unlogged
from formats.tls import client_context

_PREFIX = "spark.cassandra.connection.ssl."
ENABLED, WITH_CLIENT = f"{_PREFIX}enabled", f"{_PREFIX}clientAuth.enabled"
TRUST, KEYS = f"{_PREFIX}trustStore", f"{_PREFIX}keyStore"
STORE_PASSWORDS = (f"{KEYS}.password", f"{TRUST}.password")
BUNDLE = "spark.cassandra.connection.config.cloud.path"
_CIPHERS = f"{_PREFIX}enabledAlgorithms"
# The connector's default are two of RSA without forward secrecy, which most servers and certificates exclude.
_SUFFIXES = ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256")
_KINDS = ("TLS", "TLS_ECDHE_ECDSA_WITH", "TLS_ECDHE_RSA_WITH")
_USUAL_CIPHERS = ",".join(f"{kind}_{suffix}" for kind in _KINDS for suffix in _SUFFIXES)
_USUAL_TYPE = "JKS"  # the connector's default, with which Java also opens PKCS 12


class _Verify(enum.IntFlag):
    """What acsylla verifies of a server's certificate. Its own constants cannot be combined."""

    CHAIN = 1
    ADDRESS = 2


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates of connections with TLS, in PEM."""

    authorities: str  # that sign the servers' certificates
    certificate: str | None = None  # the client's, then those that signed it; None if it has none

    def context(self, key: str | None) -> ssl.SSLContext:
        """For clients in Python, with the client's key in PEM, as `client_context` makes it."""
        return client_context(self.authorities, self.certificate, key)

    def for_acsylla(self, key: str | None) -> dict[str, Any]:
        """The arguments of ``acsylla.create_cluster``, with the client's key in PEM. A server's certificate must have
        its address.
        """
        options: dict[str, Any] = {
            "ssl_enabled": True,
            "ssl_trusted_cert": self.authorities,
            "ssl_verify_flags": _Verify.CHAIN | _Verify.ADDRESS,
        }
        if self.certificate is not None and key is not None:
            options |= {"ssl_cert": self.certificate, "ssl_private_key": key, "ssl_private_key_password": ""}
        return options


def tls_of(spark: SparkSession) -> Tls | None:
    """Read ``spark.cassandra.connection.ssl.*``; None without TLS. Raises `UnreachableError` for a store that cannot be
    read, and for settings of TLS that is not enabled.
    """
    if not _is_set(spark, ENABLED):
        # The connector would ignore them and send passwords in clear text.
        if asked := [name for name in (WITH_CLIENT, f"{TRUST}.path", f"{KEYS}.path") if _is_set(spark, name)]:
            raise UnreachableError(
                f"Wanted {ENABLED} set to true, or no other setting of TLS. Found: {', '.join(asked)} without it. "
                "Set it to true, or unset these."
            )
        return None
    store, _ = _opened(spark, TRUST)
    found = [store.getCertificate(alias) for alias in _aliases(store) if store.isCertificateEntry(alias)]
    if not found:
        raise UnreachableError(
            f"Wanted the certificates of the authorities that sign those of the servers in the file of {TRUST}.path. "
            "Found: none. Add them with keytool -importcert."
        )
    return Tls("".join(map(_certificate, found)), _client(spark)[0] if _is_set(spark, WITH_CLIENT) else None)


def key_of(spark: SparkSession) -> str | None:
    """The client's key in PEM; None if it has none. Raises `UnreachableError` for a store that cannot be read."""
    return _client(spark)[1] if _is_set(spark, ENABLED) and _is_set(spark, WITH_CLIENT) else None


def connector_options(spark: SparkSession) -> dict[str, str]:
    """Options of the connector's reads and writes: the ciphers of today, unless others are set, and a bundle's address,
    because the connector takes no path.
    """
    options = {}
    if _is_set(spark, ENABLED) and not spark.conf.get(_CIPHERS, None):
        options[_CIPHERS] = _USUAL_CIPHERS
    if os.path.isabs(bundle := spark.conf.get(BUNDLE, None) or ""):
        options[BUNDLE] = Path(bundle).as_uri()
    return options


def _client(spark: SparkSession) -> tuple[str, str]:
    """The client's certificates and key, in PEM."""
    store, password = _opened(spark, KEYS)
    alias = next((one for one in _aliases(store) if store.isKeyEntry(one)), None)
    if alias is None:
        raise UnreachableError(
            f"Wanted the client's key in the file of {KEYS}.path. Found: none. "
            "Make one with openssl pkcs12 -export -in client.pem -inkey client.key."
        )
    context: Any = spark.sparkContext
    java, array = context._jvm.java, context._gateway.new_array
    # py4j finds no methods of the class of a key, which is internal to Java: it is asked by the interface.
    encoded = java.lang.Class.forName("java.security.Key").getMethod("getEncoded", array(java.lang.Class, 0))
    with unlogged():
        key = bytes(encoded.invoke(store.getKey(alias, password), array(java.lang.Object, 0)))
    return "".join(map(_certificate, store.getCertificateChain(alias))), _pem("PRIVATE KEY", key)


def _opened(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """A store of Java, and its password as Java takes it."""
    from py4j.protocol import Py4JJavaError

    context, get = spark.sparkContext, spark.conf.get
    path, kind = get(f"{name}.path", None), get(f"{name}.type", None) or _USUAL_TYPE
    if not path:
        raise UnreachableError(f"Wanted a file in {name}.path, because {ENABLED} is set. Found: none")
    java: Any = context._jvm
    with unlogged():
        password = get(f"{name}.password", None) or ""
        letters = context._gateway.new_array(java.char, len(password))  # type: ignore[union-attr]
        for place, letter in enumerate(password):
            letters[place] = letter
        try:
            store = java.java.security.KeyStore.getInstance(kind)
            stream = java.java.io.FileInputStream(path)
            try:
                store.load(stream, letters)
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise UnreachableError(
                f"Wanted a key store of type {kind} in {path} ({name}.path), opened with {name}.password. "
                f"Found: {error.java_exception.getMessage()}"
            ) from None
    return store, letters


def _aliases(store: Any) -> list[str]:
    names = store.aliases()
    found = []
    while names.hasMoreElements():
        found.append(str(names.nextElement()))
    return sorted(found)


def _certificate(found: Any) -> str:
    return _pem("CERTIFICATE", bytes(found.getEncoded()))


def _pem(what: str, data: bytes) -> str:
    text = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {what}-----\n{text}\n-----END {what}-----\n"


def _is_set(spark: SparkSession, name: str) -> bool:
    return (spark.conf.get(name, None) or "false").lower() != "false"
