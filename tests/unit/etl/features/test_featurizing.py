"""Names that features cannot have."""

from typing import Any

import pytest

from etl.errors import ConflictError
from etl.features.featurizing import check_names
from etl.tables.metadata_table import MetadataTable
from schemas import Columns, TableName
from schemas.feature_sources import Builtin
from schemas.features import FeatureView


@pytest.mark.parametrize("name", ["id", "label", "klasse", "labels", "theirs", "since", "xxhash64"])
def test_a_field_has_no_name_of_a_column_that_the_table_has_or_will_get(name: str) -> None:
    nobody: Any = None
    fields = {"id": "uuid", "klasse": "int", "theirs": "text"}  # of an earlier version, without since and xxhash64
    table = MetadataTable(
        spark=nobody, control=nobody, name=TableName("ks", "metadata"), columns=Columns(label="klasse"), fields=fields,
        runs=(), history=None, record=None,
    )  # fmt: skip
    view = FeatureView(name=name, version=1, fields={name: "int"}, source=Builtin(name), digest="0" * 64)
    with pytest.raises(ConflictError, match=f"Wanted another name than {name}, which is a column of ks.metadata"):
        check_names(table, [view])
    others = FeatureView(name="sharp", version=1, fields={"sharp": "int"}, source=Builtin("sharp"), digest="0" * 64)
    check_names(table, [others])
