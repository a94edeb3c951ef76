"""Names, ids and table definitions."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import Columns, IdentifierError, TableName, image_id
from schemas.identity import VECTORS, ids_of_path
from schemas.tables import (
    Replication,
    create_data,
    create_history,
    create_keyspace,
    create_metadata,
    create_shared,
    defined_columns,
    history_of,
)


@pytest.mark.parametrize(("dataset", "or_split", "path", "wanted"), VECTORS)
def test_ids_match_the_test_vectors(dataset: str, or_split: bytes, path: bytes, wanted: str) -> None:
    assert str(image_id(dataset, or_split, path)) == wanted
    assert uuid.UUID(wanted) in ids_of_path(dataset, or_split + b"/" + path if or_split else path)


def test_an_image_is_found_by_its_path_however_long_its_split_folder_is() -> None:
    wanted = [(b"outer", b"train/0.png"), (b"outer/train", b"0.png"), (b"", b"outer/train/0.png")]
    assert ids_of_path("d", b"outer/train/0.png") == [image_id("d", *one) for one in wanted]


def test_ids_are_version_5_uuids_of_unambiguous_parts() -> None:
    image = image_id("d", b"a", b"b/c")
    assert (image.version, image.variant) == (5, uuid.RFC_4122)
    assert len({image, image_id("d", b"", b"a/b/c"), image_id("da", b"", b"b/c"), image_id("d", b"a", b"b/C")}) == 4


@pytest.mark.parametrize("text", ["ks.data", "a.b", "k_1.t_2", f"{'k' * 48}.{'t' * 48}"])
def test_valid_table_names_are_accepted(text: str) -> None:
    assert str(TableName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data",
        "ks.",
        ".data",
        "ks.a.b",
        "Ks.data",
        "1ks.data",
        "ks.da ta",
        "ks.data\n",
        'ks.data"; DROP TABLE x',
        f"k.{'t' * 49}",
        "ks.дата",
    ],
)
def test_invalid_table_names_are_refused(text: str) -> None:
    with pytest.raises(IdentifierError, match=r"keyspace\.table"):
        TableName.parse(text)


@given(st.text(max_size=60))
def test_no_table_name_can_inject_quotes_into_a_statement(text: str) -> None:
    try:
        table = TableName.parse(text)
    except IdentifierError:
        return
    assert table.quoted.count('"') == 4
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.")


@pytest.mark.parametrize("name", ["", "a b", '"', "1a", "a;", "a" * 49, "é"])
def test_invalid_column_names_are_refused(name: str) -> None:
    with pytest.raises(IdentifierError):
        Columns(id=name)


def test_columns_must_differ() -> None:
    with pytest.raises(IdentifierError, match="three different"):
        Columns(id="label")


@pytest.mark.parametrize(
    ("text", "cql"),
    [
        ("1", "{'class': 'NetworkTopologyStrategy', 'dc': 1}"),
        ("3", "{'class': 'NetworkTopologyStrategy', 'dc': 3}"),
        ("east:3,west-1:2", "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west-1': 2}"),
    ],
)
def test_replication_is_parsed(text: str, cql: str) -> None:
    assert Replication.parse(text, datacenter="dc").cql == cql


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "a:", ":3", "a:1,a:2", "a':1", "1,1"])
def test_invalid_replication_is_refused(text: str) -> None:
    with pytest.raises(IdentifierError):
        Replication.parse(text)


def test_table_definitions_have_the_documented_columns() -> None:
    table = TableName("ks", "t")
    columns = Columns(id="patch_id", label="y", data="Data")
    assert defined_columns(create_data(table, columns)) == {"patch_id": "uuid", "y": "int", "Data": "blob"}
    metadata = defined_columns(create_metadata(table, columns))
    assert list(metadata)[:3] == ["patch_id", "y", "or_label"]
    assert metadata["sha256"] == "blob"
    assert metadata["ingest_id"] == "timeuuid"
    assert defined_columns(create_shared("classes", "ks")) == {
        "dataset": "text",
        "name": "text",
        "label": "int",
        "total": "int",
    }
    assert list(defined_columns(create_shared("quarantine", "ks"))) == ["ingest_id", "path", "stage", "reason", "bytes"]


def test_a_keyspace_is_created_with_its_replication() -> None:
    statement = create_keyspace("ks", Replication.parse("3", datacenter="dc"))
    assert '"ks"' in statement
    assert "'dc': 3" in statement


def test_a_history_is_named_by_its_metadata_table() -> None:
    assert str(history_of(TableName.parse("ks.metadata"))) == "ks.metadata_history"
    assert defined_columns(create_history(TableName.parse("ks.metadata")))["until"] == "bigint"
    assert history_of(TableName("ks", "m" * 40)) == TableName("ks", "m" * 40 + "_history")


def test_a_history_fits_beside_a_metadata_table_of_any_name_and_is_its_own() -> None:
    names = [history_of(TableName("ks", "m" * count)) for count in range(1, 49)]
    assert len(set(names)) == 48
    assert all(TableName.parse(str(name)) == name and name.table.endswith("_history") for name in names)
