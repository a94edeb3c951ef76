"""Verification: what is rewritten, deletions, tables of other tools, large blobs."""

import json
import random
import time
import uuid
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from etl.cassandra.control import Control
from etl.cassandra.tables import read_table
from etl.errors import ConflictError, EtlError
from etl.sources.entries import ENTRIES
from etl.tables.metadata_table import MetadataTable
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import create_sequence, finish_run, take_run
from etl.verify import repair
from etl.verify.comparison import MISSING_BLOB, NO_METADATA
from etl.verify.plan import VerifyPlan
from etl.verify.problems import PROBLEMS, blob_digests, page_rows, to_rewrite
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import verify as job
from schemas import Columns, TableName
from schemas.tables import create_metadata
from tests.support.commands import in_living_session
from tests.support.pictures import write_table
from tests.support.spark_rows import rows_of


def test_images_are_rewritten_with_their_groups(spark: SparkSession) -> None:
    def one(number: int) -> bytearray:
        return bytearray(number.to_bytes(16, "big"))

    known = [(one(1), "twins"), (one(2), "pair"), (one(5), None)]
    metadata = rows_of(spark, known, "id BINARY, group_id STRING")
    kinds = [(1, True), (1, False), (2, False), (5, True), (6, True), (7, True)]
    problems = rows_of(spark, [("any", one(i), "", None, is_rewritable) for i, is_rewritable in kinds], PROBLEMS)
    rows = [(i, None) for i in (1, 2, 6, 8)] + [(5, "cut off")]
    listed = rows_of(
        spark,
        [(one(i), one(i), one(i), "c", "new", one(i), None, 1, None, None, None, reason) for i, reason in rows],
        ENTRIES,
    )
    for has_groups, groups in ((False, [(1, "twins"), (6, None)]), (True, [(1, "new"), (6, "new")])):
        chosen = listed.transform(to_rewrite, problems=problems, metadata=metadata, has_groups=has_groups)
        assert chosen.columns == listed.columns
        assert sorted((int.from_bytes(row.id, "big"), row.group_id) for row in chosen.collect()) == groups


