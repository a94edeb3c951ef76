"""Certificates for tests: an authority and the certificates that it signs."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as files in PEM."""

    certificate: Path
    key: Path

    def key_store(self, path: Path, password: str) -> Path:
        """A key store of Java with both, as PKCS 12. The key must not be encrypted."""
        key: Any = serialization.load_pem_private_key(self.key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        encryption = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption))
        return path


class Authority:
    """Signs certificates; its own is `ca`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self._signer = trustme.CA(organization_name=folder.name)
        self.ca = folder / "ca.pem"
        self._signer.cert_pem.write_to_path(self.ca)

    def issue(
        self, name: str, *, names: str = "127.0.0.1 localhost", expired: bool = False, passphrase: str = ""
    ) -> Certificate:
        """A certificate for `names`, addresses and host names. With a passphrase, the key is encrypted."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        end = datetime(2020, 2, 1, tzinfo=UTC) if expired else None
        begin = datetime(2020, 1, 1, tzinfo=UTC)
        leaf = self._signer.issue_cert(*names.split(), common_name=name, not_before=begin, not_after=end)
        leaf.cert_chain_pems[0].write_to_path(made.certificate)
        write_key(leaf.private_key_pem.bytes(), made.key, passphrase=passphrase)
        return made

    def trust_store(self, path: Path, password: str) -> Path:
        """A key store of Java with the authority's certificate, as PKCS 12."""
        ours = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(self.ca.read_bytes()), b"authority")
        encryption = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_java_truststore([ours], encryption))
        return path

    def server(self, certificate: Certificate) -> ssl.SSLContext:
        """The TLS context of a server with this certificate. It requires none of its clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def client(self, certificate: Certificate) -> ssl.SSLContext:
        """The TLS context of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = False
        context.load_cert_chain(certificate.certificate, certificate.key)
        return context


def write_key(pem: bytes, to: Path, *, passphrase: str, traditional: bool = False) -> None:
    """Write a key as PKCS 8, which Cassandra needs, or in the traditional format. With a passphrase it is encrypted."""
    plain = serialization.load_pem_private_key(pem, None)
    kind = serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
    cipher: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        cipher = serialization.BestAvailableEncryption(passphrase.encode())
    to.write_bytes(plain.private_bytes(serialization.Encoding.PEM, kind, cipher))
