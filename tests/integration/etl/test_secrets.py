"""Secrets in a Spark session: tasks get them, nothing shows them, and sessions that would show them are refused."""

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import EtlError, SourceError
from etl.secrets import (
    HIDDEN,
    KEY,
    PASSWORD,
    PROPERTIES,
    check_hidden,
    driver_storage,
    executor_storage,
    secrets_on_executors,
)
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.s3_access import use
from tests.support.services import fresh_name

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")


@pytest.fixture(autouse=True)
def no_keys(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty the environment, and remove secrets from the session afterwards."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    yield
    for name in (PASSWORD, *PROPERTIES.values()):
        spark.conf.unset(name)


def _access(_: object) -> list[str | None]:
    access = executor_storage("s3://bucket/x")._access
    assert access is not None
    return [access.endpoint, access.key, access.secret, access.token]


def _in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch([pa.array(_access(0), pa.string())], names=["value"])


def _on_executors(spark: SparkSession) -> list[list[str | None]]:
    """The secrets that tasks of an RDD and of a DataFrame have."""
    frame = spark.range(1).mapInArrow(_in_batches, "value STRING")
    return [spark.sparkContext.parallelize([1], 1).flatMap(_access).collect(), [row.value for row in frame.collect()]]


def test_keys_of_the_configuration_reach_tasks_and_are_shown_nowhere(spark: SparkSession, s3: S3) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    address, access = f"s3://{bucket}/x", S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    Storage(address, access).write_bytes("a", b"right")
    conf = {"endpoint": s3.endpoint, "key": s3.access_key, "secret": s3.secret_key}
    for field, value in conf.items():
        spark.conf.set(PROPERTIES[field], value)
    assert driver_storage(spark, address).read_bytes("a") == b"right"
    numbers = spark.sparkContext.parallelize([1], 1)
    with secrets_on_executors(spark):
        assert numbers.map(lambda _: executor_storage(address).read_bytes("a")).collect() == [b"right"]
        assert _on_executors(spark) == [[*conf.values(), None]] * 2
    assert spark.sparkContext.getLocalProperty(PROPERTIES["secret"]) is None
    with pytest.raises(SourceError, match="no bucket 'nowhere'"):
        driver_storage(spark, "s3://nowhere/a")
    shown = {field: spark.sql(f"SET {PROPERTIES[field]}").collect()[0].value for field in conf}
    assert [field for field, value in shown.items() if "redacted" not in value] == ["endpoint"]
    assert s3.secret_key not in repr(access)
    with pytest.raises(TypeError, match="Cannot serialize a storage"):
        Storage(address, access).__reduce_ex__(2)


def test_keys_of_the_environment_reach_tasks_through_empty_names_and_may_change(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for turn in ("first", "second"):
        values = [f"{turn}-canary-{name}" for name in KEYS]
        for name, value in zip(KEYS, values, strict=True):
            monkeypatch.setenv(name, value)
        with secrets_on_executors(spark):
            assert _on_executors(spark) == [[values[3], *values[:3]]] * 2
            keys = [name for name in HIDDEN if name != KEY]
            assert all(spark.conf.get(name, None) is None for name in keys)  # SQL logs in another place
        assert not [value for value in values[:3] if value in caplog.text]
    assert spark.sparkContext.getLocalProperty(PROPERTIES["token"]) is None


def test_a_session_that_does_not_know_the_names_is_refused_where_s3_is_used(
    spark: SparkSession, s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket(keyspace)
    use(s3, monkeypatch)
    other = {field: name.replace("imagestrata", "elsewhere") for field, name in PROPERTIES.items()}
    monkeypatch.setattr("etl.secrets.PROPERTIES", other)
    monkeypatch.setattr("etl.secrets.HIDDEN", {name: "" for field, name in other.items() if field != "endpoint"})
    with secrets_on_executors(spark):  # a job without S3 continues
        assert [values[1:] for values in _on_executors(spark)] == [[None, None, None]] * 2
        with pytest.raises(EtlError, match=r"started with spark\.elsewhere\.s3\.access\.key, .*etl\.secrets\.HIDDEN"):
            driver_storage(spark, f"s3://{keyspace}")
    spark.conf.set(other["secret"], "canary")
    try:
        with pytest.raises(EtlError, match="Found: a session without"), secrets_on_executors(spark):
            pass
    finally:
        spark.conf.unset(other["secret"])


@pytest.mark.parametrize("name", [PASSWORD, "spark.cassandra.connection.ssl.keyStore.password"])
def test_passwords_that_are_set_in_a_running_session_are_refused(spark: SparkSession, name: str) -> None:
    spark.conf.set(name, "canary")
    try:
        for use_it in (Control.from_spark, lambda spark: secrets_on_executors(spark).__enter__()):
            with pytest.raises(EtlError, match=f"started with {name}") as caught:
                use_it(spark)
            assert "canary" not in str(caught.value)
    finally:
        spark.conf.unset(name)


def test_a_redaction_that_misses_our_names_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.redaction.regex", "(?i)passphrase")
    check_hidden(conf)  # there is nothing to hide
    conf.set(PASSWORD, "canary").set("spark.imagestrata.s3.secret.key", "")
    with pytest.raises(EtlError, match=r"hides spark\.cassandra\.auth\.password in .*Found: '\(\?i\)passphrase'"):
        check_hidden(conf)
    check_hidden(conf.set("spark.redaction.regex", r"auth\.PASSWORD\z|auth\.password\z"))  # in Java's syntax
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    with pytest.raises(EtlError, match=r"hides fs\.s3a\.secret\.key, spark\.imagestrata\.s3\.secret\.key in "):
        check_hidden(conf)
    check_hidden(conf.set("spark.redaction.regex", "(?i)secret|password|token|access[.]?key"))
    check_hidden(conf.set("spark.redaction.regex", "(?i)card|secret|password|token|access[.]?key"))
