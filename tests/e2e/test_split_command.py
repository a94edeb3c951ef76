"""jobs/split.py as a separate program: each failure is one line with the cause."""

import os
import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).resolve().parents[2] / "jobs" / "split.py"
GOOD = ["-d", "ks.data", "-m", "ks.metadata", "-o", "unused"]


def command(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the job as a separate program, from another folder."""
    return subprocess.run(
        [sys.executable, str(JOB), *args],
        env={**os.environ, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_bad_arguments_and_help_need_no_java(tmp_path: Path) -> None:
    nowhere = {"JAVA_HOME": str(tmp_path), "PATH": ""}
    for args in (GOOD, []):  # otherwise tables and output would come from Spark's settings
        done = command(*args, "-r", "a,b", **nowhere)
        assert done.returncode == 2, done.stderr
        assert "Wanted split ratios as numbers" in done.stderr
    assert command("--help", **nowhere).stdout.startswith("usage: split.py")


def test_without_a_java_the_last_line_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").touch()
    for args in (GOOD, ["-r", "8,2"]):
        done = command(*args, JAVA_HOME=str(tmp_path), SPARK_CONF_DIR=str(tmp_path))
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "on Java 17. Found: it did not start" in done.stderr.splitlines()[-1]
        assert str(tmp_path) in done.stderr.splitlines()[-1]
