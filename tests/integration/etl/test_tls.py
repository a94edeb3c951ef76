"""Key stores of Java in the settings of the Spark connector become certificates and keys in PEM."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError, UnreachableError
from etl.secrets import client_key_of
from etl.tls import Tls, key_of, tls_of
from tests.support.certificates import Authority, Certificate

SSL = "spark.cassandra.connection.ssl"
PASSWORD = 'open "sesame" 7'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.issue("client")


@pytest.fixture
def settings(
    spark: SparkSession, authority: Authority, client: Certificate, tmp_path: Path
) -> Iterator[dict[str, str]]:
    """The settings of both stores, which the session has during a test."""
    found = {
        "enabled": "true",
        "trustStore.path": str(authority.trust_store(tmp_path / "trust.p12", PASSWORD)),
        "trustStore.password": PASSWORD,
        "clientAuth.enabled": "true",
        "keyStore.path": str(client.key_store(tmp_path / "client.p12", PASSWORD)),
        "keyStore.password": PASSWORD,
    }
    for name, value in found.items():
        spark.conf.set(f"{SSL}.{name}", value)
    yield found
    for name in (*found, "trustStore.type"):
        spark.conf.unset(f"{SSL}.{name}")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_certificates_and_the_key_are_those_of_the_stores(
    spark: SparkSession, settings: dict[str, str], authority: Authority, client: Certificate, kind: str
) -> None:
    spark.conf.set(f"{SSL}.trustStore.type", kind)
    found, key = tls_of(spark), key_of(spark)
    assert found is not None
    assert found.certificate is not None
    assert key is not None
    for text, path in [(found.authorities, authority.ca), (found.certificate, client.certificate)]:
        wanted = x509.load_pem_x509_certificate(path.read_bytes())
        assert x509.load_pem_x509_certificates(text.encode()) == [wanted]
    assert key == client.key.read_text(encoding="ascii")
    assert found.context(key).check_hostname
    assert PASSWORD not in repr(found)


def test_without_a_client_s_certificate_there_is_no_key(spark: SparkSession, settings: dict[str, str]) -> None:
    spark.conf.unset(f"{SSL}.clientAuth.enabled")
    found = tls_of(spark)
    assert found is not None
    assert found.certificate is None
    assert key_of(spark) is None
    spark.conf.unset(f"{SSL}.enabled")
    spark.conf.unset(f"{SSL}.trustStore.path")
    spark.conf.unset(f"{SSL}.keyStore.path")
    assert tls_of(spark) is None


@pytest.mark.parametrize(("name", "value", "found"), [
    ("trustStore.path", None, r"trustStore\.path, because .*enabled is set\. Found: none"),
    ("trustStore.path", "/no/such.p12", r"key store of type JKS in /no/such\.p12 .*Found: .*No such file"),
    ("trustStore.password", "wrong-9", r"opened with .*trustStore\.password\. Found: .*password was incorrect"),
    ("trustStore.type", "PEMS", r"of type PEMS .*Found: PEMS not found"),
    ("keyStore.password", "wrong-9", r"opened with .*keyStore\.password\. Found: .*password was incorrect"),
])  # fmt: skip
def test_a_store_that_cannot_be_read_is_named_without_secrets(
    spark: SparkSession, settings: dict[str, str], name: str, value: str | None, found: str
) -> None:
    if value is None:
        spark.conf.unset(f"{SSL}.{name}")
    else:
        spark.conf.set(f"{SSL}.{name}", value)
    with pytest.raises(UnreachableError, match=found) as caught:
        tls_of(spark)
    assert "wrong-9" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_stores_that_have_nothing_of_use_are_named(spark: SparkSession, settings: dict[str, str]) -> None:
    spark.conf.set(f"{SSL}.keyStore.path", settings["trustStore.path"])
    with pytest.raises(UnreachableError, match=r"Wanted the client's key .*Found: none\. Make one with openssl"):
        tls_of(spark)
    spark.conf.set(f"{SSL}.trustStore.path", settings["keyStore.path"])
    with pytest.raises(UnreachableError, match=r"Wanted the certificates of the authorities .*keytool -importcert"):
        tls_of(spark)


def test_a_key_that_the_event_log_would_show_is_refused(spark: SparkSession, settings: dict[str, str]) -> None:
    """A session that was started with `HIDDEN`, but with passwords that were set later."""
    assert client_key_of(spark) is not None
    with pytest.raises(EtlError, match=r"started with .*keyStore\.password"):
        Control.from_spark(spark)


def test_an_acsylla_session_verifies_the_chain_and_the_address() -> None:
    assert Tls("authorities").for_acsylla("key") == {
        "ssl_enabled": True, "ssl_trusted_cert": "authorities", "ssl_verify_flags": 3,
    }  # fmt: skip
    with_client = Tls("authorities", "certificate").for_acsylla("key")
    assert (with_client["ssl_cert"], with_client["ssl_private_key"]) == ("certificate", "key")
