"""All cells of the rows of an image have the same end, whatever earlier runs have written."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError
from etl.ingest.plan import IngestPlan
from jobs import ingest as job
from tests.support.trees import PlanOf, tree

PATIENTS = {f"{name}/{number}.png": f"patient {number}" for name in "ab" for number in range(2)}


def scans(plan_of: PlanOf, place: Path) -> tuple[IngestPlan, IngestPlan]:
    """The ingest of a tree with a file of labels: without groups, and with them."""
    source = tree(place / "tree", splits=(".",), classes="ab", each=2)
    labels = place / "labels.csv"
    labels.write_text("\n".join(["path,label,patient", *(f"{path},{path[0]},{of}" for path, of in PATIENTS.items())]))
    plan = plan_of(source, splits=(), labels=str(labels))
    return plan, replace(plan, source=replace(plan.source, group_column="patient"))


def ends(control: Control, plan: IngestPlan) -> dict[str, set[tuple[int | None, int]]]:
    """The time to live, in hours, and the write time of all cells that the two rows of each image have, by path."""
    found: dict[str, set[tuple[int | None, int]]] = {}
    paths = {row.id: row.path for row in control.execute(f"SELECT id, path FROM {plan.tables.metadata.quoted}")}
    for table in (plan.tables.data, plan.tables.metadata):
        for name in (control.columns(table) or {}).keys() - {"id"}:
            query = f'SELECT id, "{name}" AS value, TTL("{name}") AS ttl, WRITETIME("{name}") AS at FROM {table.quoted}'
            for row in control.execute(query):
                if row.value is not None:
                    hours = None if row.ttl is None else round(row.ttl / 3600)
                    found.setdefault(paths[row.id], set()).add((hours, row.at))
    return found


def groups(control: Control, plan: IngestPlan) -> dict[str, str | None]:
    """The group of each image, by path."""
    rows = control.execute(f"SELECT path, group_id FROM {plan.tables.metadata.quoted}")
    return {row.path: row.group_id for row in rows}


def test_groups_stay_and_end_with_their_images_if_a_later_run_does_not_read_them(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan, with_groups = scans(plan_of, tmp_path)
    for again, ttl in ((with_groups, None), (plan, 7200), (plan, 18000), (plan, 0)):
        assert job.run(spark, plan=replace(again, ttl=ttl)).images == 4
        assert groups(control, plan) == PATIENTS
        cells = ends(control, plan)
        assert {hours for one in cells.values() for hours, _ in one} == {ttl // 3600 if ttl else None}
        assert [len(one) for one in cells.values()] == [1] * 4


def test_a_resumed_run_writes_images_again_that_have_another_end(
    spark: SparkSession, control: Control, plan_of: PlanOf, tmp_path: Path
) -> None:
    plan, with_groups = scans(plan_of, tmp_path)
    first = job.run(spark, plan=replace(with_groups, ttl=7200))
    resumed = replace(plan, resume=True)
    for ttl, written in ((7200, 0), (18000, 4), (0, 4), (None, 0), (7200, 4)):
        report = job.run(spark, plan=replace(resumed, ttl=ttl))
        assert (report.images, report.already_there) == (written, 4 - written)
        cells = ends(control, plan)
        assert {hours for one in cells.values() for hours, _ in one} == {ttl // 3600 if ttl else None}
        assert [len(one) for one in cells.values()] == [1] * 4
        assert groups(control, plan) == PATIENTS
    with pytest.raises(ConflictError, match=r"Wanted --ttl 7200, with which ingest .* Found: --ttl 18000\."):
        job.run(spark, plan=replace(resumed, ttl=18000, ingest_id=uuid.UUID(str(first.ingest_id))))
