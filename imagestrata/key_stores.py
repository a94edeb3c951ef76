"""Certificates and keys in PEM as the key stores that Spark takes, and the properties that name them."""

import secrets
from pathlib import Path
from typing import Any

from formats.durability import whole_file

_SSL = "spark.cassandra.connection.ssl"
AUTHORITIES, CLIENT = "authority.p12", "client.p12"


def key_stores(
    folder: Path,
    authorities: bytes,
    *,
    certificate: bytes | None = None,
    key: bytes | None = None,
    passphrase: str | None = None,
    client: str = CLIENT,
    final: Path | None = None,
) -> dict[str, str]:
    """Write the stores of the authorities, and of a client's certificate and key, into a folder, readable by their
    owner only. Returns the properties of the Spark connector, with the ``final`` name of the folder. Raises ValueError
    for what is not PEM, or a wrong passphrase.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    lock = secrets.token_urlsafe(24)
    cipher = serialization.BestAvailableEncryption(lock.encode())
    trusted = x509.load_pem_x509_certificates(authorities)
    named = [pkcs12.PKCS12Certificate(one, f"authority{at}".encode()) for at, one in enumerate(trusted)]
    stores = {"trustStore": (AUTHORITIES, pkcs12.serialize_java_truststore(named, cipher))}
    if certificate is not None and key is not None:
        private: Any = serialization.load_pem_private_key(key, None if passphrase is None else passphrase.encode())
        own, *signers = x509.load_pem_x509_certificates(certificate)
        stores["keyStore"] = client, pkcs12.serialize_key_and_certificates(b"client", private, own, signers, cipher)
    found = {f"{_SSL}.enabled": "true"}
    if "keyStore" in stores:
        found[f"{_SSL}.clientAuth.enabled"] = "true"
    for store, (file, data) in stores.items():
        with whole_file(folder / file, private=True) as written:
            written.write(data)
        where = {"path": str((final or folder) / file), "password": lock, "type": "PKCS12"}
        found |= {f"{_SSL}.{store}.{name}": value for name, value in where.items()}
    return found
