"""Options of an ingest: what cannot be is refused before anything starts."""

import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.ingest import task_count
from etl.ingest_plan import IngestPlan, ingest_time, new_ingest_id
from etl.sources.plan import SourcePlan
from jobs import ingest as job
from schemas import Columns, TableName

JOB = Path(job.__file__)
DATA, METADATA = TableName("ks", "data"), TableName("ks", "metadata")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "file").touch()
    return tmp_path


def test_the_dataset_is_the_metadata_keyspace_unless_named(tree: Path) -> None:
    plan = IngestPlan(
        source=SourcePlan(address=str(tree)), data_table=TableName("blobs", "data"), metadata_table=METADATA
    )
    assert plan.dataset == "ks"
    assert (
        IngestPlan(source=SourcePlan(address=str(tree)), data_table=DATA, metadata_table=METADATA, dataset="x").dataset
        == "x"
    )


def test_the_source_is_its_real_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "link ü").symlink_to(tree / "train")
    monkeypatch.chdir(tree)
    plan = IngestPlan(source=SourcePlan(address="link ü"), data_table=DATA, metadata_table=METADATA)
    assert plan.source_name == (tree / "train").resolve().as_uri()


FOLDER = {"target": "out", "data_table": None, "metadata_table": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata_table": DATA}, "two tables"),
        ({"data_table": TableName("ks", "quarantine")}, "kept for our own"),
        ({"metadata_table": TableName("ks", "classes")}, "kept for our own"),
        ({"columns": Columns(id="path")}, "no other use"),
        ({"columns": Columns(label="SHA256")}, "no other use"),
        ({"dataset": "a\0b"}, "printable"),
        ({"replication": "0"}, "replication"),
        ({"near_duplicates": True, "resume": True}, "every picture"),
        ({"target": "out"}, "both"),
        ({**FOLDER, "columns": Columns(id="patch_id")}, "--id-col with tables"),
        ({**FOLDER, "replication": "3"}, "--replication with tables"),
        ({"replication": "3", "create": False}, "--no-create"),
        ({"ingest_id": uuid.UUID(int=0)}, "time-based"),
        ({"ingest_id": uuid.UUID("7c743c2e-685c-55f2-9f8b-e10df2a8a6a6")}, "time-based"),
    ],
)
def test_options_that_cannot_be(tree: Path, options: dict[str, object], message: str) -> None:
    options = {"data_table": DATA, "metadata_table": METADATA, **options}
    with pytest.raises(ValueError, match=message):
        IngestPlan(source=SourcePlan(address=str(tree)), **options)  # type: ignore[arg-type]


def test_ingest_ids_tell_the_time_and_not_the_machine() -> None:
    before = datetime.now(UTC)
    first, second = new_ingest_id(), new_ingest_id()
    assert abs((ingest_time(first) - before).total_seconds()) < 5
    assert first.version == 1
    assert first.node != second.node
    assert first.node >> 40 & 1  # marked as no machine's address
    assert ingest_time(uuid.UUID("13814000-1dd2-11b2-8000-000000000000")) == datetime(1970, 1, 1, tzinfo=UTC)


@given(rows=st.integers(1, 10**9), size=st.integers(0, 10**14), cores=st.integers(1, 4096))
def test_tasks_are_whole_rounds_and_never_too_large(rows: int, size: int, cores: int) -> None:
    tasks = task_count(rows=rows, size=size, cores=cores)
    assert tasks == rows or tasks % cores == 0
    assert rows / tasks <= 2_000
    assert size / tasks <= 1 << 28 or tasks == rows


ARGUMENTS = ["--data-table", "ks.data", "--metadata-table", "ks.metadata"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["gone", *ARGUMENTS],
        [".", *ARGUMENTS, "--split-subdir=val"],
        [".", "--data-table", "ks", "--metadata-table", "ks.metadata"],
        [".", "--data-table", 'ks.data"; DROP KEYSPACE ks', "--metadata-table", "ks.metadata"],
        [".", *ARGUMENTS, "--id-col", 'id" uuid'],
        [".", *ARGUMENTS, "--ingest-id", "x"],
        [".", *ARGUMENTS, "--no-create", "--replication", "3"],
        [".", *ARGUMENTS, "--nonsense"],
    ],
)
def test_bad_arguments_are_exit_code_2(
    arguments: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree)
    with pytest.raises(SystemExit) as caught:
        job.main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_bad_arguments_start_no_jvm(tree: Path) -> None:
    """With no Java to be found, the exit code would be another if one were looked for."""
    environment = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, str(JOB), str(tree), "--data-table", "ks.data", "--metadata-table", "ks.Metadata"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "fold" in done.stderr
    assert "'ks.Metadata'" in done.stderr


def test_help_is_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        job.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "exit codes:\n  0  done" in text
    assert "  spark-submit jobs/ingest.py /data/imagenette --split-subdir train --split-subdir val \\\n" in text
