"""The choice of client: acsylla, the driver with TLS, and with a warning the other if one is not installed."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from formats.checksums import checksum
from loader.cassandra import clients
from loader.cassandra.access import Access
from loader.cassandra.cluster import Cluster
from loader.cassandra.fetch_acsylla import AcsyllaClient
from loader.cassandra.fetch_driver import DriverClient
from loader.cassandra.target import Target
from schemas import Columns, TableName
from tests.support.certificates import Authority

TARGET = Target(
    cluster=Cluster(hosts="127.0.0.1", access=Access()),
    consistency="LOCAL_QUORUM",
    table=TableName("test", "data"),
    columns=Columns(),
    label=None,
    metadata_table=TableName.parse("ks.metadata"),
    metadata=(),
)


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_warned", set())


@pytest.fixture
def encrypted(tmp_path: Path) -> Target:
    """The same target over TLS."""
    return replace(TARGET, cluster=Cluster(hosts="127.0.0.1", access=Access(ca=Authority(tmp_path / "authority").ca)))


def through(client: Any, target: Target) -> Target:
    """The same target with a client that is asked for."""
    return replace(target, cluster=Cluster(hosts="127.0.0.1", access=target.cluster.access, client=client))


def test_acsylla_reads_without_tls_and_the_driver_over_tls(encrypted: Target, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(clients.client_of(TARGET), AcsyllaClient)
    assert isinstance(clients.client_of(encrypted), DriverClient)
    assert isinstance(clients.client_of(through("acsylla", encrypted)), AcsyllaClient)
    assert isinstance(clients.client_of(through("cassandra-driver", TARGET)), DriverClient)
    assert caplog.messages == []


def test_without_acsylla_the_slower_driver_is_used_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "acsylla", None)
    for _ in range(2):
        assert isinstance(clients.client_of(TARGET), DriverClient)
    (message,) = caplog.messages
    assert message.startswith("acsylla cannot be imported (")
    assert "reading with cassandra-driver, which takes about three times the CPU time" in message


def test_without_the_driver_acsylla_reads_over_tls_with_one_warning_of_its_openssl(
    encrypted: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "cassandra.cluster", None)
    for _ in range(2):
        assert isinstance(clients.client_of(encrypted), AcsyllaClient)
    (message,) = caplog.messages
    assert message.startswith("cassandra-driver cannot be imported (")
    assert "acsylla. It bundles OpenSSL 1.1.1k, which OpenSSL no longer supports" in message
    assert "pip install cassandra-driver" in message


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_a_requested_client_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    for name in ("acsylla", "cassandra"):
        monkeypatch.setitem(sys.modules, name, None)
    wanted = {"acsylla": "acsylla", "cassandra-driver": "cassandra"}[client]
    with pytest.raises(loader.MissingExtraError, match=rf"Wanted {wanted}\b.* pip install 'imagestrata\[loader\]'"):
        clients.client_of(through(client, TARGET))


def test_both_clients_are_named_where_neither_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acsylla", "cassandra", "cassandra.cluster"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(loader.MissingExtraError, match=r"Wanted acsylla or cassandra-driver .*neither can be imported"):
        clients.client_of(TARGET)


class OldReplica:
    """A client that always reads other bytes; it notes whether a quorum was asked."""

    error = KeyError

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        return {}  # no run has kept bytes

    async def prepare(self, select: str) -> str:
        return select

    async def row(self, select: Any, one: bytes, *, at_quorum: bool = False) -> tuple[Any, ...]:
        self.asked.append(at_quorum)
        return (b"other bytes",) if select is None else (0, 2, "ingest")


@pytest.mark.parametrize(
    ("consistency", "asked"),
    [("LOCAL_ONE", [False, True, True]), ("LOCAL_QUORUM", [False] * 3), ("QUORUM", [False] * 3), ("ALL", [False] * 3)],
)
def test_other_bytes_are_read_again_at_a_quorum_and_at_no_weaker_level_than_before(
    monkeypatch: pytest.MonkeyPatch, consistency: Any, asked: list[bool]
) -> None:
    client = OldReplica()
    monkeypatch.setattr(clients, "client_of", lambda target: client)
    reader = clients.TableReader(replace(TARGET, consistency=consistency), checksums=np.array([7], dtype=np.int64))
    with pytest.raises(loader.ChangedImageError, match="with the checksum 7 of the split"):
        asyncio.run(reader.read(bytes(16), 0))
    assert client.asked == asked


class BeginsToKeep(OldReplica):
    """A client of a table whose bytes a run begins to keep; a late image is read again when that is known already."""

    def __init__(self) -> None:
        super().__init__()
        self.is_known = asyncio.Event()

    async def columns(self, table: TableName) -> dict[str, tuple[str, str]]:
        return {"xxhash64": ("bigint", "clustering")}

    async def prepare(self, select: str) -> str:
        self.is_known.set()
        return select

    async def row(self, select: Any, one: bytes, *more: int, at_quorum: bool = False) -> tuple[Any, ...]:
        is_late = one == b"late"
        self.asked.append(is_late)
        is_second = is_late and sum(self.asked) == 2
        await asyncio.sleep(0)  # the other image is read, too
        if is_second:
            await self.is_known.wait()
        return (b"kept",) if more else (b"other bytes",)


def test_images_that_are_read_together_all_find_the_bytes_that_a_run_begins_to_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = BeginsToKeep()
    monkeypatch.setattr(clients, "client_of", lambda target: client)
    reader = clients.TableReader(TARGET, checksums=np.array([checksum(b"kept")] * 2, dtype=np.int64))

    async def read() -> list[Any]:
        return await asyncio.gather(reader.read(b"soon", 0), reader.read(b"late", 1))

    assert [image for image, *_ in asyncio.run(read())] == [b"kept", b"kept"]
