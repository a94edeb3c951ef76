"""The start and the end of Spark: the versions that fit, and Ctrl-C, which ends a job and leaves no process behind."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from types import FrameType
from typing import TYPE_CHECKING, Any

from etl.errors import EtlError

if TYPE_CHECKING:  # pyspark is imported only when a job runs
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def spark_conf() -> "SparkConf":
    """Spark's configuration. Raises PySparkException if Java does not start, and EtlError for a Spark of another
    version.
    """
    from pyspark import SparkConf, SparkContext

    with interrupted_afterwards():  # SparkConf() reads spark-defaults.conf only once Java runs
        SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    check_versions(jvm.org.apache.spark.package.SPARK_VERSION(), _installed())
    return SparkConf()


def _installed() -> str:
    """The version of the installed pyspark; of the imported one if Spark was not installed as a Python package."""
    try:
        # What is imported says nothing: spark-submit puts the pyspark of SPARK_HOME on the path.
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        import pyspark

        return pyspark.__version__


def check_versions(spark: str, pyspark: str) -> None:
    """Raise `EtlError` if Spark, which SPARK_HOME can replace, does not fit pyspark or this Python."""
    home = os.environ.get("SPARK_HOME")
    place = f"Spark {spark}" + (f" in SPARK_HOME={home}" if home else "")
    if spark.startswith("3.") and sys.version_info >= (3, 12):
        python = ".".join(map(str, sys.version_info[:2]))
        raise EtlError(
            f"Wanted Python 3.11 for Spark {spark}. Found: Python {python}, with {place}. Unset SPARK_HOME, and "
            "PYTHONPATH if it has another pyspark, or run the job with Python 3.11."
        )
    if spark.split(".")[:2] != pyspark.split(".")[:2]:
        raise EtlError(
            f"Wanted Spark {pyspark}, the version of the installed pyspark. Found: {place}. Unset SPARK_HOME, or "
            f"install 'pyspark=={spark}'."
        )


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Let Ctrl-C wait until Spark has started; a second one does not wait."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            raise KeyboardInterrupt

    # A Java process whose Python ends while it starts never ends.
    signal.signal(signal.SIGINT, count)
    try:
        yield
    finally:
        # Afterwards, Ctrl-C raises KeyboardInterrupt at once: the handler of pyspark asks Java to cancel jobs, in the
        # middle of another question, which fails with other errors.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupts:
        raise KeyboardInterrupt


@contextmanager
def stopping(spark: "SparkSession") -> Iterator[None]:
    """Stop the session when a block ends, with its tasks. After Ctrl-C, what Spark says of that does not matter."""
    ending: tuple[type[Exception], ...] = ()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if is_usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except BaseException as error:
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        ending = (Exception,)  # spark-submit has had the same Ctrl-C, and may have ended
        with suppress(*ending):
            spark.sparkContext.setLogLevel("OFF")
        # Workers have had it, too. Their failure can come first, or Python drops the KeyboardInterrupt in a destructor.
        raise KeyboardInterrupt from None
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(*ending):
            spark.stop()
