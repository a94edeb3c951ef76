"""The permitted contents of a pair of tables."""

from dataclasses import replace
from typing import Any

import pytest

from etl.errors import ConflictError
from etl.tables.table_records import TableRecord, check_fits
from schemas import TableName

NAMED = TableRecord(
    metadata_table=TableName("ks", "metadata"),
    data_table=TableName("ks", "data"),
    dataset="imagenette",
    label_type="int",
    numbering="name",
)
MASKS = TableRecord(
    metadata_table=TableName("ks", "metadata_2"),
    data_table=TableName("ks", "masks"),
    dataset="imagenette",
    label_type="blob",
)
OTHER_PAIR = {"metadata_table": TableName("ks", "m"), "data_table": TableName("blobs", "d")}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"numbering": None},
        OTHER_PAIR,
        {**OTHER_PAIR, "dataset": "other"},
        {**OTHER_PAIR, "dataset": "other", "numbering": "number"},
        {**OTHER_PAIR, "label_type": "multi", "numbering": None},
        {"metadata_table": TableName("k2", "metadata"), "data_table": TableName("k2", "data")},
    ],
)
def test_what_is_recorded_and_what_has_tables_of_its_own_fits(change: dict[str, Any]) -> None:
    check_fits(replace(NAMED, **change), known=[NAMED, MASKS])
    check_fits(replace(NAMED, **change), known=[])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "two words"}, ["'two words', classes by name, into ks.data and ks.meta", "--dataset imagenette"]),
        (
            {"numbering": "number"},
            ["--class-names name to use it", "other tables: --dataset imagenette_by_number --data"],
        ),
        ({"label_type": "none", "numbering": None}, ["labels of type none, into", "they hold dataset 'imagenette'"]),
        ({"data_table": TableName("ks", "d")}, ["ks.metadata belongs to ks.data", "--data-table ks.data"]),
        (
            {"data_table": TableName("ks", "metadata"), "metadata_table": TableName("ks", "data")},
            ["ks.metadata as data table", "Set --data-table ks.data --metadata-table ks.metadata"],
        ),
        ({"metadata_table": TableName("ks", "m")}, ["ks.data belongs to ks.metadata, w", "--metadata-table ks.met"]),
        (
            {**OTHER_PAIR, "numbering": "number"},
            ["ks.data and ks.metadata hold", "one numbering", "--class-names name", "--dataset imagenette_by_number"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_type(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConflictError) as caught:
        check_fits(replace(NAMED, **change), known=[MASKS, NAMED])
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    if "other tables: " in message and "metadata_table" not in change:  # metadata_2 exists
        tables = replace(NAMED, **change)
        assert f"--data-table {tables.data_table}_3 --metadata-table {tables.metadata_table}_3" in message
