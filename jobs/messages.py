"""The messages of jobs: why one failed, and where an option of spark-submit belongs."""

import os
import re
import shlex
import sys
from collections.abc import Sequence

NO_JAVA = (
    "Wanted Spark to start on Java 17. Found: it did not start; its own messages are above. "
    f"JAVA_HOME is {os.environ.get('JAVA_HOME') or 'not set'}. Set it to a Java 17, or run `make setup` again."
)
NO_CONNECTOR = (
    "Wanted the Spark Cassandra Connector among Spark's jars. Found: none. In a checkout, unset SPARK_CONF_DIR and "
    "SPARK_HOME; elsewhere, submit with --packages, as docs/running/spark.md says."
)
NO_S3_FILES = (
    "Wanted hadoop-aws among Spark's jars: Spark itself writes and reads Parquet of splits and rows in S3. "
    "Found: no file system for the scheme s3. Submit as docs/running/spark.md says under S3, or use a folder."
)
# fmt: off
_WITH_VALUE = {
    "--archives", "--class", "--conf", "--deploy-mode", "--driver-class-path", "--driver-cores",
    "--driver-java-options", "--driver-library-path", "--driver-memory", "--exclude-packages", "--executor-cores",
    "--executor-memory", "--files", "--jars", "--keytab", "--master", "--name", "--num-executors", "--packages",
    "--principal", "--properties-file", "--proxy-user", "--py-files", "--queue", "--repositories",
    "--total-executor-cores", "-c",
}
# fmt: on
_ALONE = {"--supervise", "--verbose"}
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
# by `raise_error`, in Spark 4 and 3.5
_RAISED = re.compile(r"(?:_EXCEPTION\]|RuntimeException:) (Wanted .+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_WORKER_PYTHON = "Set PYSPARK_PYTHON to a Python that has it and the packages of imagestrata[spark]"
_SECRET = re.compile(r"((?:[^\s=]*)(?:secret|password|token|access[.]?key)[^\s=]*=).+", re.IGNORECASE)


def not_installed(error: ModuleNotFoundError) -> str:
    """Which library of the extra `spark` is missing, and how to install it."""
    library = (error.name or "").partition(".")[0]
    return f"Wanted the library {library}. Found: it is not installed. Run: pip install 'imagestrata[spark]'"


def spark_error(error: Exception) -> str:
    """One line for an error of Spark: our own message if an executor raised it, else the innermost cause. If that is a
    traceback of a Python worker, its last line is shown.
    """
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        return NO_JAVA
    if "ClassNotFoundException: org.apache.spark.sql.cassandra" in text:
        return NO_CONNECTOR
    if re.search(r'No FileSystem for scheme "?s3|ClassNotFoundException: .*\bs3a\.S3AFileSystem', text):
        return NO_S3_FILES
    return executor_error(text) or _worker_error(text) or f"Spark failed. {_cause(error)}"


def executor_error(text: str) -> str | None:
    """Our own message in the traces of an error that an executor or a query raised; None if there is none."""
    found = re.findall(r"^(?:etl|formats|schemas)\.errors\.\w+: (.+)$", text, re.MULTILINE) or _RAISED.findall(text)
    return found[-1] if found else None


def _worker_error(text: str) -> str | None:
    """The last line of the last traceback of a Python worker, and how to mend a missing library; None without one."""
    found = _TRACEBACK.findall(text)
    if not found:
        return None
    mend = f" {_WORKER_PYTHON}" if found[-1].startswith("ModuleNotFoundError") else ""
    return f"Spark failed in a Python worker. Found: {found[-1].strip()}{'.' if mend else ''}{mend}"


def _cause(error: Exception) -> str:
    """The innermost cause of one of Spark's own errors, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    return f"Found: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"


def misplaced(name: str, argv: Sequence[str]) -> str | None:
    """The message for an option of spark-submit after the script, with the corrected command; None for others."""
    if name not in _WITH_VALUE | _ALONE:
        return None
    moved, kept = _parted(argv)
    words = ["spark-submit", *map(_hidden, moved), _script(), *kept]
    return f"{name} is an option of spark-submit and goes before the script: {shlex.join(words)}"


def _parted(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line that belong to spark-submit, and the others."""
    moved: list[str] = []
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in _WITH_VALUE | _ALONE:
            kept.append(word)
            continue
        moved.append(word)
        if name in _WITH_VALUE and not equals:
            moved.extend(value for value in (next(words, None),) if value is not None)
    return moved, kept


def _hidden(word: str) -> str:
    return _SECRET.sub(r"\1...", word)


def _script() -> str:
    """The path of the job, relative to the current folder if it is below it."""
    path = sys.argv[0]
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return path if near.startswith("..") else near
