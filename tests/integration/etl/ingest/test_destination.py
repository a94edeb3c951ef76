"""Tables are created by several runs at once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.ingest.destination import check_tables, create_tables, is_empty
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.tables.class_numbers import take_numbers
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import take_run
from etl.tables.table_records import TableRecord, claim_tables, read_records
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName


def test_runs_that_create_the_same_tables_at_once_all_use_them(cassandra: Cassandra, keyspace: str) -> None:
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    plan = IngestPlan(source=SourcePlan(address="/"), data_table=data, metadata_table=metadata)
    record = TableRecord(metadata_table=metadata, data_table=data, dataset=keyspace, label_type="int", numbering="name")
    start = Barrier(4)

    def begin(number: int) -> tuple[int, int]:
        with Control(Cluster(tuple(cassandra.hosts), cassandra.port)) as control:
            start.wait()
            check_tables(control, plan=plan)
            read_records(control, keyspace=keyspace)
            is_empty(control, plan=plan)
            create_tables(control, plan=plan)
            claim_tables(control, record)
            run = take_run(
                control, table=metadata, kind="ingest", dataset=keyspace, source="/", ingest_id=new_ingest_id()
            )
            numbers = take_numbers(control, keyspace=keyspace, dataset=keyspace, names=["all", str(number)])
            return run.sequence, numbers[str(number)]

    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(begin, range(4)))
    assert sorted(sequence for sequence, _ in runs) == [1, 2, 3, 4]
    assert len({label for _, label in runs}) == 4
