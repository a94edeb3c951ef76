"""Cheaper starts of jobs, for tests that start many: an archive of Spark's classes saves a third of the CPU time, and
Java's quick compiler alone a third of the rest. The slow one pays in jobs that run for minutes.

    python -m tests.support.spark_start

Java uses such an archive only if no folder on the class path has files, and Spark puts its configuration there. So
the configuration in `FOLDER` passes the environment's files by name, with an empty folder in their place.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from imagestrata.devstack.sparkconf import conf_folder

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "spark-start"
ARCHIVE = FOLDER / "classes.jsa"
OPTION = "IMAGESTRATA_TEST_ARCHIVE"
DEFAULTS = "IMAGESTRATA_TEST_DEFAULTS"  # of another checkout, whose demo has written its own
# Expressions over a few rows run faster interpreted: a ninth less CPU time for a job.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own settings, which users have."""

# spark-class reads this with its own arguments: the class that it runs is the first one, and `set` changes them.
SCRIPT = """{theirs}
if [ "$1" = org.apache.spark.deploy.SparkSubmit ]; then
  set -- "$1" --properties-file "${{{other}:-{defaults}}}" {interpreted} "${{@:2}}"
  SPARK_CONF_DIR="{empty}"
  SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -Dlog4j2.configurationFile={logging}"
  SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -XX:TieredStopAtLevel=1 ${{{option}:--XX:SharedArchiveFile={archive}}}"
fi
"""


def options(properties: Mapping[str, str]) -> list[str]:
    """Properties as options of spark-submit."""
    return [text for name, value in properties.items() for text in ("--conf", f"{name}={value}")]


def use() -> None:
    """Let the jobs that this process starts use the archive, if there is one."""
    if ARCHIVE.is_file():
        os.environ["SPARK_CONF_DIR"] = str(FOLDER)


def variables(configuration: Path) -> dict[str, str]:
    """The environment variables of a job with another configuration, and with the archive if there is one."""
    if ARCHIVE.is_file():
        return {"SPARK_CONF_DIR": str(FOLDER), DEFAULTS: str(configuration / "spark-defaults.conf")}
    return {"SPARK_CONF_DIR": str(configuration)}


def executors(options: str) -> dict[str, str]:
    """The properties of executors in their own processes, with these Java options, and the archive if there is one."""
    if not ARCHIVE.is_file():
        return {"spark.executor.extraJavaOptions": options}
    return {
        "spark.executor.extraJavaOptions": f"{options} -XX:SharedArchiveFile={ARCHIVE}",
        "spark.executorEnv.SPARK_CONF_DIR": str(FOLDER / "empty"),
    }


def write() -> None:
    """Write the archive and the configuration, unless they are newer than this file and the environment's."""
    theirs = conf_folder(Path(pyspark.__file__).parents[1])
    newest = max(path.stat().st_mtime for path in (*theirs.iterdir(), Path(__file__)))
    if " " in str(FOLDER) or (ARCHIVE.is_file() and ARCHIVE.stat().st_mtime > newest):
        return  # Spark does not read a script from a folder with a space
    ARCHIVE.unlink(missing_ok=True)
    empty, new = FOLDER / "empty", ARCHIVE.with_suffix(".new")
    empty.mkdir(parents=True, exist_ok=True)
    script = SCRIPT.format(
        theirs=(theirs / "spark-env.sh").read_text(encoding="utf-8"),
        other=DEFAULTS,
        interpreted=" ".join(options(INTERPRETED)),
        defaults=theirs / "spark-defaults.conf",
        logging=(theirs / "log4j2.properties").as_uri(),
        empty=empty,
        option=OPTION,
        archive=ARCHIVE,
    )
    (FOLDER / "spark-env.sh").write_text(script, encoding="utf-8")
    found = {"SPARK_CONF_DIR": str(FOLDER), OPTION: f"-XX:ArchiveClassesAtExit={new} -Xlog:cds=off"}
    command = ["spark-submit", str(ROOT / "tests" / "support" / "spark_classes.py")]
    subprocess.run(command, env={**os.environ, **found}, cwd=ROOT, check=True, stdout=sys.stderr)
    new.replace(ARCHIVE)


if __name__ == "__main__":
    write()
