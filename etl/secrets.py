"""Secrets for S3 and Cassandra in a Spark session: where they come from, and how tasks get them without a trace.

S3 credentials come from ``spark.imagestrata.s3.*`` (`PROPERTIES`), else from the ``AWS_*`` variables of the driver,
else from each machine: variables, profiles, roles. Tasks get the driver's credentials as Spark local properties.

Spark writes local properties to its event log. It redacts values whose names match ``spark.redaction.regex``, but only
for names that are also in the session's SparkConf. So sessions start with the names in `HIDDEN`, with or without
values. A secret that the event log would show is refused.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.sql import SparkSession

from etl.errors import EtlError, SourceError
from etl.py4j_log import unlogged
from etl.tls import STORE_PASSWORDS, WITH_CLIENT, key_of
from formats.errors import StorageError
from formats.stores.s3 import S3Access, is_s3
from formats.stores.storage import Storage

PROPERTIES: Final = {
    "endpoint": "spark.imagestrata.s3.endpoint",
    "key": "spark.imagestrata.s3.access.key",
    "secret": "spark.imagestrata.s3.secret.key",
    "token": "spark.imagestrata.s3.session.token",
}
"""The Spark properties for the fields of `S3Access`."""

PASSWORD: Final = "spark.cassandra.auth.password"  # the property with the password of Cassandra's user
KEY: Final = "spark.imagestrata.cassandra.secret.key"  # the local property with the client's key of TLS, in PEM

HIDDEN: Final[dict[str, bool | float | int | str | None]] = {
    KEY: "",
    **{name: "" for field, name in PROPERTIES.items() if field != "endpoint"},
}
"""Configuration that makes the event log hide keys: ``SparkSession.builder.config(map=HIDDEN)``."""

_REDACTION = "spark.redaction.regex"
_USUAL = "(?i)secret|password|token|access[.]?key"  # Spark's default
_OURS = ("spark.imagestrata.", "spark.cassandra.")
_OF_HADOOP = {"key": "fs.s3a.access.key", "secret": "fs.s3a.secret.key", "token": "fs.s3a.session.token"}
"""The names under which Spark writes the keys from ``AWS_*`` to its event log."""


def check_hidden(conf: SparkConf) -> None:
    """Raise `EtlError` if Spark's logs would show secrets of a configuration or of ``AWS_*``. Needs Spark's JVM."""
    with unlogged():
        pattern = conf.get(_REDACTION, _USUAL)
        if pattern is None or pattern == _USUAL:
            return
        names = {name for name, value in conf.getAll() if value and name.startswith(_OURS) and re.search(_USUAL, name)}
        if (conf.get(WITH_CLIENT) or "false").lower() != "false":
            names.add(KEY)
        found = S3Access.from_environment()
        for field, name in _OF_HADOOP.items():
            if getattr(found, field):
                names |= {name, PROPERTIES[field]}
        java: Any = SparkContext._jvm  # regular expressions differ between Java and Python
        own = java.java.util.regex.Pattern.compile(pattern)
        if shown := sorted(name for name in names if not own.matcher(name).find()):
            raise EtlError(
                f"Wanted a {_REDACTION} that hides {', '.join(shown)} in Spark's logs. Found: {pattern!r}. "
                f"Add Spark's default, {_USUAL!r}, to it."
            )


def password_of(spark: SparkSession) -> str | None:
    """The password of the Cassandra user. Raises `EtlError` if the event log would show it or those of key stores."""
    with unlogged():
        _check_session(spark, [name for name in (PASSWORD, *STORE_PASSWORDS) if spark.conf.get(name, None)])
        return spark.conf.get(PASSWORD, None)


def client_key_of(spark: SparkSession) -> str | None:
    """The client's key of TLS, in PEM. Raises `EtlError` if the event log would show it."""
    key = key_of(spark)
    _check_session(spark, [KEY] if key is not None else [])
    return key


