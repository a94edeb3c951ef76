"""Records of tables and runs in a real Cassandra."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Barrier
from typing import Any

import cassandra.cluster
import pytest
from cassandra import ConsistencyLevel

from etl.cassandra import registry
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import ConflictError, EtlError, TableError
from etl.ingest.destination import create_records
from etl.ingest.plan import Tables
from etl.tables.class_numbers import class_names, take_numbers
from etl.tables.runs import new_ingest_id, recorded_runs
from etl.tables.sequence import SPAN, Run, latest_write, take_run
from etl.tables.table_records import TableRecord, check_pair, check_values_table, claim_tables, read_records
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import Columns, TableName
from schemas.feature_sources import Labels
from schemas.features import FeatureView
from schemas.tables import Replication, create_keyspace, create_metadata, create_shared
from tests.support.services import fresh_name

KEYSPACE = fresh_name("records")
RECORD = TableRecord(
    metadata_table=TableName(KEYSPACE, "metadata"),
    data_table=TableName(KEYSPACE, "data"),
    dataset="digits",
    label_type="int",
    numbering="name",
)


@pytest.fixture(scope="module")
def cluster(cassandra: Cassandra) -> Cluster:
    cluster = Cluster(tuple(cassandra.hosts), cassandra.port)
    with Control(cluster) as control:
        control.define(create_keyspace(KEYSPACE, Replication.parse("1", datacenter=control.datacenter)))
        control.define(create_shared("classes", KEYSPACE))
        create_records(control, tables=Tables(RECORD.data_table, RECORD.metadata_table, Columns(), "int"))
        for name in ("metadata", "m2", "raced"):
            control.define(create_metadata(TableName(KEYSPACE, name), Columns()))
    return cluster


def take(control: Control, table: TableName, **options: Any) -> Run:
    return take_run(control, table=table, kind="ingest", dataset="d", source="s", ingest_id=new_ingest_id(), **options)


def test_a_record_holds_until_its_table_is_dropped(cluster: Cluster) -> None:
    with Control(cluster) as control:
        claim_tables(control, RECORD)
        claim_tables(control, RECORD)
        other = replace(RECORD, metadata_table=TableName(KEYSPACE, "m2"), data_table=TableName(KEYSPACE, "d2"))
        claim_tables(control, other)
        assert sorted(read_records(control, keyspace=KEYSPACE), key=str) == sorted([RECORD, other], key=str)
        check_pair(control, data_table=RECORD.data_table, metadata_table=RECORD.metadata_table)
        with pytest.raises(ConflictError, match=r"belongs to \w+\.m\w+\. Name both"):
            check_pair(control, data_table=RECORD.data_table, metadata_table=other.metadata_table)
        view = FeatureView(
            name="label", version=1, fields={"label": "int"}, source=Labels("x.csv"), digest="0" * 64, sequence=1
        )
        registry.create(control, keyspace=KEYSPACE)
        kind = registry.label_views_of(other.metadata_table)
        registry.register_view(control, view, keyspace=KEYSPACE, kind=kind)
        for name, is_taken in (("m2_label", True), ("m2_history", True), ("metadata_label", False)):
            with pytest.raises(ConflictError, match="another name of the view") if is_taken else nullcontext():
                check_values_table(control, RECORD.metadata_table, TableName(KEYSPACE, name))
        with pytest.raises(ConflictError, match="one numbering"):
            claim_tables(control, replace(other, numbering="number"))
        for record in (RECORD, other):
            control.define(f"DROP TABLE {record.metadata_table}")
        assert read_records(control, keyspace=KEYSPACE) == []
        control.define(create_metadata(other.metadata_table, Columns()))
        changed = replace(other, numbering="number")
        claim_tables(control, changed)
        assert read_records(control, keyspace=KEYSPACE) == [changed]
        assert read_records(control, keyspace="nowhere") == []


def test_of_ingests_that_start_at_once_those_that_fit_go_on(cluster: Cluster) -> None:
    wanted = replace(RECORD, metadata_table=TableName(KEYSPACE, "raced"), data_table=TableName(KEYSPACE, "raced_data"))
    start = Barrier(4)

    def one_run(number: int) -> tuple[str, Run | None]:
        record = replace(wanted, dataset=f"set {number % 2}")
        with Control(cluster) as control:
            start.wait()
            try:
                claim_tables(control, record)
            except ConflictError:
                return record.dataset, None
            return record.dataset, take(control, wanted.metadata_table)

    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(one_run, range(4)))
    winners = [run for _, run in runs if run is not None]
    assert len({dataset for dataset, run in runs if run is not None}) == 1
    assert sorted(run.sequence for run in winners) == [1, 2]
    assert abs(winners[0].clock - winners[1].clock) >= SPAN


def test_the_sequence_goes_on_whatever_the_machine_says(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableName(KEYSPACE, "sequence")
    with Control(cluster) as control:
        assert not recorded_runs(control, table)
        first = take(control, table)
        late = first.clock + 200_000_000
        assert take(control, table, after=late).clock == late + 1
        third = take(control, table)
        assert (third.sequence, third.clock) == (3, late + 1 + SPAN)
        with pytest.raises(EtlError, match=r"Found: it is .* here, and the last write to .*, 2 h"):
            take(control, table, after=first.clock + 7_300_000_000)
        monkeypatch.setattr("etl.tables.sequence.now", lambda: first.clock + 3_600_000_000)
        with pytest.raises(EtlError, match="at Cassandra"):
            take(control, table)
        rows = control.execute(f"SELECT * FROM {KEYSPACE}.ingests WHERE table_name = ?", (table.table,))
    assert [(row.sequence, row.kind, row.dataset, row.source, row.last) for row in rows] == [
        (number, "ingest", "d", "s", 3) for number in (3, 2, 1)
    ]


@contextmanager
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, str | None]]]:
    """The driver's queries with their consistency levels, as in its messages."""
    sent: list[tuple[str, str, str | None]] = []
    names = ConsistencyLevel.value_to_name
    connect = cassandra.cluster.Cluster.connect

    def note(future: Any) -> None:
        message, query = future.message, future.query
        bound = getattr(query, "prepared_statement", query)
        text = getattr(bound, "query_string", "BATCH")
        serial = message.serial_consistency_level
        sent.append((text, names[message.consistency_level], None if serial is None else names[serial]))

    def connect_and_note(driver: Any, *args: Any) -> Any:
        session = connect(driver, *args)
        session.add_request_init_listener(note)
        return session

    with monkeypatch.context() as patch:
        patch.setattr(cassandra.cluster.Cluster, "connect", connect_and_note)
        yield sent


