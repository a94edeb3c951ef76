"""Metadata rows of a split from Cassandra: all columns with their types, by position, none missing."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import execute, write_table
from tests.support.services import fresh_name
from tests.support.split_folders import image_ids, write_split_folder

IDS = image_ids(12)
_TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
COLUMNS = {
    "path": ("text", "'p/é'", pa.string(), "p/é"),
    "width": ("int", "7", pa.int32(), 7),
    "bytes": ("bigint", "5000000000", pa.int64(), 5_000_000_000),
    "score": ("double", "0.5", pa.float64(), 0.5),
    "sha256": ("blob", "0x00ff", pa.binary(), b"\0\xff"),
    "labels": ("frozen<list<int>>", "[3, 1]", pa.list_(pa.int32()), [3, 1]),
    "is_good": ("boolean", "true", pa.bool_(), True),
    "ingest_id": ("uuid", str(IDS[0]), pa.string(), str(IDS[0])),
    "ingested_at": ("timestamp", "'2026-01-02T03:04:05.678Z'", pa.timestamp("ms", "UTC"), _TIME),
    "day": ("date", "'2026-01-02'", pa.date32(), _TIME.date()),
    "group_id": ("text", "null", pa.string(), None),
}


@pytest.fixture(scope="module")
def where(cassandra: Cassandra) -> dict[str, Any]:
    return {"hosts": cassandra.hosts, "port": cassandra.port}


@pytest.fixture(scope="module")
def split(where: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    """Its metadata table has a row for each image but the last, and an unrelated row."""
    keyspace, folder = fresh_name("rows"), tmp_path_factory.mktemp("split")
    write_table(f"{keyspace}.data", dict.fromkeys(IDS, b"x"), **where)
    names, values = ", ".join(COLUMNS), ", ".join(value for _, value, _, _ in COLUMNS.values())
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _, _) in COLUMNS.items())
    execute(
        f"CREATE TABLE {keyspace}.metadata (id uuid PRIMARY KEY, label int, {kinds}, position int)",
        *(
            f"INSERT INTO {keyspace}.metadata (id, label, position, {names}) VALUES ({one}, 9, {number}, {values})"
            for number, one in enumerate(IDS[:11])
        ),
        **where,
    )
    rows = [(IDS[:11], [0] * 11), (IDS[10:], [0, 0]), ([], [])]
    write_split_folder(folder, rows, data_table=f"{keyspace}.data", metadata_table=f"{keyspace}.metadata")
    return loader.open_split(folder, cache=folder / "cache")


@pytest.mark.parametrize("client", ["acsylla", "cassandra-driver"])
def test_all_columns_come_with_their_types(split: loader.Split, where: dict[str, Any], client: str) -> None:
    table = split.to_arrow(metadata=True, client=client, **where)
    own = ["id", "label", "class_name", "position"]
    assert table.column_names == [
        *own,
        *(f"metadata_{name}" if name in own else name for name in sorted([*COLUMNS, "position"])),
    ]
    for name, (_, _, kind, value) in COLUMNS.items():
        assert (table.schema.field(name).type, table[name].to_pylist()) == (kind, [value] * 11), name
    assert table["metadata_position"].to_pylist() == table["position"].to_pylist() == list(range(11))
    assert table["label"].to_pylist() == [0] * 11  # from the split, not from the table


def test_named_columns_are_read_where_an_event_loop_runs(split: loader.Split, where: dict[str, Any]) -> None:
    async def in_a_notebook() -> pa.Table:
        return split.to_arrow(metadata=["width", "path"], **where)

    table = asyncio.run(in_a_notebook())
    assert table.select(["width", "path"]).to_pylist() == [{"width": 7, "path": "p/é"}] * 11
    assert split.to_pandas(metadata=["width"], **where)["width"].tolist() == [7] * 11


def test_what_is_not_there_is_named(split: loader.Split, where: dict[str, Any]) -> None:
    with pytest.raises(loader.TableError, match=r"Wanted the columns id, colour .*Found: bytes, "):
        split.to_arrow(metadata=["colour"], **where)
    part = loader.open_split(split.address, index=1, cache=split.cache)
    with pytest.raises(loader.MissingImageError, match=rf"{IDS[11]} .*Found: no such row"):
        part.to_arrow(metadata=["width"], **where)
    empty = loader.open_split(split.address, index=2, cache=split.cache)
    assert empty.to_arrow(metadata=["width"], **where).schema.field("width").type == pa.int32()
