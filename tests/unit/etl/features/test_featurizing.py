"""Names that features cannot have."""

from dataclasses import replace
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
        check_names(table, [view], known=())
    others = FeatureView(name="sharp", version=1, fields={"sharp": "int"}, source=Builtin("sharp"), digest="0" * 64)
    check_names(table, [others], known=())
    with pytest.raises(ConflictError, match="Wanted another name than position, which is a column of every split"):
        check_names(table, [replace(others, name="position", fields={"position": "int"})], known=())
    one, other = (replace(others, name=name, fields={"a_b_c": "int"}) for name in ("a", "a_b"))
    check_names(table, [replace(one, version=2)], known=[one])
    for views, known in (([one], [other]), ([one, other], [])):
        with pytest.raises(ConflictError, match="Wanted another name than a_b_c, which is a field of a_b@v1"):
            check_names(table, views, known=known)
