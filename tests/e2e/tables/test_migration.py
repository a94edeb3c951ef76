"""Tables as earlier versions wrote them are migrated, and are then like tables that this version wrote."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError, EtlError, TableError
from etl.ingest.plan import IngestPlan
from etl.migration import migration
from etl.migration.plan import MigrationPlan
from etl.splits.plan import SplitPlan
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import recorded_runs
from etl.verify.plan import VerifyPlan
from formats import open_split
from jobs import ingest, split, verify
from jobs.messages import spark_error
from schemas import TableName
from schemas.tables import Columns
from tests.support.archives import mask
from tests.support.earlier_tables import VERSION_01, WITH_RUNS, as_earlier, insert_row
from tests.support.services import fresh_name
from tests.support.trees import PlanOf, by_name, picture, plan_maker, plant, tables_of, tree

Migrate = Callable[..., migration.MigrationReport]


@pytest.fixture
def migrate(spark: SparkSession) -> Migrate:
    """Migrates the tables of a plan, with more options."""

    def act(plan: IngestPlan, **options: Any) -> migration.MigrationReport:
        of_tables = {"metadata_table": plan.tables.metadata, "data_table": plan.tables.data, "dataset": plan.dataset}
        return migration.run(spark, plan=MigrationPlan(**{**of_tables, **options}))

    return act


def fingerprints(spark: SparkSession, plan: IngestPlan, out: Path) -> list[tuple[Any, ...]]:
    """The fingerprints of a split of the tables of a plan, of rows and of checksums."""
    tables = {"data_table": plan.tables.data, "metadata_table": plan.tables.metadata}
    split.run(spark, plan=SplitPlan(**tables, out=str(out), ratios=(Fraction(1), Fraction(1))))
    return [(part.fingerprint, part.checksums) for part in open_split(str(out)).manifest.splits]


def problems(spark: SparkSession, plan: IngestPlan) -> dict[str, int]:
    """What a verification with the source finds."""
    tables = {"data_table": plan.tables.data, "metadata_table": plan.tables.metadata}
    return dict(verify.run(spark, plan=VerifyPlan(**tables, ingest=plan, check="hashes")).problems)


def test_tables_of_version_01_become_like_new_ones(
    spark: SparkSession, control: Control, plan_of: PlanOf, migrate: Migrate, tmp_path: Path
) -> None:
    plant(tree(tmp_path / "tree", each=2), {b"train/caf\xe9/5\xff.png": picture(5), "val/a/bad.png": b"bad"})
    new = replace(plan_of(tmp_path / "tree"), dataset="digits")
    ingest.run(spark, plan=new)
    old = as_earlier(control, new, fresh_name("old"))
    times = control.execute(f"SELECT WRITETIME(path) AS time FROM {new.metadata_table}")
    ahead = max(row.time for row in times) + 60_000_000
    (row, *_) = control.execute(f"SELECT id, path FROM {old.metadata_table}")
    control.execute(
        f"UPDATE {old.metadata_table} USING TIMESTAMP {ahead} SET path = ? WHERE id = ?", (row.path, row.id)
    )
    advice = rf"Wanted tables of version 0\.2\. Found: .* the columns since, xxhash64.*migrate -m {old.metadata_table}`"
    for read in (lambda: fingerprints(spark, old, tmp_path / "no"), lambda: ingest.run(spark, plan=old),
                 lambda: problems(spark, old)):  # fmt: skip
        with pytest.raises(TableError, match=advice):
            read()

    before = tables_of(control, old)
    planned = migrate(old, dry_run=True, checksums=True)
    assert "would fill in since of 13 rows" in str(planned)
    assert (tables_of(control, old), control.columns(TableName(old.tables.data.keyspace, "tables"))) == (before, None)
    done = migrate(old, checksums=True)
    assert done.steps == planned.steps
    assert [step.split()[0] for step in done.steps] == ["add", "create", "create", "record", "record", "fill", "read"]
    assert str(migrate(old)) == f"{old.metadata_table}: nothing to do"

    assert tables_of(control, old) == tables_of(control, new)
    assert {row.since for row in control.execute(f"SELECT since FROM {old.metadata_table}")} == {0}
    assert fingerprints(spark, old, tmp_path / "old") == fingerprints(spark, new, tmp_path / "new")
    assert problems(spark, old) == problems(spark, new) == {}
    again = ingest.run(spark, plan=replace(old, resume=True))
    assert (again.images, again.already_there) == (0, 13)
    plant(tmp_path / "tree", {"train/a/0.png": picture(99)})
    later = ingest.run(spark, plan=replace(old, overwrite=True))
    assert later.clock is not None
    assert later.clock > ahead
    assert by_name(control, old)["train/a/0.png"]["data"] == picture(99)


class Killed(Exception):
    """Stands for a kill."""


@contextmanager
def killed_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> Iterator[list[str]]:
    """Kill a migration after this many statements that change something; yields those that ran."""
    ran: list[str] = []

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **options: Any) -> Any:
            found = act(*args, **options)
            ran.append(getattr(act, "__name__", "fill"))
            if len(ran) == writes:
                raise Killed
            return found

        return write

    with monkeypatch.context() as patch:
        patch.setattr(Control, "define", counted(Control.define))
        patch.setattr(Control, "apply", counted(Control.apply))
        fill = migration.fill
        patch.setattr(migration, "fill", counted(lambda rows, **more: fill(rows.limit(1), **more)))  # a killed task
        yield ran


def test_a_migration_that_is_killed_after_any_statement_is_finished_by_the_next_one(
    spark: SparkSession, control: Control, plan_of: PlanOf, migrate: Migrate, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    new = replace(plan_of(tree(tmp_path / "tree", splits=("train",), each=1), splits=("train",)), dataset="digits")
    ingest.run(spark, plan=new)
    old = as_earlier(control, new, fresh_name("old"))
    killed: list[str] = []
    for _ in range(6):
        with killed_after(monkeypatch, 1) as ran, pytest.raises(Killed):
            migrate(old, checksums=True)
        killed += ran
    # its columns, tables, ingests; the run; the record; the rows of a task
    assert killed == ["define"] * 3 + ["apply"] * 2 + ["<lambda>"]
    assert recorded_runs(control, old.tables.metadata)[0].state == "started"
    with pytest.raises(EtlError, match=r"^Wanted tables of version 0\.2\. .* of an earlier version, without since"):
        table = MetadataTable.open(spark, control, old.tables.metadata)
        try:
            table.rows(["since"]).collect()
        except Exception as error:
            raise EtlError(spark_error(error)) from None
    finished = migrate(old, checksums=True)
    assert [step.partition(" of ")[0] for step in finished.steps] == [
        "finish 1 interrupted migration", "fill in since", "read 2 images",
    ]  # fmt: skip
    assert [(run.kind, run.state) for run in recorded_runs(control, old.tables.metadata)] == [("migrate", "finished")]
    assert migrate(old).steps == []
    assert tables_of(control, old) == tables_of(control, new)


def test_rows_get_the_last_run_of_their_ingest_with_the_time_and_the_end_of_the_row(
    spark: SparkSession, control: Control, plan_of: PlanOf, migrate: Migrate, tmp_path: Path
) -> None:
    new = plan_of(tree(tmp_path / "tree", splits=("train",), each=1), splits=("train",))
    new = replace(new, dataset="digits")
    ingest.run(spark, plan=new)
    old = as_earlier(control, new, fresh_name("old"), definitions=VERSION_01 + WITH_RUNS)
    keyspace, name = old.tables.metadata.keyspace, old.metadata_table
    (first, *_) = control.execute(f"SELECT ingest_id FROM {name}")
    runs = TableName(keyspace, "ingests")
    for sequence in (1, 2):
        values = {"table_name": "metadata", "sequence": sequence, "clock": 1_700_000_000_000_000 + sequence * 10**6,
                  "kind": "ingest", "ingest_id": first.ingest_id, "dataset": "digits", "source": "/tree"}  # fmt: skip
        insert_row(control, runs, values)
    control.execute(f"UPDATE {runs} SET last = 2 WHERE table_name = 'metadata'")
    one, two, three = control.execute(f"SELECT * FROM {name}")
    for image, ingest_id, ttl in ((two, uuid.uuid1(), 0), (three, first.ingest_id, 5000)):
        values = {**image._asdict(), "ingest_id": ingest_id}
        insert_row(control, old.tables.metadata, values, time=1_700_000_001_500_000, ttl=ttl)
    insert_row(
        control, TableName(keyspace, "metadata_history"), {"id": one.id, "until": 2, "since": 1, "kind": "replaced"}
    )

    with pytest.raises(TableError, match=rf"{runs} lacks the columns newest, state, ttl"):
        recorded_runs(control, old.tables.metadata)
    done = migrate(old)
    assert done.left == [f"left: 3 rows of {name} have no checksum, so that trainings read them from a quorum; "
                         "--checksums reads their images once and stores them"]  # fmt: skip
    query = f"SELECT id, since, WRITETIME(since) AS time, TTL(since) AS ttl, WRITETIME(path) AS of_row FROM {name}"
    found = {row.id: row for row in control.execute(query)}
    assert {image: row.since for image, row in found.items()} == {one.id: 2, two.id: 0, three.id: 2}
    assert all(row.time == row.of_row for row in found.values())
    assert found[one.id].ttl is found[two.id].ttl is None
    assert 4000 < found[three.id].ttl <= 5000
    table = MetadataTable.open(spark, control, old.tables.metadata)
    assert [(run.sequence, run.state, run.ttl) for run in table.runs] == [(2, None, 0), (1, None, 0)]
    assert [(row.since, row.kept) for row in table.replaced().collect()] == [(1, None)]
    # the whole keyspace, once more
    assert migration.run(spark, plan=MigrationPlan(keyspace=keyspace)).steps == []


def test_a_checksum_of_a_mask_is_stored_unless_the_image_is_another_one(
    spark: SparkSession, control: Control, migrate: Migrate, tmp_path: Path
) -> None:
    images = {f"{number}.png": picture(number) for number in range(3)}
    plant(tmp_path / "images", images)
    plant(tmp_path / "masks", {name: mask(number, size=(16, 12)) for number, name in enumerate(images)})
    new = plan_maker()(tmp_path / "images", masks=str(tmp_path / "masks"), label_type="blob", splits=())
    new = replace(new, dataset="digits")
    ingest.run(spark, plan=new)
    definitions = VERSION_01.replace(".data (id uuid PRIMARY KEY, label int", ".data (id uuid PRIMARY KEY, label blob")
    old = as_earlier(control, new, fresh_name("old"), definitions=definitions)
    for change in ("ADD xxhash64 bigint", "DROP xxhash64"):  # Cassandra discards values from before a drop
        control.define(f"ALTER TABLE {old.metadata_table} {change}")
    (damaged, *_) = control.execute(f"SELECT id FROM {old.data_table}")
    control.execute(f"UPDATE {old.data_table} SET data = ? WHERE id = ?", (b"other", damaged.id))
    done = migrate(old, checksums=True)
    assert done.left[0].startswith(f"left: 1 row of {old.metadata_table} without a checksum")
    query = "SELECT id, xxhash64 FROM {}"
    wanted = {row.id: row.xxhash64 for row in control.execute(query.format(new.metadata_table))}
    found = {row.id: row.xxhash64 for row in control.execute(query.format(old.metadata_table))}
    assert found == {**wanted, damaged.id: None}


def test_tables_that_no_ingest_of_this_dataset_wrote_are_left_as_they_are(
    spark: SparkSession, control: Control, plan_of: PlanOf, migrate: Migrate, tmp_path: Path
) -> None:
    new = plan_of(plant(tmp_path / "tree", {f"{name}/1.png": picture(int(name)) for name in "015"}), splits=())
    new = replace(new, dataset="digits")
    ingest.run(spark, plan=replace(new, source=replace(new.source, class_names="number")))
    old = as_earlier(control, new, fresh_name("old"))
    keyspace = old.tables.metadata.keyspace
    control.define(f"CREATE TABLE {keyspace}.other (patch_id uuid PRIMARY KEY, target int, source text, sha256 blob)")
    control.define(f"CREATE TABLE {keyspace}.empty (id uuid PRIMARY KEY, label int, data blob)")
    other = TableName(keyspace, "other")
    before = [control.columns(TableName(keyspace, name)) for name in ("metadata", "other", "tables")]
    for options, words in (
        ({"dataset": "other"}, r"the ids of 3 of 3 rows do not match this dataset.* set --dataset"),
        ({"data_table": None}, r"no ingest has recorded\. Found: none\. Run .* -d KEYSPACE\.TABLE"),
        ({"data_table": TableName(keyspace, "nothing")}, r"Found: no table \w+\.nothing"),
        ({"data_table": TableName(keyspace, "empty")}, r"empty has none of its first 3 images"),
        ({"metadata_table": other, "columns": Columns(id="patch_id", label="target")}, "another tool created"),
        ({"columns": Columns(label="target")}, r"no column target int in \w+\.metadata.*--label-col"),
    ):
        with pytest.raises((ConflictError, TableError), match=words):
            migrate(old, **options)
    with pytest.raises(TableError, match=r"Found: none in system"):
        migration.run(spark, plan=MigrationPlan(keyspace="system"))
    classes = f"INSERT INTO {old.tables.classes} (dataset, name, label) VALUES (?, ?, ?)"
    control.execute(classes, ("digits", "c", 7))
    (row, *_) = control.execute(f"SELECT id FROM {old.metadata_table}")
    update = f"UPDATE {old.metadata_table} SET or_label = ?, label = ? WHERE id = ?"
    control.execute(update, ("c", 7, row.id))
    with pytest.raises(ConflictError, match=r"2 of 3 rows differ from the numbers in .*, and 1 from their names"):
        migrate(old)
    assert [control.columns(TableName(keyspace, name)) for name in ("metadata", "other", "tables")] == before
    # tables of another tool are read as before, beside a table that waits for its migration
    table = MetadataTable.open(spark, control, other, columns=Columns(id="patch_id", label="target"))
    assert table.rows(["since", "label"]).collect() == []
