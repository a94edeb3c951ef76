"""Ctrl-C while Spark starts and runs: the job ends with it, and leaves no process behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from etl.versions import check_versions

if TYPE_CHECKING:  # pyspark is imported only when a job runs
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def spark_conf() -> "SparkConf":
    """Spark's configuration. Raises PySparkException if Java does not start, and EtlError for a Spark of another
    version.
    """
    import pyspark
    from pyspark import SparkConf, SparkContext

    with interrupted_afterwards():  # SparkConf() reads spark-defaults.conf only once Java runs
        SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    check_versions(jvm.org.apache.spark.package.SPARK_VERSION(), pyspark.__version__)
    return SparkConf()


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
    try:
        yield
    except KeyboardInterrupt:
        ending = (Exception,)  # spark-submit has had the same Ctrl-C, and may have ended
        with suppress(*ending):
            spark.sparkContext.setLogLevel("OFF")
        raise
    finally:
        with suppress(*ending):
            spark.stop()
