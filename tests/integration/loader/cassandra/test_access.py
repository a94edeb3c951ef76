"""TLS in front of a node without it: sources read through a server with the right certificate, and refuse others."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from loader.cassandra.probe import round_trip
from tests.support.access_checks import (
    BYTES,
    NAMES,
    REVERSE,
    SECRET,
    authority,
    library,
    read,
    split_of,
    stranger,
)
from tests.support.certificates import Authority
from tests.support.pictures import write_table
from tests.support.services import fresh_name

__all__ = ["authority", "library", "stranger"]  # fixtures

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def table() -> str:
    return f"{fresh_name('access')}.data"


@pytest.fixture(scope="module")
def split(table: str, tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    return split_of(table, tmp_path_factory.mktemp("split"))


class Fronts:
    """TLS in front of a plain node: bytes are passed on, through a separate port for each certificate."""

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
def fronts(cassandra: Cassandra, table: str) -> Iterator[Fronts]:
    write_table(table, BYTES, hosts=cassandra.hosts, port=cassandra.port)
    made = Fronts(cassandra.hosts[0], cassandra.port)
    yield made
    made.close()


def test_tls_works_without_a_client_certificate(fronts: Fronts, authority: Authority, split: loader.Split) -> None:
    port = fronts.port(authority.server(authority.issue("front")))
    assert read(split, hosts="127.0.0.1", port=port, access=loader.Access(ca=authority.ca)) == BYTES


def test_the_round_trip_is_measured_over_tls(fronts: Fronts, authority: Authority) -> None:
    """Without it, a source over TLS cannot know how many connections the latency requires."""
    port = fronts.port(authority.server(authority.issue("front")))
    assert asyncio.run(round_trip(["127.0.0.1"], port, loader.Access(ca=authority.ca).tls())) is not None
    assert asyncio.run(round_trip(["127.0.0.1"], port, None)) is None


def test_an_unresolvable_host_beside_a_good_one_is_ignored(
    fronts: Fronts, authority: Authority, split: loader.Split
) -> None:
    port = fronts.port(authority.server(authority.issue("front", names=NAMES)))
    access = loader.Access(ca=authority.ca)
    assert read(split, hosts=["nowhere.invalid", "localhost"], port=port, access=access) == BYTES


@pytest.mark.parametrize(("case", "host", "found"), [
    ("expired", "127.0.0.1", r"its certificate has expired\. Renew the server's certificate"),
    ("stranger", "127.0.0.1", r"a certificate that no authority in .*ca\.pem has signed"),
    ("stranger", "localhost", r"a certificate that no authority in .*ca\.pem has signed"),
    ("named otherwise", "127.0.0.1", r"a certificate for elsewhere, 127\.0\.0\.9, not for 127\.0\.0\.1\. Give"),
    ("named otherwise", "localhost", rf"a certificate for elsewhere, 127\.0\.0\.9, not for {REVERSE}, which is"),
], ids=["expired", "stranger", "stranger by name", "named otherwise", "named otherwise by name"])  # fmt: skip
def test_no_credentials_go_to_a_server_with_an_unverified_name(
    fronts: Fronts, authority: Authority, stranger: Authority, split: loader.Split, case: str, host: str, found: str
) -> None:
    """Also a certificate with the right name that anyone could make: the driver's own flags would accept it."""
    shown = {
        "expired": lambda: authority.issue("expired", names=NAMES, expired=True),
        "stranger": lambda: stranger.issue("false", names=NAMES),
        "named otherwise": lambda: authority.issue("other", names="elsewhere 127.0.0.9"),
    }[case]()
    port = fronts.port(authority.server(shown))
    with pytest.raises(loader.AccessError, match=rf"Wanted Cassandra at {host} port {port}\. Found: {found}"):
        read(split, hosts=host, port=port, access=loader.Access(ca=authority.ca, username="u", password=SECRET))


def test_a_server_without_tls_is_refused_when_tls_is_wanted(
    cassandra: Cassandra, authority: Authority, split: loader.Split
) -> None:
    with pytest.raises(loader.AccessError, match=r"Found: it does not use TLS\. Leave out ca"):
        read(split, hosts=cassandra.hosts, port=cassandra.port, access=loader.Access(ca=authority.ca))


def test_a_tls_port_that_never_answers_is_named_in_time(authority: Authority, split: loader.Split) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(loader.UnreachableError, match=r"Found: no answer within 3 s\. Is it Cassandra's port"),
    ):
        read(split, hosts="127.0.0.1", port=mute.getsockname()[1], access=loader.Access(ca=authority.ca))