def test_half_written_images_are_checked_again_and_deletions_are_limited(
    spark: SparkSession, control: Control, cassandra: Cassandra, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = {uuid.UUID(int=i): None if i == 2 else b"data" for i in range(1, 6)}
    write_table(f"{keyspace}.data", blobs, hosts=cassandra.hosts, port=cassandra.port)
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    control.define(create_metadata(metadata, Columns()))
    for i in (1, 2, 3, 9):
        control.execute(f"INSERT INTO {metadata} (id, bytes) VALUES (?, ?)", (uuid.UUID(int=i), 4))
    # The problems of rows 1 and 3 are outdated: both halves exist now.
    kinds = {1: MISSING_BLOB, 2: MISSING_BLOB, 3: NO_METADATA, 4: NO_METADATA, 5: "wrong size", 9: MISSING_BLOB}
    rows = [(kind, bytearray(uuid.UUID(int=i).bytes), None, None, False) for i, kind in kinds.items()]
    problems = rows_of(spark, rows, PROBLEMS)
    plan, table = VerifyPlan(data_table=data, metadata_table=metadata), MetadataTable.open(spark, control, metadata)

    def left() -> tuple[list[int], ...]:
        return tuple(sorted(row.id.int for row in control.execute(f"SELECT id FROM {one}")) for one in (data, metadata))

    monkeypatch.setattr(repair, "MOST_DELETED", 4)
    with pytest.raises(EtlError, match=r"at most 4 rows to delete. Found: more in .*Ingest the source again"):
        repair.delete_halves(repair.halves(problems, plan=plan), table=table, plan=plan)
    assert left() == ([1, 2, 3, 4, 5], [1, 2, 3, 9])
    monkeypatch.setattr(repair, "MOST_DELETED", 5)
    ahead = time.time_ns() // 1000 + 3_600_000_000
    control.execute(f"UPDATE {data} USING TIMESTAMP ? SET data = ? WHERE id = ?", (ahead, b"data", uuid.UUID(int=4)))
    repaired = repair.delete_halves(repair.halves(problems, plan=plan), table=table, plan=plan)
    assert (repaired.mended, repaired.unchanged) == ({MISSING_BLOB: 3, NO_METADATA: 1}, 1)
    assert repaired.run is not None
    assert repaired.run.sequence == 1
    assert left() == ([1, 3, 4, 5], [1, 3])


def test_what_a_running_ingest_has_half_written_is_not_deleted(
    spark: SparkSession, control: Control, cassandra: Cassandra, keyspace: str
) -> None:
    ids = [uuid.UUID(int=i) for i in (1, 2)]
    write_table(f"{keyspace}.data", dict.fromkeys(ids, b"data"), hosts=cassandra.hosts, port=cassandra.port)
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    control.define(create_metadata(metadata, Columns()))
    create_sequence(control, keyspace=keyspace)
    run = take_run(control, table=metadata, kind="ingest", dataset="d", source="s", ingest_id=new_ingest_id())
    control.execute(f"UPDATE {data} USING TIMESTAMP ? SET data = ? WHERE id = ?", (run.clock_of(5), b"data", ids[1]))
    problems = rows_of(spark, [(NO_METADATA, bytearray(one.bytes), None, None, False) for one in ids], PROBLEMS)
    plan, table = VerifyPlan(data_table=data, metadata_table=metadata), MetadataTable.open(spark, control, metadata)
    with pytest.raises(ConflictError, match=r"1 incomplete image of run 1 \(ingest of s\), which has not finished"):
        repair.delete_halves(repair.halves(problems, plan=plan), table=table, plan=plan)
    assert [row.id for row in control.execute(f"SELECT id FROM {data}")] == [ids[1]]
    finish_run(control, run)
    assert repair.delete_halves(repair.halves(problems, plan=plan), table=table, plan=plan).mended == {NO_METADATA: 2}
    assert control.execute(f"SELECT id FROM {data}") == []


def test_the_command_compares_tables_made_by_other_tools(
    spark: SparkSession,
    control: Control,
    cassandra: Cassandra,
    keyspace: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    columns = Columns(id="patch_id", data="pixels")
    rows: dict[uuid.UUID, bytes | None] = {uuid.UUID(int=i): bytes(i) for i in range(1, 4)}
    write_table(f"{keyspace}.patches", rows, hosts=cassandra.hosts, port=cassandra.port, columns=columns)
    control.define(f"CREATE TABLE {keyspace}.known (patch_id uuid PRIMARY KEY, bytes int)")
    query = f"INSERT INTO {keyspace}.known (patch_id, bytes) VALUES (?, ?)"
    for i, size in ((1, 1), (2, 7), (3, None), (4, 4)):
        control.execute(query, (uuid.UUID(int=i), size))

    def verify(*options: str, data: str = "patches", check: str = "sizes") -> tuple[int, str, list[str]]:
        names = ["-d", f"{keyspace}.{data}", "-m", f"{keyspace}.known", "--id-col=patch_id", "--data-col=pixels"]
        with in_living_session():
            code = job.main([*names, f"--check={check}", *options])
        said = capfd.readouterr()
        return code, said.out, [line for line in said.err.splitlines() if line.startswith("verify.py: ")][-1:]

    code, out, lines = verify("--json")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["examples"] == {
        "missing blob": [str(uuid.UUID(int=4))],
        "wrong size": [f"{uuid.UUID(int=2)} (2 bytes instead of 7)"],
    }
    assert lines == [
        f"verify.py: Wanted {keyspace}.known and {keyspace}.patches to agree. "
        "Found: 1 x missing blob, 1 x wrong size. Add --repair to repair what can be repaired."
    ]
    code, _, (line,) = verify(check="hashes")
    assert code == 1
    assert f"Wanted the columns sha256 in {keyspace}.known" in line
    code, _, (line,) = verify(data="nothing")
    assert code == 1
    assert "no such table" in line
    control.execute(query, (uuid.UUID(int=2), 2))
    control.execute(f"DELETE FROM {keyspace}.known WHERE patch_id = ?", (uuid.UUID(int=4),))
    code, out, lines = verify()
    assert (code, lines) == (0, [])
    assert out.rstrip().endswith(" s: nothing is wrong")


def fetched(frame: DataFrame) -> tuple[int, int]:
    """The connector's page size in rows, and the MB of a split."""
    plan: Any = frame._jdf.queryExecution().sparkPlan()
    while plan.children().size():
        plan = plan.children().head()
    conf = plan.scan().readConf()
    return conf.fetchSizeInRows(), conf.splitSizeInMB()


def test_blobs_are_read_in_small_pages(spark: SparkSession, cassandra: Cassandra, keyspace: str) -> None:
    pattern = random.Random(0).randbytes(100_000)
    rows: dict[uuid.UUID, bytes | None] = {uuid.UUID(int=i): pattern[i:] + pattern[:i] for i in range(250)}
    write_table(f"{keyspace}.data", rows, hosts=cassandra.hosts, port=cassandra.port)
    table = TableName(keyspace, "data")
    data = read_table(spark, table, columns=("id", "data"), page_rows=page_rows(mean=1e5, largest=100_000))
    assert fetched(data) == (100, 256)
    assert fetched(read_table(spark, table, columns=("id", "data")))[0] > 100
    facts = data.transform(blob_digests, columns=Columns(), check="hashes", label_type=None).collect()
    assert {row.length for row in facts} == {100_000}
    assert len({bytes(row.digest) for row in facts}) == len(facts) == 250