@contextmanager
def secrets_on_executors(spark: SparkSession) -> Iterator[None]:
    """Pass S3 keys, and the Cassandra password and key of TLS, to tasks of jobs that this thread starts inside the
    block. Raises `EtlError` for secrets in the configuration that the event log would show.
    """
    context, access = spark.sparkContext, _access(spark)
    values = {PROPERTIES["endpoint"]: access.endpoint, PASSWORD: password_of(spark), KEY: client_key_of(spark)}
    keys = _keys(access)
    # Keys from AWS_* that the event log would show are not passed; `driver_storage` then refuses S3.
    if not _unknown(spark, keys):
        values |= {name: keys.get(name) for name in HIDDEN if name != KEY}
    with unlogged():
        for name in HIDDEN:
            if (spark.conf.get(name, None) or None) != values.get(name):
                # otherwise each SQL query of this session would overwrite ours with an empty value
                spark.conf.unset(name)
        before = {name: context.getLocalProperty(name) for name in values}
        _set(context, values)
    try:
        yield
    finally:
        with unlogged():
            _set(context, before)


def driver_storage(spark: SparkSession, address: str) -> Storage:
    """Open the storage of an address on the driver. Raises `SourceError` if access fails, and `EtlError` if Spark's
    event log would show its keys.
    """
    access = None
    if is_s3(address):
        access = _access(spark)
        _check_session(spark, _keys(access))
    try:
        storage = Storage(address, access)
        storage.check()
    except StorageError as error:
        raise SourceError(str(error)) from None
    return storage


def executor_storage(address: str) -> Storage:
    """Open the storage of an address in a task, or on a driver without Spark. Raises `StorageError`."""
    task = TaskContext.get()
    if task is None or not is_s3(address):
        return Storage(address)
    return Storage(address, _merged({field: task.getLocalProperty(name) for field, name in PROPERTIES.items()}))


def _access(spark: SparkSession) -> S3Access:
    with unlogged():
        given = {field: spark.conf.get(name, None) for field, name in PROPERTIES.items()}
        _check_session(spark, [name for field, name in PROPERTIES.items() if field != "endpoint" and given[field]])
    return _merged(given)


def _keys(access: S3Access) -> dict[str, str]:
    """The given keys, by the names that must be hidden."""
    found = {name: getattr(access, field) for field, name in PROPERTIES.items() if field != "endpoint"}
    return {name: value for name, value in found.items() if value}


def _merged(given: dict[str, str | None]) -> S3Access:
    """Complete the given values from the environment. Both keys come from the same place."""
    found = S3Access.from_environment()
    endpoint = given["endpoint"] or found.endpoint
    if given["key"] or given["secret"]:
        return S3Access(endpoint, given["key"] or None, given["secret"] or None, given["token"] or None)
    return S3Access(endpoint, found.key, found.secret, found.token)


def _check_session(spark: SparkSession, names: Iterable[str]) -> None:
    """Raise `EtlError` if the event log of a session would show the values of these names."""
    if shown := _unknown(spark, names):
        raise EtlError(
            f"Wanted a Spark session that was started with {', '.join(shown)} in its configuration, because Spark "
            "writes the values of other names to its event log. Found: a session without. Set them in "
            "spark-defaults.conf "
            "or start the session with SparkSession.builder.config(...). For keys from AWS_*, the names are enough: "
            "SparkSession.builder.config(map=etl.secrets.HIDDEN)."
        )


def _unknown(spark: SparkSession, names: Iterable[str]) -> list[str]:
    """The names that the SparkConf of a session lacks. Raises `EtlError` as `check_hidden` does."""
    if not (wanted := list(names)):
        return []
    with unlogged():
        conf = spark.sparkContext.getConf()
        check_hidden(conf)
        return [name for name in wanted if not conf.contains(name)]


def _set(context: SparkContext, values: dict[str, str | None]) -> None:
    for name, value in values.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None unsets
