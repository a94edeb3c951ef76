"""Secrets of S3 and Cassandra in a Spark session: where they come from, and how tasks get them without a trace.

S3 is reached by ``spark.imagestrata.s3.*`` (`PROPERTIES`), else by the ``AWS_*`` variables of the driver, else by what
each machine has: variables, profiles, roles. Tasks get what the driver has as Spark's local properties.

Spark writes local properties to its event log. It hides the values that ``spark.redaction.regex`` matches by name, but
only of names that the session's SparkConf has, too. So sessions start with the names of `HIDDEN`; their values need
not be there. A secret that the event log would show is refused.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.sql import SparkSession

from etl.errors import EtlError, SourceError
from formats.errors import StorageError
from formats.stores.s3 import S3Access, is_s3
from formats.stores.storage import Storage

PROPERTIES: Final = {
    "endpoint": "spark.imagestrata.s3.endpoint",
    "key": "spark.imagestrata.s3.access.key",
    "secret": "spark.imagestrata.s3.secret.key",
    "token": "spark.imagestrata.s3.session.token",
}
"""Spark's names for the fields of `S3Access`."""

HIDDEN: Final[dict[str, bool | float | int | str | None]] = {
    name: "" for field, name in PROPERTIES.items() if field != "endpoint"
}
"""What a session starts with so that its event log hides S3 keys: ``SparkSession.builder.config(map=HIDDEN)``."""

PASSWORD: Final = "spark.cassandra.auth.password"
"""The property with the password of Cassandra's user."""

_STORES = ("spark.cassandra.connection.ssl.keyStore.password", "spark.cassandra.connection.ssl.trustStore.password")
_REDACTION = "spark.redaction.regex"
_USUAL = "(?i)secret|password|token|access[.]?key"  # Spark's own
_OURS = ("spark.imagestrata.", "spark.cassandra.")
_OF_HADOOP = {"key": "fs.s3a.access.key", "secret": "fs.s3a.secret.key", "token": "fs.s3a.session.token"}
"""Under these names Spark itself writes the keys of ``AWS_*`` to its event log."""


def check_hidden(conf: SparkConf) -> None:
    """Raise `EtlError` if Spark's logs would show secrets of a configuration or of ``AWS_*``; needs Spark's JVM."""
    with _unlogged():
        pattern = conf.get(_REDACTION, _USUAL)
        if pattern is None or pattern == _USUAL:
            return
        names = {name for name, value in conf.getAll() if value and name.startswith(_OURS) and re.search(_USUAL, name)}
        found = S3Access.from_environment()
        for field, name in _OF_HADOOP.items():
            if getattr(found, field):
                names |= {name, PROPERTIES[field]}
        java: Any = SparkContext._jvm  # Java's expressions are not Python's
        own = java.java.util.regex.Pattern.compile(pattern)
        if shown := sorted(name for name in names if not own.matcher(name).find()):
            raise EtlError(
                f"Wanted a {_REDACTION} that hides {', '.join(shown)} in Spark's logs. Found: {pattern!r}. "
                f"Add Spark's own, {_USUAL!r}, to it."
            )


def password_of(spark: SparkSession) -> str | None:
    """The password of Cassandra's user. Raises `EtlError` if Spark's event log would show it or those of key stores."""
    with _unlogged():
        _check_session(spark, [name for name in (PASSWORD, *_STORES) if spark.conf.get(name, None)])
        return spark.conf.get(PASSWORD, None)


@contextmanager
def secrets_on_executors(spark: SparkSession) -> Iterator[None]:
    """Let the tasks of jobs that this thread starts inside the block know S3's keys and Cassandra's password.

    Keys from ``AWS_*`` stay away from a session that would show them; `driver_storage` refuses S3 there. Raises
    `EtlError` for secrets in the configuration that the event log would show.
    """
    context, access = spark.sparkContext, _access(spark)
    values = {PROPERTIES["endpoint"]: access.endpoint, PASSWORD: password_of(spark)}
    keys = _keys(access)
    if not _unknown(spark, keys):
        values |= {name: keys.get(name) for name in HIDDEN}
    with _unlogged():
        for name in HIDDEN:
            if (spark.conf.get(name, None) or None) != values.get(name):
                spark.conf.unset(name)  # else each SQL query of this session would put the empty value over ours
        before = {name: context.getLocalProperty(name) for name in values}
        _set(context, values)
    try:
        yield
    finally:
        with _unlogged():
            _set(context, before)


def driver_storage(spark: SparkSession, address: str) -> Storage:
    """The storage of an address, on the driver; asked whether it lets us in.

    Raises `SourceError` if not, and `EtlError` if Spark's event log would show its keys.
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
    """The storage of an address, inside a task or on a driver without Spark. Raises `StorageError`."""
    task = TaskContext.get()
    if task is None or not is_s3(address):
        return Storage(address)
    return Storage(address, _merged({field: task.getLocalProperty(name) for field, name in PROPERTIES.items()}))


def _access(spark: SparkSession) -> S3Access:
    with _unlogged():
        given = {field: spark.conf.get(name, None) for field, name in PROPERTIES.items()}
        _check_session(spark, [name for field, name in PROPERTIES.items() if name in HIDDEN and given[field]])
    return _merged(given)


def _keys(access: S3Access) -> dict[str, str]:
    """The keys that there are, by the names that are to be hidden."""
    found = {name: getattr(access, field) for field, name in PROPERTIES.items() if name in HIDDEN}
    return {name: value for name, value in found.items() if value}


def _merged(given: dict[str, str | None]) -> S3Access:
    """What was given, else what the environment says; keys come from one of them only."""
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
            "writes the values of other names to its event log. Found: one without. Put them into spark-defaults.conf "
            "or start the session with SparkSession.builder.config(...). Keys of AWS_* need the names alone: "
            "SparkSession.builder.config(map=etl.secrets.HIDDEN)."
        )


def _unknown(spark: SparkSession, names: Iterable[str]) -> list[str]:
    """Those of some names that the SparkConf of a session lacks. Raises `EtlError` as `check_hidden` does."""
    if not (wanted := list(names)):
        return []
    with _unlogged():
        conf = spark.sparkContext.getConf()
        check_hidden(conf)
        return [name for name in wanted if not conf.contains(name)]


def _set(context: SparkContext, values: dict[str, str | None]) -> None:
    for name, value in values.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None unsets


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep what is said to Spark out of the log of py4j, which has all of it where a program logs at DEBUG."""
    log = logging.getLogger("py4j")
    before = log.level
    log.setLevel(max(log.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        log.setLevel(before)
