"""Who may read: passwords, certificates and bundles, at a node that wants them; what is wrong is named, at once."""

import asyncio
import json
import logging
import pickle
import re
import socket
import ssl
import threading
import time
import uuid
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from certificates import Authority, Certificate
from pictures import write_table
from split_folders import image_ids, write_split_folder

import loader
from devstack.cassandra import Cassandra
from loader import _clients

IDS = image_ids(20)
BYTES = {one: bytes([number]) * 50 for number, one in enumerate(IDS)}
SECRET, PASSPHRASE = "hardly-guessed-7", "open-sesame-5"
REVERSE = socket.getnameinfo(("127.0.0.1", 0), 0)[0]  # mostly localhost
NAME = "127.1"  # a name to the driver; unlike localhost it means 127.0.0.1 and nothing else on every machine
NAMES = f"IP:127.0.0.1,DNS:localhost,DNS:{NAME},DNS:{REVERSE}"


@pytest.fixture(params=["acsylla", "cassandra-driver"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs over both clients."""
    monkeypatch.setattr(_clients, "_installed", lambda: request.param)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "stranger")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.issue("client", passphrase=PASSPHRASE)


@pytest.fixture(scope="module")
def devices(authority: Authority) -> Certificate:
    """A client's certificate whose key is not locked."""
    return authority.issue("device")


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, devices: Certificate
) -> Iterator[Cassandra]:
    """A node with a table that wants TLS, a client's certificate and a password."""
    server = authority.issue("server", names=NAMES)
    pem = {
        "private_key": server.key.read_text(encoding="ascii") + server.certificate.read_text(encoding="ascii"),
        "trusted_certificates": authority.ca.read_text(encoding="ascii"),
    }
    factory = {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory", "parameters": pem}
    encryption = {"enabled": True, "optional": False, "require_client_auth": True, "ssl_context_factory": factory}
    made = Cassandra(
        tmp_path_factory.mktemp("guarded"),
        auth=True,
        yaml={"client_encryption_options": encryption},
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


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loader.Split]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IMAGESTRATA_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = write_split_folder(tmp_path_factory.mktemp("split"), [(IDS, [0] * 20)], data_table="safe.data")
        yield loader.open_split(folder)


class Fronts:
    """TLS before a node that speaks none: what comes is passed on, behind one port for each certificate."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def port(self, tls: ssl.SSLContext, *, host: str = "127.0.0.1") -> int:
        starting = asyncio.start_server(self._serve, host, 0, ssl=tls)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)

        async def send(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            sink.close()

        await asyncio.gather(send(reader, back), send(there, writer))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@pytest.fixture(scope="module")
def fronts(cassandra: Cassandra) -> Iterator[Fronts]:
    write_table("safe.data", BYTES, hosts=cassandra.hosts, port=cassandra.port)
    made = Fronts(cassandra.hosts[0], cassandra.port)
    yield made
    made.close()


def read(split: loader.Split, **options: object) -> dict[uuid.UUID, bytes]:
    """One epoch; whatever is raised comes soon."""
    start = time.monotonic()
    try:
        with loader.CassandraSource(split, batch_size=8, **options) as source:  # type: ignore[arg-type]
            return {
                uuid.UUID(bytes=row.tobytes()): image
                for batch in source.epoch(0)
                for row, image in zip(batch.ids, batch.images, strict=True)
            }
    finally:
        assert time.monotonic() - start < 20


def reader(authority: Authority, client: Certificate, **changes: object) -> loader.Access:
    usual = {"username": "reader", "password": SECRET, "ca": authority.ca, "passphrase": PASSPHRASE}
    usual |= {"certificate": client.certificate, "key": client.key}
    return loader.Access(**(usual | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_reader_with_all_papers_reads_by_address_and_by_name(
    guarded: Cassandra, authority: Authority, client: Certificate, split: loader.Split, host: str
) -> None:
    access = pickle.loads(pickle.dumps(reader(authority, client)))
    assert read(split, hosts=host, port=guarded.port, access=access) == BYTES


def test_the_environment_opens_what_the_program_does_not_know(
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
    ({"username": None, "password": None}, "it asks who you are .*IMAGESTRATA_USERNAME"),
    ({"username": "nobody"}, "no permission .*nobody"),
    ({"certificate": None, "key": None, "passphrase": None}, "it wants the client's certificate .*IMAGESTRATA_KEY"),
    ({"certificate": None, "key": None, "passphrase": None, "ca": None}, r"it speaks TLS.*Access\(ca=\.\.\.\)"),
], ids=["password", "user", "no user", "no right", "no certificate", "plain"])  # fmt: skip
def test_who_lacks_one_paper_is_told_which_without_secrets(
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


def test_tls_needs_no_certificate_of_the_client(fronts: Fronts, authority: Authority, split: loader.Split) -> None:
    port = fronts.port(authority.server(authority.issue("front")))
    assert read(split, hosts="127.0.0.1", port=port, access=loader.Access(ca=authority.ca)) == BYTES


def test_of_two_hosts_one_that_does_not_resolve_does_no_harm(
    fronts: Fronts, authority: Authority, split: loader.Split
) -> None:
    port = fronts.port(authority.server(authority.issue("front", names=NAMES)))
    access = loader.Access(ca=authority.ca)
    assert read(split, hosts=["nowhere.invalid", "localhost"], port=port, access=access) == BYTES


@pytest.mark.parametrize(("case", "host", "found"), [
    ("expired", "127.0.0.1", r"its certificate has expired\. Have the server's certificate renewed"),
    ("stranger", "127.0.0.1", r"a certificate that none of the authorities in .*ca\.pem has signed"),
    ("stranger", "localhost", r"a certificate that none of the authorities in .*ca\.pem has signed"),
    ("named otherwise", "127.0.0.1", r"a certificate for elsewhere, 127\.0\.0\.9, not for 127\.0\.0\.1\. Give"),
    ("named otherwise", "localhost", rf"a certificate for elsewhere, 127\.0\.0\.9, not for {REVERSE}, as a reverse"),
], ids=["expired", "stranger", "stranger by name", "named otherwise", "named otherwise by name"])  # fmt: skip
def test_a_server_that_does_not_prove_who_it_is_gets_nothing(
    fronts: Fronts, authority: Authority, stranger: Authority, split: loader.Split, case: str, host: str, found: str
) -> None:
    """A certificate with the right name that anyone could make, too: the driver's own flags would take it."""
    shown = {
        "expired": lambda: authority.issue("expired", names=NAMES, expired=True),
        "stranger": lambda: stranger.issue("false", names=NAMES),
        "named otherwise": lambda: authority.issue("other", names="DNS:elsewhere,IP:127.0.0.9"),
    }[case]()
    port = fronts.port(authority.server(shown))
    with pytest.raises(loader.AccessError, match=rf"Wanted Cassandra at {host} port {port}\. Found: {found}"):
        read(split, hosts=host, port=port, access=loader.Access(ca=authority.ca, username="u", password=SECRET))


def test_a_server_without_tls_is_no_server_for_tls(
    cassandra: Cassandra, authority: Authority, split: loader.Split
) -> None:
    with pytest.raises(loader.AccessError, match=r"Found: it speaks no TLS\. Leave out ca"):
        read(split, hosts=cassandra.hosts, port=cassandra.port, access=loader.Access(ca=authority.ca))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_what_is_not_there_is_said_not_to_be(authority: Authority, split: loader.Split, encrypted: bool) -> None:
    access = loader.Access(ca=authority.ca) if encrypted else loader.Access()
    with pytest.raises(loader.UnreachableError, match=r"nowhere\.invalid port 9042\. Found: its name does not resolve"):
        read(split, hosts="nowhere.invalid", access=access)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(loader.UnreachableError, match=rf"port {port}\. Found: nothing listens there"):
        read(split, hosts="127.0.0.1", port=port, access=access)
    both = rf"127\.0\.0\.1, nowhere\.invalid port {port}\. Found: 127\.0\.0\.1: nothing .* nowhere\.invalid: its name"
    with pytest.raises(loader.UnreachableError, match=both):
        read(split, hosts=["127.0.0.1", "nowhere.invalid"], port=port, access=access)


class Metadata(HTTPServer):
    """A bundle's metadata service, which wants the client's certificate: the node itself stands behind its names."""

    def __init__(self, tls: ssl.SSLContext, *, node: str, host_id: uuid.UUID, status: int = 200) -> None:
        info = {"local_dc": "datacenter1", "sni_proxy_address": node, "contact_points": [str(host_id)]}
        self.status, self.body = status, json.dumps({"version": 1, "contact_info": info}).encode()
        super().__init__(("127.0.0.1", 0), Answer)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who is refused is the test's affair."""


class Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if self.path == "/metadata?version=1":
            self.wfile.write(self.server.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing to standard error."""


def bundle(path: Path, port: int, ca: Path, certificate: Certificate, *, host: str = NAME) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("config.json", json.dumps({"host": host, "port": port, "keyspace": "safe"}))
        for name, file in {"ca.crt": ca, "cert": certificate.certificate, "key": certificate.key}.items():
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


def test_a_bundle_leads_to_the_node_without_hosts(
    metadata: Metadata, authority: Authority, devices: Certificate, split: loader.Split, tmp_path: Path
) -> None:
    path = bundle(tmp_path / "secure-connect.zip", metadata.server_port, authority.ca, devices)
    access = loader.Access(bundle=path, username="reader", password=SECRET)
    assert read(split, access=access) == BYTES


def test_a_node_of_a_bundle_that_does_not_prove_its_name_gets_nothing(
    guarded: Cassandra,
    metadata: Metadata,
    authority: Authority,
    devices: Certificate,
    split: loader.Split,
    tmp_path: Path,
) -> None:
    metadata.body = metadata.body.replace(f'"{NAME}:'.encode(), b'"127.0.1:')  # the same address by another name
    path = bundle(tmp_path / "secure-connect.zip", metadata.server_port, authority.ca, devices)
    with pytest.raises(loader.AccessError, match="certificate"):
        read(split, access=loader.Access(bundle=path, username="reader", password=SECRET))


def test_what_is_wrong_with_a_bundle_s_service_is_named(
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
        rf"Access{service}a certificate that none of the authorities of the bundle",
        refusal("false.zip", ca=stranger.ca),
    )
    metadata.status = 503
    assert re.match(rf"Unreachable{service}the answer 'HTTP/1.0 503 .*Is the database awake", refusal("asleep.zip"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "nothing listens there" in refusal("nobody.zip", port=port)
    assert "nowhere.invalid port" in refusal("nowhere.zip", host="nowhere.invalid")


def test_a_tls_port_that_never_answers_is_named_in_time(authority: Authority, split: loader.Split) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(loader.UnreachableError, match=r"Found: no answer within 3 s\. Is it Cassandra's port"),
    ):
        read(split, hosts="127.0.0.1", port=mute.getsockname()[1], access=loader.Access(ca=authority.ca))


def test_devstack_finds_its_node_with_tls_up(guarded: Cassandra) -> None:
    assert not guarded.start()
