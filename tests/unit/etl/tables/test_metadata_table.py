"""Facts of a metadata table that need no table."""

from etl.tables.metadata_table import label_type_of


def test_columns_say_of_which_type_labels_are() -> None:
    assert [label_type_of(kind, ["label"]) for kind in (None, "int", "bigint", "blob")] == [
        "none",
        "int",
        "int",
        "blob",
    ]
    assert [label_type_of(kind, ["label", "labels"]) for kind in (None, "int", "blob")] == ["none", "int", "multi"]
