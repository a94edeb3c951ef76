"""The access to an embedded Cassandra that requires TLS, client certificates and passwords.

    FOLDER/authority.pem                               the certificate that signs the others
           node.pem                                    the nodes' certificate and key
           admin.env, writer.env, reader.env           user, password and files of each role, as IMAGESTRATA_* variables
           admin.pem, admin.key, ...                   each role's certificate and key
           jobs.conf, writer.p12, authority.p12        the writer's, as properties and key stores of Spark

`writer` creates keyspaces and writes what it has created, `reader` reads all tables, `admin` is the only superuser. All
files are readable by their owner only. They are made once; the folder appears when it is complete.
"""

import secrets
import shlex
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from formats.durability import whole_file
from formats.local_node import JOBS, ROLES, variables_in
from imagestrata.devstack import SetupError
from imagestrata.key_stores import key_stores

if TYPE_CHECKING:
    from trustme import CA

_PEM_FACTORY = "org.apache.cassandra.security.PEMBasedSslContextFactory"


def make(folder: Path, *, hosts: Sequence[str]) -> None:
    """Make the files for nodes at these addresses, unless they exist. Raises `SetupError`."""
    if folder.is_dir():
        return
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise SetupError(
            f"wanted {error.name}, to make certificates. Found: none. Run pip install 'imagestrata[secure]'."
        ) from None
    new = folder.with_name(f".new-{folder.name}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    authority = trustme.CA(organization_name="imagestrata")
    node = authority.issue_cert(*hosts, "localhost", common_name="node")
    _write(new / "authority.pem", authority.cert_pem.bytes())
    _write(new / "node.pem", _pkcs8(node.private_key_pem.bytes()) + node.cert_chain_pems[0].bytes())
    for role in ROLES:
        _make_role(new, role, authority, folder)
    new.rename(folder)


def yaml(folder: Path) -> dict[str, object]:
    """Settings of cassandra.yaml: clients must use TLS and have a certificate of the authority."""
    pem = {
        "private_key": (folder / "node.pem").read_text(encoding="ascii"),
        "trusted_certificates": (folder / "authority.pem").read_text(encoding="ascii"),
    }
    factory = {"class_name": _PEM_FACTORY, "parameters": pem}
    encryption = {"enabled": True, "optional": False, "require_client_auth": True, "ssl_context_factory": factory}
    # Without a cache, the default superuser cannot log in from the moment on that it is removed.
    return {"client_encryption_options": encryption, "credentials_validity": "0ms"}


def login(folder: Path, role: str = "admin") -> tuple[str, str]:
    """User and password of a role."""
    found = variables_in(folder / f"{role}.env")
    return found["IMAGESTRATA_USERNAME"], found["IMAGESTRATA_PASSWORD"]


def tls(folder: Path, role: str = "admin") -> ssl.SSLContext:
    """The TLS context of a client with the certificate of a role."""
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    context.load_cert_chain(folder / f"{role}.pem", folder / f"{role}.key")
    return context


def statements(folder: Path, *, nodes: int, datacenter: str) -> tuple[list[str], list[str]]:
    """What the default superuser executes, and then the admin, who removes it. They can be executed again."""
    # One lost replica of the roles must not lock everybody out. It comes before the roles, which have its replicas.
    replication = f"{{'class': 'NetworkTopologyStrategy', '{datacenter}': {nodes}}}"
    first = [
        f"ALTER KEYSPACE system_auth WITH replication = {replication}",
        f"{_role(folder, 'admin')} AND SUPERUSER = true",
    ]
    then = [_role(folder, role) for role in ROLES if role != "admin"]
    then += ["GRANT CREATE ON ALL KEYSPACES TO writer", "GRANT SELECT ON ALL KEYSPACES TO reader"]
    return first, [*then, "DROP ROLE IF EXISTS cassandra"]


def _role(folder: Path, role: str) -> str:
    # The password has no quotes: `secrets.token_urlsafe` made it. CQL binds no values here.
    return f"CREATE ROLE IF NOT EXISTS {role} WITH PASSWORD = '{login(folder, role)[1]}' AND LOGIN = true"


def _make_role(folder: Path, role: str, authority: "CA", final: Path) -> None:
    """Write the files of a role into a folder that will be renamed to its ``final`` name."""
    leaf = authority.issue_cert("localhost", common_name=role)
    certificate, key = leaf.cert_chain_pems[0].bytes(), _pkcs8(leaf.private_key_pem.bytes())
    password = secrets.token_urlsafe(24)
    _write(folder / f"{role}.pem", certificate)
    _write(folder / f"{role}.key", key)
    values = {
        "USERNAME": role,
        "PASSWORD": password,
        "CA": str(final / "authority.pem"),
        "CERTIFICATE": str(final / f"{role}.pem"),
        "KEY": str(final / f"{role}.key"),
    }
    lines = [f"IMAGESTRATA_{name}={shlex.quote(value)}\n" for name, value in values.items()]
    _write(folder / f"{role}.env", "".join(lines).encode())
    if role == "writer":
        _write_properties(folder, certificate, key, authority.cert_pem.bytes(), password=password, final=final)


def _write_properties(
    folder: Path, certificate: bytes, key: bytes, authority: bytes, *, password: str, final: Path
) -> None:
    """Write the writer's key stores, which Java takes as PKCS 12, and the properties that name them."""
    properties = {"spark.cassandra.auth.username": "writer", "spark.cassandra.auth.password": password}
    properties |= key_stores(folder, authority, certificate=certificate, key=key, client="writer.p12", final=final)
    _write(folder / JOBS, "".join(f"{name} {value}\n" for name, value in properties.items()).encode())


def _pkcs8(key: bytes) -> bytes:
    """A key in the only form that Cassandra reads."""
    from cryptography.hazmat.primitives import serialization

    found = serialization.load_pem_private_key(key, None)
    no_cipher = serialization.NoEncryption()
    return found.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_cipher)


def _write(path: Path, data: bytes) -> None:
    with whole_file(path, private=True) as file:
        file.write(data)
