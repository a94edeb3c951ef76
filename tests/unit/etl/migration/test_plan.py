"""What a migration needs: statements for what tables lack."""

import pytest

from etl.errors import TableError
from etl.migration.plan import MigrationPlan, missing_definitions
from schemas import Columns, TableName
from schemas.tables import create_history, create_metadata, create_shared, defined_columns, is_ingested

METADATA = TableName("ks", "metadata")
HISTORY, INGESTS = TableName("ks", "metadata_history"), TableName("ks", "ingests")
WANTED = {
    METADATA: create_metadata(METADATA, Columns()),
    INGESTS: create_shared("ingests", "ks"),
    HISTORY: create_history(METADATA),
}
NOW = {table: defined_columns(statement) for table, statement in WANTED.items()}


def without(table: TableName, *names: str) -> dict[str, str]:
    return {name: kind for name, kind in NOW[table].items() if name not in names}


def test_what_is_missing_becomes_one_statement_for_each_table() -> None:
    assert missing_definitions(NOW, WANTED) == []
    added = ("format", "width", "height", "bytes", "xxhash64", "kept")
    found = {METADATA: without(METADATA, "since", "xxhash64"), INGESTS: None, HISTORY: without(HISTORY, *added)}
    definitions = missing_definitions(found, WANTED)
    assert [str(one) for one in definitions] == [
        "add xxhash64, since to ks.metadata",
        "create the table ks.ingests",
        "add format, width, height, bytes, xxhash64, kept to ks.metadata_history",
    ]
    assert definitions[0].statement == 'ALTER TABLE "ks"."metadata" ADD ("xxhash64" bigint, "since" bigint)'
    assert definitions[1].statement == WANTED[INGESTS]


def test_each_state_of_a_killed_migration_needs_only_the_rest() -> None:
    found = {METADATA: without(METADATA, "since"), INGESTS: without(INGESTS, "newest"), HISTORY: NOW[HISTORY]}
    assert [str(one) for one in missing_definitions(found, WANTED)] == [
        "add since to ks.metadata",
        "add newest to ks.ingests",
    ]


def test_tables_that_no_ingest_created_are_refused_with_every_difference() -> None:
    found = {**NOW, METADATA: {**without(METADATA, "path", "since"), "bytes": "int"}}
    with pytest.raises(TableError, match=r"no column path text in ks\.metadata; bytes int instead of bigint in ks\.me"):
        missing_definitions(found, WANTED)


def test_a_metadata_table_of_any_version_is_told_from_one_of_another_tool() -> None:
    for label_type in ("int", "multi"):
        named = create_metadata(METADATA, Columns(id="patch_id", label="target"), label_type=label_type)
        assert is_ingested(defined_columns(named))
    assert is_ingested(without(METADATA, "since", "xxhash64"))
    assert not is_ingested(without(METADATA, "ingest_id"))
    assert not is_ingested({**NOW[METADATA], "sha256": "text"})
    assert not is_ingested({"id": "uuid", "label": "int", "since": "bigint", "source": "text"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Found: neither"),
        ({"metadata_table": METADATA, "keyspace": "ks"}, "Found: both"),
        ({"keyspace": "ks", "dataset": "digits"}, "Found: -k"),
        ({"metadata_table": METADATA, "data_table": METADATA}, "for both"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MigrationPlan(**options)  # type: ignore[arg-type]
