"""Where Cassandra is, from the settings of Spark."""

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import UnreachableError
from etl.tls import BUNDLE, connector_options

SSL = "spark.cassandra.connection.ssl"


def session(settings: dict[str, str]) -> Any:
    """A session that only has settings."""
    return SimpleNamespace(conf=settings)


def test_hosts_port_datacenter_and_user_come_from_the_connector_s_settings() -> None:
    connection = "spark.cassandra.connection"
    settings = {f"{connection}.host": "10.0.0.1, 10.0.0.2", f"{connection}.port": "9142", f"{connection}.localDC": "a"}
    settings |= {"spark.cassandra.auth.username": "me", f"{SSL}.enabled": "false"}
    assert Cluster.from_spark(session(settings)) == Cluster(("10.0.0.1", "10.0.0.2"), 9142, "a", "me")
    assert Cluster.from_spark(session({})) == Cluster(("127.0.0.1",))


@pytest.mark.parametrize(("address", "path"), [
    ("/etc/my db.zip", "/etc/my db.zip"), ("file:///etc/my%20db.zip", "/etc/my db.zip"),
    ("file:/etc/my%20db.zip", "/etc/my db.zip"), ("my db.zip", "my db.zip"),
])  # fmt: skip
def test_a_bundle_takes_the_place_of_hosts_and_certificates(address: str, path: str) -> None:
    settings = {BUNDLE: address, "spark.cassandra.connection.host": "10.0.0.1", "spark.cassandra.auth.username": "me"}
    found = Cluster.from_spark(session(settings))
    assert found == Cluster((), username="me", bundle=path)
    options = connector_options(session(settings))
    assert options == ({BUNDLE: "file:///etc/my%20db.zip"} if address.startswith("/") else {})


@pytest.mark.parametrize(("settings", "found"), [
    ({BUNDLE: "/db.zip", f"{SSL}.enabled": "true"}, "Found: both. Unset one"),
    ({BUNDLE: "https://example.org/db.zip"}, "Found: https://example.org/db.zip. Download the bundle"),
])  # fmt: skip
def test_a_bundle_beside_tls_or_elsewhere_is_refused(settings: dict[str, str], found: str) -> None:
    with pytest.raises(UnreachableError, match=found):
        Cluster.from_spark(session(settings))


def test_a_bundle_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    cluster = Cluster.from_spark(session({BUNDLE: str(tmp_path / "gone.zip")}))
    with pytest.raises(UnreachableError, match=r"a secure connect bundle in .*gone\.zip\. Found: No such file"):
        Control(cluster)
    with zipfile.ZipFile(tmp_path / "gone.zip", "w") as made:
        made.writestr("config.json", '{"host": "127.0.0.1", "port": 1}')
        for name in ("ca.crt", "cert", "key"):
            made.writestr(name, "no PEM")
    with pytest.raises(UnreachableError, match=r"a key in PEM in the bundle .*gone\.zip\. Found: .*Download it again"):
        Control(cluster)


def test_only_a_cluster_on_this_machine_may_be_started_here() -> None:
    assert "Start one here with `imagestrata up`, or set" in str(Cluster(("127.0.0.1",)).unreachable("refused"))
    assert "Is it running there? Set" in str(Cluster(("127.0.0.1", "10.0.0.1")).unreachable("refused"))


@pytest.mark.parametrize(
    "settings",
    [{"trustStore.path": "/ca.jks"}, {"keyStore.path": "/me.jks"}, {"clientAuth.enabled": "true", "enabled": "false"}],
    ids=["trust store", "key store", "client"],
)
def test_settings_of_tls_that_is_not_enabled_are_refused(settings: dict[str, str]) -> None:
    """The connector ignores them: passwords and images would be sent unencrypted."""
    with pytest.raises(
        UnreachableError, match=r"ssl\.enabled set to true, .*Found: spark\.cassandra\.connection\.ssl\.\w+"
    ):
        Cluster.from_spark(session({f"{SSL}.{name}": value for name, value in settings.items()}))
