"""How storages are reached on the driver and in tasks: S3 endpoint and keys, which never stand in a closure or a plan.

They come from ``spark.imagestrata.s3.*`` (`PROPERTIES`), else from the ``AWS_*`` variables of the driver, and reach
executors as Spark's local properties, which Spark hides in its logs and pages. What neither says is for each machine's
own environment: variables, profiles, roles.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext
from pyspark.sql import SparkSession

from etl.errors import SourceError
from formats.errors import StorageError
from formats.s3 import S3Access, is_s3
from formats.storage import Storage

PROPERTIES = {
    "endpoint": "spark.imagestrata.s3.endpoint",
    "key": "spark.imagestrata.s3.access.key",
    "secret": "spark.imagestrata.s3.secret.key",
    "token": "spark.imagestrata.s3.session.token",
}
"""Spark's names for the fields of `S3Access`; Spark's own pattern for what is to be hidden fits the last three."""


@contextmanager
def secrets_on_executors(spark: SparkSession) -> Iterator[None]:
    """Let the tasks of jobs that are started inside this block, by this thread, know how to reach S3."""
    context, access = spark.sparkContext, _access(spark)
    before = {name: context.getLocalProperty(name) for name in PROPERTIES.values()}
    try:
        for field, name in PROPERTIES.items():
            context.setLocalProperty(name, getattr(access, field))
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None unsets


def driver_storage(spark: SparkSession, address: str) -> Storage:
    """The storage of an address, on the driver; asked whether it lets us in. Raises `SourceError` if not."""
    try:
        storage = Storage(address, _access(spark) if is_s3(address) else None)
        storage.check()
    except StorageError as error:
        raise SourceError(str(error)) from None
    return storage


def executor_storage(address: str) -> Storage:
    """The storage of an address, inside a task or on a driver without Spark. Raises `StorageError`."""
    task = TaskContext.get()
    if task is None or not is_s3(address):
        return Storage(address)
    return Storage(address, _merged({field: task.getLocalProperty(name) for field, name in PROPERTIES.items()}))


def _access(spark: SparkSession) -> S3Access:
    return _merged({field: spark.conf.get(name, None) for field, name in PROPERTIES.items()})


def _merged(given: dict[str, str | None]) -> S3Access:
    """What was given, else what the environment says; keys come from one of them only."""
    found = S3Access.from_environment()
    endpoint = given["endpoint"] or found.endpoint
    if given["key"] or given["secret"]:
        return S3Access(endpoint, given["key"], given["secret"], given["token"])
    return S3Access(endpoint, found.key, found.secret, found.token)
