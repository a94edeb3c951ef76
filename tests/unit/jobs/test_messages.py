"""Options of spark-submit after the script, and errors of Spark."""

import sys
from pathlib import Path

import pytest

from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from jobs.messages import spark_error


@pytest.mark.parametrize(
    ("job", "argv", "command"),
    [
        *(
            (job, ["/data", "--conf", "spark.ui.enabled=false"], "--conf spark.ui.enabled=false jobs/{}.py /data")
            for job in (ingest, split, shard, verify, cache_rows, featurize, relabel, delete)
        ),
        (split, ["--master", "local[2]", "/data", "--json"], "--master 'local[2]' jobs/{}.py /data --json"),
        (split, ["/data", "--packages=a:b:1", "--json"], "--packages=a:b:1 jobs/{}.py /data --json"),
        (split, ["--driver-memory", "4g", "--verbose", "/a b"], "--driver-memory 4g --verbose jobs/{}.py '/a b'"),
        (split, ["/data", "--conf"], "--conf jobs/{}.py /data"),
        (split, ["--conf", "spark.cassandra.auth.password=hush", "--conf", "spark.imagestrata.s3.secret.key=hush"],
         "--conf spark.cassandra.auth.password=... --conf spark.imagestrata.s3.secret.key=... jobs/{}.py"),
    ],
)  # fmt: skip
def test_options_of_spark_submit_after_the_script_get_the_corrected_command(
    job: object, argv: list[str], command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = job.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "argv", [str(Path("jobs", f"{name}.py").resolve())])
    with pytest.raises(SystemExit) as stopped:
        job.main(argv)  # type: ignore[attr-defined]
    assert stopped.value.code == 2
    option = next(word for word in argv if word.startswith("--")).partition("=")[0]
    assert capsys.readouterr().err == (
        f"{name}.py: error: {option} is an option of spark-submit and goes before the script: "
        f"spark-submit {command.format(name)}. See {name}.py --help.\n"
    )


TRACE = """Job aborted: Lost task 0.0: org.apache.spark.api.python.PythonException: Traceback (most \
recent call last):
  File "worker.py", line 1, in main
    import x

ValueError: the first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 2, in main
    import y
    ^^^^^^^^
{last}

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:572)
"""


@pytest.mark.parametrize("around", ["", "Caused by: org.apache.spark.SparkException: Task failed\nCaused by: "])
@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("KeyError: 'a'", "KeyError: 'a'"),
        ("MemoryError", "MemoryError"),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            "ModuleNotFoundError: No module named 'pyarrow'. Set PYSPARK_PYTHON to a Python that has it and "
            "the packages of imagestrata[spark]",
        ),
    ],
)
def test_an_error_of_a_python_worker_shows_the_last_line_of_its_traceback(around: str, last: str, shown: str) -> None:
    text = around + TRACE.format(last=last)
    assert spark_error(ValueError(text)) == f"Spark failed in a Python worker. Found: {shown}"


@pytest.mark.parametrize(
    "text",
    [
        "[USER_RAISED_EXCEPTION] Wanted a. Found: b. Do c. SQLSTATE: P0001",
        "Job aborted.\nCaused by: java.lang.RuntimeException: Wanted a. Found: b. Do c.\n\tat org.apache",
    ],
)
def test_an_error_that_a_query_raises_shows_its_message(text: str) -> None:
    assert spark_error(ValueError(text)) == "Wanted a. Found: b. Do c."


def test_a_spark_without_the_connector_is_reported_with_the_remedy() -> None:
    text = "Failed.\nCaused by: java.lang.ClassNotFoundException: org.apache.spark.sql.cassandra.DefaultSource"
    assert "unset SPARK_CONF_DIR" in spark_error(ValueError(text))


@pytest.mark.parametrize("cause", [
    'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
])  # fmt: skip
def test_a_spark_without_files_in_s3_is_reported_with_the_remedy(cause: str) -> None:
    assert "docs/running/spark.md says under S3" in spark_error(ValueError(f"In o1.parquet.\n: {cause}\n\tat x"))


def test_the_first_error_of_java_is_shown_if_it_has_no_cause() -> None:
    text = "An error occurred while calling o1.parquet.\n: java.io.IOException: no space\n\tat org.apache"
    assert spark_error(ValueError(text)) == "Spark failed. Found: java.io.IOException: no space"
