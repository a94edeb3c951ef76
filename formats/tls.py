"""TLS for clients in Python: the names in certificates, and secure connect bundles.

A secure connect bundle is the zip of a database that is reached through a proxy, such as Astra. It has the certificates
of both sides, and the address of a metadata service, which names the proxy and the nodes behind it.
"""

import ipaddress
import json
import os
import ssl
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from formats.errors import FormatsError, StorageError

_PARTS = ("config.json", "ca.crt", "cert", "key")


@dataclass(frozen=True, slots=True)
class Contacts:
    """What the metadata service of a bundle says: the proxy, the ids of the nodes behind it, and their datacenter."""

    host: str
    port: int
    nodes: tuple[str, ...]
    datacenter: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A secure connect bundle: certificates and key in PEM, and host and port of its metadata service."""

    path: str
    authorities: str  # that sign the certificates of metadata service and proxy
    certificate: str  # the client's
    key: str = field(repr=False)
    service: tuple[str, int]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Read a bundle. Raises `FormatsError` if the file is not one."""
        where = os.fspath(path)
        wanted = f"Wanted a secure connect bundle in {where}."
        try:
            with zipfile.ZipFile(path) as files:
                if missing := [name for name in _PARTS if name not in files.namelist()]:
                    raise FormatsError(f"{wanted} Found: a zip without {', '.join(missing)}. Download it again.")
                config, ca, certificate, key = (files.read(name) for name in _PARTS)
        except (OSError, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: it is locked
            raise FormatsError(f"{wanted} Found: {getattr(error, 'strerror', None) or error}") from None
        try:
            settings = json.loads(config)
            service = str(settings["host"]), int(settings["port"])
        except (ValueError, KeyError, TypeError):
            raise FormatsError(
                f"Wanted host and port in config.json of the bundle {where}. Found: none. Download it again."
            ) from None
        # Other bytes than ASCII are no PEM: the messages of ssl then say so.
        authorities, client, secret = (part.decode("ascii", "replace") for part in (ca, certificate, key))
        return cls(where, authorities, client, secret, service)

    def context(self) -> ssl.SSLContext:
        """The TLS of the metadata service, which must have the name that is connected to. Raises `FormatsError`."""
        try:
            return client_context(self.authorities, self.certificate, self.key)
        except ssl.SSLError as error:
            raise FormatsError(
                f"Wanted certificates and a key in PEM in the bundle {self.path}. Found: {error.reason or 'none'}. "
                "Download it again."
            ) from None

    def contacts(self, context: ssl.SSLContext, *, timeout: float) -> Contacts:
        """Ask the metadata service, within ``timeout`` seconds for each step. Raises `OSError` as ``urlopen`` does, and
        `StorageError` for another answer.
        """
        host, port = self.service
        with urlopen(f"https://{host}:{port}/metadata?version=1", context=context, timeout=timeout) as answer:
            text = answer.read()
        try:
            found = json.loads(text)["contact_info"]
            proxy, _, proxy_port = found["sni_proxy_address"].rpartition(":")
            return Contacts(proxy, int(proxy_port), tuple(map(str, found["contact_points"])), str(found["local_dc"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StorageError(
                f"Wanted proxy and nodes from the metadata service of the bundle {self.path} at {host} port {port}. "
                "Found: another answer. Download the bundle again."
            ) from None


def client_context(authorities: str, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """A context with certificates in PEM. A server's certificate must have the address, or the name, that the client
    has connected to. Raises ``ssl.SSLError``.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_verify_locations(cadata=authorities)
    if certificate is not None and key is not None:
        with _file_in_memory(key + certificate) as path:  # Python takes keys from files only
            made.load_cert_chain(path)
    return made


def proxied(context: ssl.SSLContext, name: str) -> ssl.SSLContext:
    """Change a context for connections through a proxy of this name: a connection asks for a node by the server name
    of TLS, and the certificate must be the proxy's.
    """

    class Socket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            if not is_named(self.getpeercert() or {}, "DNS", name):
                raise ssl.SSLCertVerificationError(f"a certificate that is not for {name}")

    context.check_hostname = False
    context.sslsocket_class = Socket
    return context


def is_named(certificate: dict[str, Any], kind: str, called: str) -> bool:
    """Whether a certificate, in the form of `ssl`, is for this name ("DNS") or address ("IP Address")."""
    named, common = names_of(certificate)
    return any(
        _is_same(called, value) for value in ([value for its, value in named if its == kind] if named else common)
    )


def names_of(certificate: dict[str, Any]) -> tuple[Sequence[tuple[str, str]], list[str]]:
    """The alternative names of a certificate, in the form of `ssl`, with their kinds, and its common names."""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return certificate.get("subjectAltName", ()), common


def _is_same(called: str, value: str) -> bool:
    try:
        return ipaddress.ip_address(called) == ipaddress.ip_address(value)
    except ValueError:
        called, value = called.lower(), value.lower()
        return called == value or (value.startswith("*.") and called.partition(".")[2] == value[2:])


@contextmanager
def _file_in_memory(text: str) -> Iterator[str]:
    """The path of a file with this text: in memory, or on systems other than Linux in a folder of this user alone."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "client.pem")
            path.write_text(text, encoding="ascii")
            yield str(path)
        return
    with os.fdopen(os.memfd_create("imagestrata-key"), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
