"""A node that requires TLS, a client certificate and a password: errors name the cause quickly, without secrets."""

import json
import logging
import os
import pickle
import re
import socket
import ssl
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType

import pyspark
import pytest

import loader
from imagestrata.devstack import jars
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.registry import Registry
from jobs import ingest, verify
from tests.support.access_checks import (
    BYTES,
    NAME,
    NAMES,
    PASSPHRASE,
    SECRET,
    authority,
    encryption_of,
    library,
    read,
    split_of,
    stranger,
)
from tests.support.certificates import Authority, Certificate
from tests.support.trees import picture, plant

__all__ = ["authority", "library", "stranger"]  # fixtures

LOCK = "locked-3"  # of the key stores of a bundle

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    return split_of("safe.data", tmp_path_factory.mktemp("split"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.issue("client", passphrase=PASSPHRASE)


@pytest.fixture(scope="module")
def devices(authority: Authority) -> Certificate:
    """A client certificate with an unencrypted key."""
    return authority.issue("device")


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, devices: Certificate
) -> Iterator[Cassandra]:
    """A node with a table that requires TLS, a client certificate and a password."""
    made = Cassandra(
        tmp_path_factory.mktemp("guarded"),
        auth=True,
        yaml=encryption_of(authority, authority.issue("server", names=NAMES)),
        tls=authority.client(devices),
    )
    with made as node:
        with node.session() as cql:
            cql.execute("CREATE KEYSPACE safe WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            cql.execute("CREATE TABLE safe.data (id uuid PRIMARY KEY, data blob)")
            for one, data in BYTES.items():
                cql.execute("INSERT INTO safe.data (id, data) VALUES (%s, %s)", (one, data))
            for role in ("reader", "nobody"):
                cql.execute(f"CREATE ROLE {role} WITH PASSWORD = '{SECRET}' AND LOGIN = true")
            cql.execute("GRANT SELECT ON safe.data TO reader")
        yield node


def reader(authority: Authority, client: Certificate, **changes: object) -> loader.Access:
    usual = {"username": "reader", "password": SECRET, "ca": authority.ca, "passphrase": PASSPHRASE}
    usual |= {"certificate": client.certificate, "key": client.key}
    return loader.Access(**(usual | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_reader_with_password_and_certificate_reads_by_address_and_by_name(
    guarded: Cassandra, authority: Authority, client: Certificate, split: loader.Split, host: str
) -> None:
    access = pickle.loads(pickle.dumps(reader(authority, client)))
    assert read(split, hosts=host, port=guarded.port, access=access) == BYTES


def test_the_environment_supplies_credentials_missing_from_the_program(
    guarded: Cassandra,
    authority: Authority,
    client: Certificate,
    split: loader.Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "passphrase").write_text(f"{PASSPHRASE}\n", encoding="utf-8")
    for name, value in {
        "USERNAME": "somebody else",
        "PASSWORD": SECRET,
        "CA": authority.ca,
        "CERTIFICATE": client.certificate,
        "KEY": client.key,
        "PASSPHRASE_FILE": tmp_path / "passphrase",
    }.items():
        monkeypatch.setenv(f"IMAGESTRATA_{name}", str(value))
    assert read(split, hosts=guarded.hosts, port=guarded.port, username="reader") == BYTES


@pytest.mark.parametrize(("changes", "found"), [
    ({"password": "swordfish-9"}, r"user 'reader' is refused .*Correct the user name or the password"),
    ({"username": "unheard", "password": "swordfish-9"}, "user 'unheard' is refused"),
    ({"username": None, "password": None}, "it requires a log-in .*IMAGESTRATA_USERNAME"),
    ({"username": "nobody"}, "no permission .*nobody"),
    ({"certificate": None, "key": None, "passphrase": None}, "it requires a client certificate .*IMAGESTRATA_KEY"),
    ({"certificate": None, "key": None, "passphrase": None, "ca": None}, r"it uses TLS.*Access\(ca=\.\.\.\)"),
], ids=["password", "user", "no user", "no right", "no certificate", "plain"])  # fmt: skip
def test_missing_credentials_are_named_without_secrets(
    guarded: Cassandra,
    authority: Authority,
    client: Certificate,
    split: loader.Split,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, str | None],
    found: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    access = reader(authority, client, **changes)
    with pytest.raises(loader.AccessError, match=rf"127\.0\.0\.1 port {guarded.port}.*Found: {found}") as refused:
        read(split, hosts=guarded.hosts, port=guarded.port, access=access)
    chain = [refused.value, refused.value.__cause__, refused.value.__context__]
    for secret in (SECRET, "swordfish-9", PASSPHRASE):
        assert not any(secret in repr(error) for error in chain)
        assert secret not in caplog.text


@pytest.mark.parametrize("case", ["expired", "unknown"])
def test_a_certificate_that_the_server_refuses_is_named(
    guarded: Cassandra, authority: Authority, stranger: Authority, split: loader.Split, case: str
) -> None:
    made = authority.issue("late", expired=True) if case == "expired" else stranger.issue("unknown")
    access = reader(authority, made, passphrase=None)
    with pytest.raises(
        loader.AccessError, match=f"refuses the client's certificate {re.escape(str(made.certificate))}"
    ):
        read(split, hosts=guarded.hosts, port=guarded.port, access=access)


class Metadata(HTTPServer):
    """A bundle's metadata service, which requires the client certificate and names the node."""

    def __init__(self, tls: ssl.SSLContext, *, node: str, host_id: uuid.UUID, status: int = 200) -> None:
        info = {"local_dc": "datacenter1", "sni_proxy_address": node, "contact_points": [str(host_id)]}
        self.status, self.body = status, json.dumps({"version": 1, "contact_info": info}).encode()
        super().__init__(("127.0.0.1", 0), Answer)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not raise: the test reads refusals."""


class Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if self.path in ("/metadata?version=1", "/metadata"):  # the connector's driver asks for no version
            self.wfile.write(self.server.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Do not log to standard error."""


def bundle(
    path: Path,
    port: int,
    ca: Path,
    certificate: Certificate,
    *,
    host: str = NAME,
    stores: Mapping[str, Path] = MappingProxyType({}),
) -> Path:
    """Write a bundle; Java's drivers need its key stores, too."""
    settings = {"host": host, "port": port, "keyspace": "safe", "keyStorePassword": LOCK, "trustStorePassword": LOCK}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("config.json", json.dumps(settings))
        parts = {"ca.crt": ca, "cert": certificate.certificate, "key": certificate.key, **stores}
        for name, file in parts.items():
            files.write(file, name)
    return path


@pytest.fixture
def metadata(guarded: Cassandra, authority: Authority) -> Iterator[Metadata]:
    tls = authority.server(authority.issue("metadata", names=NAMES))
    tls.load_verify_locations(authority.ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    with guarded.session() as cql:
        host_id = cql.execute("SELECT host_id FROM system.local").one().host_id
    with Metadata(tls, node=f"{NAME}:{guarded.port}", host_id=host_id) as server:
        yield server
        server.shutdown()


def test_a_bundle_connects_without_hosts(
    metadata: Metadata, authority: Authority, devices: Certificate, split: loader.Split, tmp_path: Path
) -> None:
    path = bundle(tmp_path / "secure-connect.zip", metadata.server_port, authority.ca, devices)
    access = loader.Access(bundle=path, username="reader", password=SECRET)
    assert read(split, access=access) == BYTES


@pytest.mark.parametrize("library", ["acsylla"], indirect=True)  # jobs use both clients, and the connector
def test_jobs_and_commands_connect_by_a_bundle_and_by_pem_files(
    guarded: Cassandra, metadata: Metadata, authority: Authority, devices: Certificate, client: Certificate,
    tmp_path: Path,
) -> None:  # fmt: skip
    with guarded.session() as cql:
        cql.execute("CREATE KEYSPACE jobs WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        cql.execute("GRANT ALL ON KEYSPACE jobs TO reader")
    stores = {
        "identity.jks": devices.key_store(tmp_path / "identity.jks", LOCK),
        "trustStore.jks": authority.trust_store(tmp_path / "trust.jks", LOCK),
    }
    path = bundle(tmp_path / "secure-connect.zip", metadata.server_port, authority.ca, devices, stores=stores)
    properties = {
        "spark.cassandra.connection.config.cloud.path": path,
        "spark.cassandra.auth.username": "reader",
        "spark.cassandra.auth.password": SECRET,
        "spark.master": "local[2]",
        "spark.jars": ",".join(path.as_uri() for path in jars.connector(Path(pyspark.__file__).parents[1])),
    }
    (tmp_path / "access.conf").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    plant(tmp_path / "tree", {f"{name}/1.png": picture(number) for number, name in enumerate("abc")})
    tables = ["-d", "jobs.data", "-m", "jobs.metadata", "--json"]
    for job in (ingest, verify):
        said = submit(tmp_path / "access.conf", job.__file__, str(tmp_path / "tree"), *tables)
        assert json.loads(said)["images"] == 3
    access = loader.Access(bundle=path, username="reader", password=SECRET)
    with Registry("jobs", access=access) as registry:
        assert "dataset" in [item.kind for item in registry.items()]

    secrets = {"PASSWORD": SECRET, "PASSPHRASE": PASSPHRASE}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(f"{secret}\n", encoding="utf-8")
    files = {"CA": authority.ca, "CERTIFICATE": client.certificate, "KEY": client.key}
    files |= {f"{name}_FILE": tmp_path / name for name in secrets}
    done = subprocess.run(
        [sys.executable, "-m", "imagestrata", "migrate", "-k", "jobs", "--dry-run", "--json", "--host", "127.0.0.1",
         "--port", str(guarded.port)],
        env=os.environ | {f"IMAGESTRATA_{name}": str(file) for name, file in files.items()}
        | {"IMAGESTRATA_USERNAME": "reader"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert not set(secrets.values()) & {*done.stdout.split(), *done.stderr.split()}


def submit(properties: Path, *command: str) -> str:
    """Run a job with a file of properties; returns its last line."""
    program = str(Path(sys.executable).with_name("spark-submit"))
    done = subprocess.run(
        [program, "--properties-file", str(properties), *command],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_no_credentials_go_to_a_bundle_node_with_an_unverified_name(
    guarded: Cassandra,
    metadata: Metadata,
    authority: Authority,
    devices: Certificate,
    split: loader.Split,
    tmp_path: Path,
) -> None:
    metadata.body = metadata.body.replace(f'"{NAME}:'.encode(), b'"127.0.1:')  # another name of the same address
    path = bundle(tmp_path / "secure-connect.zip", metadata.server_port, authority.ca, devices)
    with pytest.raises(loader.AccessError, match="certificate"):
        read(split, access=loader.Access(bundle=path, username="reader", password=SECRET))


def test_errors_of_the_bundle_metadata_service_are_reported(
    metadata: Metadata,
    authority: Authority,
    stranger: Authority,
    devices: Certificate,
    split: loader.Split,
    tmp_path: Path,
) -> None:
    def refusal(name: str, **parts: object) -> str:
        usual = {"port": metadata.server_port, "ca": authority.ca, "certificate": devices}
        path = bundle(tmp_path / name, **(usual | parts))  # type: ignore[arg-type]
        with pytest.raises(loader.LoaderError) as found:
            read(split, access=loader.Access(bundle=path, username="reader", password=SECRET))
        return f"{type(found.value).__name__}: {found.value}"

    service = rf"Error: Wanted the bundle's metadata service at {NAME} port {metadata.server_port}\. Found: "
    refused = refusal("late.zip", certificate=authority.issue("late", expired=True))
    assert re.match(rf"Access{service}it refuses the client's certificate of the bundle .*late\.zip", refused)
    assert re.match(
        rf"Access{service}a certificate that no authority of the bundle",
        refusal("false.zip", ca=stranger.ca),
    )
    metadata.status = 503
    assert re.match(rf"Unreachable{service}the answer 'HTTP/1.0 503 .*Is the database running", refusal("asleep.zip"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "nothing listens there" in refusal("nobody.zip", port=port)
    assert "nowhere.invalid port" in refusal("nowhere.zip", host="nowhere.invalid")


def test_devstack_detects_a_running_node_with_tls(guarded: Cassandra) -> None:
    assert not guarded.start()
