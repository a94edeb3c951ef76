"""The tables that images are removed from."""

from etl.tables.removal import tables_beside


def test_tables_of_values_are_not_those_of_another_metadata_table() -> None:
    names = ["people", "people_label", "people_old", "people_old_label", "people_older_v1", "peoples_label", "data"]
    assert tables_beside("people", names, others={"people", "people_old"}) == ["people_label", "people_older_v1"]
    assert tables_beside("people_old", names, others={"people", "people_old"}) == ["people_old_label"]
