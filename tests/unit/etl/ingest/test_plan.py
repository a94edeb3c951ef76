"""Options of an ingest: bad ones are refused before anything starts."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.ingest.plan import IngestPlan, Tolerance
from etl.ingest.writing.tasks import task_count
from etl.sources.plan import SourcePlan
from etl.tables.runs import ingest_time, new_ingest_id
from schemas import Columns, TableName

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3", "at most 3 of 30 files rejected"),
        ("1%", "at most 1% of 30 files rejected, which is none"),
        ("12.5%", "at most 12.5% of 30 files rejected, which is 3"),
    ],
)
def test_the_limit_of_rejected_files_is_said_as_it_was_given(text: str, words: str) -> None:
    assert Tolerance.parse(text).limit(30) == words


FOLDER = {"target": "out", "data_table": None, "metadata_table": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata_table": DATA}, "two tables"),
        ({"data_table": TableName("ks", "quarantine")}, "is reserved"),
        ({"metadata_table": TableName("ks", "classes")}, "is reserved"),
        ({"columns": Columns(id="path")}, "no other metadata column"),
        ({"columns": Columns(label="SHA256")}, "no other metadata column"),
        ({"dataset": "a\0b"}, "printable"),
        ({"replication": "0"}, "replication"),
        ({"prune_count": 3}, "--prune with"),
        ({"ttl": 630_720_001}, "at most 630,720,000 seconds"),
        ({**FOLDER, "ttl": 5}, "--ttl with tables"),
        ({**FOLDER, "restore_deleted": True}, "--restore-deleted with tables"),
        ({**FOLDER, "keep_replaced": True}, "--keep-replaced with tables"),
        ({"keep_replaced": True, "ttl": 60}, "--keep-replaced for images that do not expire. Found: --ttl"),
        (
            {"keep_replaced": True, "metadata_table": TableName("ks", "data_history")},
            "Wanted ks.data_history for replaced bytes of ks.data. Found: a table of ks.data_history of this name",
        ),
        ({**FOLDER, "prune": True}, "--prune with tables"),
        ({"target": "out"}, "both"),
        ({**FOLDER, "columns": Columns(id="patch_id")}, "--id-col with tables"),
        ({**FOLDER, "replication": "3"}, "--replication with tables"),
        ({"replication": "3", "create": False}, "--no-create"),
        ({"ingest_id": uuid.UUID(int=0)}, "time-based"),
        ({"ingest_id": uuid.UUID("7c743c2e-685c-55f2-9f8b-e10df2a8a6a6")}, "time-based"),
    ],
)
def test_invalid_options_are_refused(tree: Path, options: dict[str, object], message: str) -> None:
    options = {"data_table": DATA, "metadata_table": METADATA, **options}
    with pytest.raises(ValueError, match=message):
        IngestPlan(source=SourcePlan(address=str(tree)), **options)  # type: ignore[arg-type]


def test_ingest_ids_contain_the_time_and_not_the_machine() -> None:
    before = datetime.now(UTC)
    first, second = new_ingest_id(), new_ingest_id()
    assert abs((ingest_time(first) - before).total_seconds()) < 5
    assert first.version == 1
    assert first.node != second.node
    assert first.node >> 40 & 1  # the multicast bit: not the address of a machine
    assert ingest_time(uuid.UUID("13814000-1dd2-11b2-8000-000000000000")) == datetime(1970, 1, 1, tzinfo=UTC)


@given(rows=st.integers(1, 10**9), size=st.integers(0, 10**14), cores=st.integers(1, 4096))
def test_tasks_fill_whole_rounds_of_cores_and_stay_small(rows: int, size: int, cores: int) -> None:
    tasks = task_count(rows=rows, size=size, cores=cores)
    assert tasks == rows or tasks % cores == 0
    assert rows / tasks <= 2_000
    assert size / tasks <= 1 << 28 or tasks == rows
