"""The table of class numbers is lost: an ingest stops, and the numbers can be restored from the rows."""

import uuid
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError
from etl.ingest.class_agreement import ClassAgreement, check_classes, count_labels
from etl.ingest.destination import create_tables
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.table_records import TableRecord, claim_tables
from schemas import TableName


@pytest.fixture
def plan(control: Control, keyspace: str) -> IngestPlan:
    """An ingest into tables with four rows of two classes, whose numbers are lost."""
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    plan = IngestPlan(source=SourcePlan(address="/"), data_table=data, metadata_table=metadata)
    create_tables(control, plan=plan)
    record = TableRecord(metadata_table=metadata, data_table=data, dataset=keyspace, label_type="int", numbering="name")
    claim_tables(control, record)
    take_numbers(control, keyspace=keyspace, dataset=keyspace, names=["ant", "bee"])
    for i in range(4):
        row = f"INSERT INTO {metadata} (id, or_label, label) VALUES (?, ?, ?)"
        control.execute(row, (uuid.UUID(int=i), ("ant", "bee")[i % 2], i % 2))
    return plan


def test_an_ingest_stops_before_a_number_means_two_classes(
    spark: SparkSession, control: Control, plan: IngestPlan, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_classes(spark, control, plan=plan, names=["ant", "cat"])
    monkeypatch.setattr("etl.ingest.class_agreement._FIRST", 2)  # of 4 rows
    no_spark: Any = None
    check_classes(no_spark, control, plan=plan, names=["ant", "bee"])  # no class would get a new number
    control.execute(f"TRUNCATE {keyspace}.classes")
    for names in (["cat"], ["bee"]):
        with pytest.raises(ConflictError, match=r"agree with the rows of .*Found: .*'(ant|bee)'.*Restore it") as caught:
            check_classes(spark, control, plan=plan, names=names)
    assert "no number of 'bee', which is 1 in its 2 rows" in str(caught.value)

    assert plan.metadata_table is not None
    counts = count_labels(spark, control, plan.metadata_table, columns=plan.columns)
    lost = ClassAgreement.of(counts, known={}).lost
    for _ in range(2):
        take_numbers(control, keyspace=keyspace, dataset=keyspace, names=lost, lost=lost)
        assert class_names(control, keyspace=keyspace, dataset=keyspace) == {"ant": 0, "bee": 1}
    check_classes(spark, control, plan=plan, names=["bee", "cat"])
    row = f"INSERT INTO {plan.metadata_table} (id, or_label, label) VALUES (?, ?, ?)"
    control.execute(row, (uuid.UUID(int=9), None, 2))
    with pytest.raises(
        ConflictError, match=r"is 2, which rows of no class have\. Rows with .* --where \"label IN \(2\)\""
    ):
        check_classes(spark, control, plan=plan, names=["bee", "cat"])
    control.execute(f"DELETE FROM {plan.metadata_table} WHERE id = ?", (uuid.UUID(int=9),))
    assert take_numbers(control, keyspace=keyspace, dataset=keyspace, names=["cat"])["cat"] == 2
