"""Which client reads: acsylla, or the slower one where acsylla is not installed, which is said once."""

import sys
from pathlib import Path

import pytest

import loader
from loader import _clients
from loader._access import Access
from loader._fetch import Target
from loader._fetch_acsylla import AcsyllaFetcher
from loader._fetch_driver import DriverFetcher
from schemas import Columns, TableName
from tests.support.split_folders import image_ids, write_split_folder

TARGET = Target(
    table=TableName("test", "data"),
    columns=Columns(),
    label=None,
    metadata_table=TableName.parse("ks.metadata"),
    metadata=(),
    hosts=["127.0.0.1"],
    port=9042,
    datacenter=None,
    access=Access(),
)


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clients, "_warned", set())


def test_acsylla_is_used_silently_where_it_is_installed(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(_clients.fetcher(TARGET, client=None, connections=None), AcsyllaFetcher)
    assert caplog.messages == []


def test_without_acsylla_the_slower_driver_is_used_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "acsylla", None)
    for _ in range(2):
        made = _clients.fetcher(TARGET, client=None, connections=None)
        assert isinstance(made, DriverFetcher)
        assert (made.connections, made.most_in_flight) == (0, 32)
    (message,) = caplog.messages
    assert message.startswith("acsylla cannot be imported (")
    assert "reading with cassandra-driver, which is several times slower" in message


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_a_requested_client_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    for name in ("acsylla", "cassandra"):
        monkeypatch.setitem(sys.modules, name, None)
    wanted = {"acsylla": "acsylla", "cassandra-driver": "cassandra"}[client]
    with pytest.raises(loader.MissingExtraError, match=rf"Wanted {wanted}\b.* pip install 'imagestrata\[loader\]'"):
        _clients.fetcher(TARGET, client=client, connections=None)  # type: ignore[arg-type]


def test_both_clients_are_named_where_neither_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acsylla", "cassandra", "cassandra.cluster"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(loader.MissingExtraError, match=r"Wanted acsylla or cassandra-driver .*neither can be imported"):
        _clients.fetcher(TARGET, client=None, connections=None)


def test_options_that_no_client_has_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_split_folder(tmp_path / "split", [(image_ids(4), [0] * 4)])
    split = loader.open_split(folder, cache=tmp_path / "cache")
    for options, found in [
        ({"client": "java"}, r"Wanted client as one of \('acsylla', 'cassandra-driver'\)\. Found: 'java'"),
        ({"client": "cassandra-driver", "connections": 4}, "Wanted connections for acsylla"),
    ]:
        with pytest.raises(loader.OptionError, match=found):
            loader.CassandraSource(split, hosts="127.0.0.1", batch_size=2, **options)  # type: ignore[arg-type]
