"""The records that an ingest writes about its tables and runs, and tables without a record."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError, TableError
from etl.ingest.destination import check_fits_early, check_tables, find_destination
from etl.tables.runs import recorded_runs
from etl.tables.sequence import SPAN
from etl.verify import verification
from etl.verify.plan import VerifyPlan
from jobs import ingest as job
from schemas import TableName
from tests.support.trees import PlanOf, by_name, picture, plant, tree


def test_a_later_run_wins_although_its_clock_is_behind(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{split}/{name}/0.png" for split in ("train", "val") for name in "abc"]
    plan = plan_of(plant(tmp_path, {name: picture(1) for name in names} | {"train/a/bad.png": b"bad"}))
    clock = job.run(spark, plan=plan).clock
    assert clock is not None
    plant(tmp_path, {name: picture(2) for name in names})
    monkeypatch.setattr("etl.tables.sequence.now", lambda: clock - 200_000_000)
    report = job.run(spark, plan=plan)
    assert (report.sequence, report.clock) == (2, clock + SPAN)
    assert f"; run 2 of {plan.metadata_table}; " in str(report)
    assert {row["data"] for row in by_name(control, plan).values()} == {picture(2)}
    rejected = f"SELECT WRITETIME(reason) AS time FROM {plan.tables.quarantine} WHERE ingest_id = {report.ingest_id}"
    written = [*_times(control, plan.tables.data, "data"), *_times(control, plan.tables.metadata, "sha256")]
    written += [row.time for row in control.execute(rejected)]
    assert len(written) == 13
    assert all(clock + SPAN <= time < clock + 2 * SPAN for time in written)


def _times(control: Control, table: TableName, column: str) -> list[int]:
    return [row.time for row in control.execute(f"SELECT WRITETIME({column}) AS time FROM {table}")]


def test_rows_without_a_record_are_refused(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = replace(plan_of(tree(tmp_path, each=1)), dataset="it's")
    keyspace = plan.tables.metadata.keyspace
    job.run(spark, plan=plan)
    with pytest.raises(ConflictError, match=r"data belongs to \w+\.metadata, which holds dataset"):
        check_fits_early(control, plan=replace(plan, metadata_table=TableName("another", "metadata"), overwrite=True))
    arrays = replace(plan.source, label_type="multi", arrays=str(tmp_path))
    with pytest.raises(ConflictError, match=r"labels of type multi.* they hold dataset .*, classes by name"):
        job.estimate(spark, plan=replace(plan, source=arrays))
    for name in ("tables", "ingests"):
        control.define(f"DROP TABLE {keyspace}.{name}")
    with pytest.raises(TableError, match=r"Found: no table \w+\.tables; no table \w+\.ingests\. .* them: CREATE"):
        check_tables(control, plan=replace(plan, create=False))
    with pytest.raises(ConflictError, match=r"Found: images in \w+\.data, of another metadata table"):
        find_destination(control, plan=replace(plan, metadata_table=TableName(keyspace, "new")), names="abc")
    advice = rf"migrate -m {keyspace}\.metadata -d {keyspace}\.data --dataset 'it'\"'\"'s'`"
    with pytest.raises(TableError, match=rf"has rows and no record of what it holds.*{advice}"):
        job.run(spark, plan=plan)


def test_another_numbering_is_refused(spark: SparkSession, plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(plant(tmp_path, {f"{name}/1.png": picture(int(name)) for name in ("0", "1", "5")}), splits=())
    job.run(spark, plan=replace(plan, source=replace(plan.source, class_names="number")))
    by_names = replace(plan, create=False, overwrite=True)
    tables = {"data_table": plan.tables.data, "metadata_table": plan.tables.metadata}
    with pytest.raises(
        ConflictError, match=r"hold .*by number, and .* one numbering\. Set --class-names number to use"
    ):
        verification.run(spark, plan=VerifyPlan(**tables, ingest=by_names, check="sizes"))


def test_a_run_that_may_not_create_tables_is_refused_beside_a_killed_one_before_it_begins(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(tree(tmp_path, each=1))
    first = job.run(spark, plan=plan)
    runs = f"{plan.tables.metadata.keyspace}.ingests"
    control.execute(f"UPDATE {runs} SET state = 'started' WHERE table_name = 'metadata' AND sequence = 1")
    plant(tmp_path, {"train/a/new.png": picture(9)})
    resumed = replace(plan, resume=True)
    # the killed run may still write the same images, and then their states must be kept
    with pytest.raises(TableError, match=r"Wanted the table \w+\.metadata_history, .* Leave out --no-create"):
        job.run(spark, plan=replace(resumed, create=False))
    assert len(recorded_runs(control, plan.tables.metadata)) == 1
    report = job.run(spark, plan=resumed)
    assert (report.images, report.already_there) == (1, first.images)