def test_what_decides_is_read_and_written_for_all_datacenters(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableName(KEYSPACE, "levels")
    with requests(monkeypatch) as sent, Control(cluster) as control:
        control.define(create_metadata(table, Columns()))
        take_numbers(control, keyspace=KEYSPACE, dataset="levels", names=["a", "b"])
        take_numbers(control, keyspace=KEYSPACE, dataset="levels", names=["a"])
        class_names(control, keyspace=KEYSPACE, dataset="levels")
        claim_tables(control, replace(RECORD, metadata_table=table, data_table=table, dataset="levels"))
        take(control, table)
        recorded_runs(control, table)
    deciding = [(query, level) for query, level, _ in sent if f'"{KEYSPACE}"' in query and "CREATE" not in query]
    assert len(deciding) >= 6
    assert {level for _, level in deciding} == {"SERIAL"}
    batches = [(level, serial) for query, level, serial in sent if query == "BATCH"]
    assert batches == [("QUORUM", "SERIAL")] * 3
    assert "LOCAL_QUORUM" in {level for _, level, _ in sent}  # of all other queries


def test_the_latest_write_to_a_column_is_found_wherever_its_row_is(cluster: Cluster) -> None:
    table = TableName(KEYSPACE, "written")
    with Control(cluster) as control:
        control.define(f"CREATE TABLE {table} (id uuid PRIMARY KEY, path text, label int)")
        assert latest_write(control, table, key="id", column="path") == 0
        write = f"INSERT INTO {table} (id, path) VALUES (?, ?) USING TIMESTAMP ?"
        images = [uuid.uuid5(uuid.NAMESPACE_URL, str(number)) for number in range(300)]
        for number, image in enumerate(images):
            control.execute(write, (image, "a", 1_000 + number))
        control.execute(f"UPDATE {table} USING TIMESTAMP ? SET label = 1 WHERE id = ?", (9_999, images[0]))
        assert latest_write(control, table, key="id", column="path") == 1_299
        with pytest.raises(TableError, match="nothing"):
            latest_write(control, table, key="id", column="nothing")
