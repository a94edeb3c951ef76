"""Tables as earlier versions wrote them, with the rows of tables that this version wrote."""

from collections.abc import Mapping
from dataclasses import replace

from etl.cassandra.control import Control
from etl.ingest.plan import IngestPlan
from schemas import TableName
from schemas.tables import Replication, create_keyspace

VERSION_01 = """
CREATE TABLE {keyspace}.metadata (id uuid PRIMARY KEY, label int, or_label text, or_split text, path text, format text,
    width int, height int, bytes bigint, sha256 blob, group_id text, source text, ingested_at timestamp,
    ingest_id timeuuid);
CREATE TABLE {keyspace}.data (id uuid PRIMARY KEY, label int, data blob) WITH compression = {{'enabled': 'false'}};
CREATE TABLE {keyspace}.classes (dataset text, name text, label int, total int STATIC, PRIMARY KEY ((dataset), name));
CREATE TABLE {keyspace}.quarantine (ingest_id timeuuid, path text, stage text, reason text, bytes bigint,
    PRIMARY KEY ((ingest_id), path));
"""
"""The tables of version 0.1."""
WITH_RUNS = """
CREATE TABLE {keyspace}.tables (keyspace_name text, metadata_table text, version bigint STATIC, table_id uuid,
    data_table text, dataset text, label_type text, numbering text, PRIMARY KEY ((keyspace_name), metadata_table));
CREATE TABLE {keyspace}.ingests (table_name text, sequence bigint, last bigint STATIC, clock bigint, run_id timeuuid,
    kind text, ingest_id timeuuid, dataset text, source text, started timestamp, PRIMARY KEY ((table_name), sequence)
    ) WITH CLUSTERING ORDER BY (sequence DESC);
CREATE TABLE {keyspace}.metadata_history (id uuid, until bigint, since bigint, kind text, label int,
    labels frozen<list<int>>, or_label text, or_split text, sha256 blob, source text, reason text, at timestamp,
    PRIMARY KEY ((id), until)) WITH CLUSTERING ORDER BY (until DESC);
"""
"""Tables that early states of version 0.2 had beside them."""
_CLOCK = 1_700_000_000_000_000


def as_earlier(control: Control, plan: IngestPlan, keyspace: str, *, definitions: str = VERSION_01) -> IngestPlan:
    """Make tables of these definitions in another keyspace, with the rows of the tables of a plan, as far as they have
    columns for them; returns the plan of an ingest into them.
    """
    control.define(create_keyspace(keyspace, Replication.parse("1", datacenter=control.datacenter)))
    for statement in definitions.format(keyspace=keyspace).split(";\n"):
        if statement.strip():
            control.define(statement)
    earlier = replace(
        plan, data_table=TableName(keyspace, "data"), metadata_table=TableName(keyspace, "metadata"),
    )  # fmt: skip
    for name in ("classes", "quarantine", "data", "metadata"):
        there = control.columns(TableName(keyspace, name)) or {}
        for row in control.execute(f"SELECT * FROM {plan.tables.metadata.keyspace}.{name}"):
            values = {one: value for one, value in row._asdict().items() if one in there}
            insert_row(control, TableName(keyspace, name), values, time=_CLOCK if "id" in values else None)
    return earlier


def insert_row(
    control: Control, table: TableName, values: Mapping[str, object], *, time: int | None = None, ttl: int = 0
) -> None:
    """Insert a row, at a write time, with a time to live."""
    using = "" if time is None else f" USING TIMESTAMP {time} AND TTL {ttl}"
    places = ", ".join("?" for _ in values)
    control.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places}){using}", tuple(values.values()))
