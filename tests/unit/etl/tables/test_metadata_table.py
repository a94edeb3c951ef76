"""Facts of a metadata table that need no table."""

from etl.tables.metadata_table import is_deleted, label_type_of
from schemas.tables import DELETED, PRUNED


def test_an_image_is_deleted_until_it_comes_back() -> None:
    found = {(since, kind): is_deleted(since, kind=kind, until=5) for since in (0, 4, 6) for kind in (DELETED, PRUNED)}
    assert [key for key, deleted in found.items() if deleted] == [(0, DELETED), (4, DELETED)]


def test_columns_say_of_which_type_labels_are() -> None:
    assert [label_type_of(kind, ["label"]) for kind in (None, "int", "bigint", "blob")] == [
        "none",
        "int",
        "int",
        "blob",
    ]
    assert [label_type_of(kind, ["label", "labels"]) for kind in (None, "int", "blob")] == ["none", "int", "multi"]
