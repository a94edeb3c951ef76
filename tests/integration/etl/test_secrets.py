"""Keys of S3 in a Spark session: tasks get them, and no page, log or closure shows them."""

import pytest
from pyspark.sql import SparkSession

from devstack.s3 import S3
from etl.errors import SourceError
from etl.secrets import PROPERTIES, driver_storage, executor_storage, secrets_on_executors
from formats.s3 import S3Access
from formats.storage import Storage
from tests.support.services import fresh_name


def test_secrets_reach_tasks_and_appear_nowhere_else(
    spark: SparkSession, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket(bucket := fresh_name("bucket"))
    address, access = f"s3://{bucket}/x", S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    Storage(address, access).write_bytes("a", b"right")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    conf = {"endpoint": s3.endpoint, "key": s3.access_key, "secret": s3.secret_key}
    for field, value in conf.items():
        spark.conf.set(PROPERTIES[field], value)
    try:
        assert driver_storage(spark, address).read_bytes("a") == b"right"
        numbers = spark.sparkContext.parallelize([1], 1)
        with secrets_on_executors(spark):
            assert numbers.map(lambda _: executor_storage(address).read_bytes("a")).collect() == [b"right"]
        assert spark.sparkContext.getLocalProperty(PROPERTIES["secret"]) is None
        with pytest.raises(SourceError, match="no bucket 'nowhere'"):
            driver_storage(spark, "s3://nowhere/a")
        shown = {field: spark.sql(f"SET {PROPERTIES[field]}").collect()[0].value for field in conf}
        assert [field for field, value in shown.items() if "redacted" not in value] == ["endpoint"]
    finally:
        for field in conf:
            spark.conf.unset(PROPERTIES[field])
    assert s3.secret_key not in repr(access)
    with pytest.raises(TypeError, match="the address of a storage in a closure"):
        Storage(address, access).__reduce_ex__(2)
