"""Names and definitions of feature views."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import IdentifierError, SchemaError, TableName
from schemas.feature_sources import Python
from schemas.features import FeatureView, ServiceName, ViewName, cql_type, parse_feature, spark_type, vector_length

DIGEST = "0" * 64


def view(**changes: object) -> FeatureView:
    fields = {"name": "red", "version": 1, "fields": {"red": "float"}, "source": Python("m", "f"), "digest": DIGEST}
    return FeatureView(**{**fields, **changes})  # type: ignore[arg-type]


@given(st.from_regex(r"[a-z][a-z0-9]{0,9}(_[a-z0-9]{1,8})?", fullmatch=True), st.none() | st.integers(1, 9999))
def test_a_name_is_read_as_it_is_written(name: str, version: int | None) -> None:
    assert ViewName.parse(str(ViewName(name, version))) == ViewName(name, version)


@pytest.mark.parametrize("text", ["", "Red", "1a", "a-b", "a__b", "a_", "a@2", "a@v0", "a@v", "a@v1@v2", "a" * 33])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(IdentifierError, match="Wanted"):
        ViewName.parse(text)


def test_a_service_is_written_beside_views() -> None:
    service = ServiceName(ViewName("sorting", 2))
    assert parse_feature("service:sorting@v2") == service != parse_feature("sorting@v2") == service.service
    assert str(service) == "service:sorting@v2"
    with pytest.raises(IdentifierError, match="Wanted the name"):
        parse_feature("service:")


def test_a_definition_is_read_as_it_is_written() -> None:
    made = view(fields={"red_mean": "float", "red_vector": "float[512]"})
    assert FeatureView.from_json(made.to_json(), place="here") == made
    assert [cql_type(kind) for kind in made.fields.values()] == ["float", "blob"]
    assert [spark_type(kind) for kind in made.fields.values()] == ["FLOAT", "BINARY"]
    assert vector_length("float[512]") == 512


@pytest.mark.parametrize(
    "source", ["builtin:red", "python:m:f", "onnx:clip@8x9:/x/m.onnx", "sql:a / 2", "labels:new.csv"]
)
def test_a_stored_definition_is_written_as_it_was_read(source: str) -> None:
    own = {"name": "red", "version": 2, "fields": {"red": "float"}, "source": source, "digest": DIGEST}
    stored = {**own, "sequence": None, "uses": ["size@v1"], "format": 1}
    text = json.dumps(stored, ensure_ascii=False, sort_keys=True)
    made = FeatureView.from_json(text, place="here")
    assert made.to_json() == text
    earlier = json.dumps({**stored, "ttl": 3600})  # as earlier versions wrote it
    assert FeatureView.from_json(earlier, place="here") == made
    assert made.is_on_demand == source.startswith("sql:")
    with pytest.raises(SchemaError, match=r"at here\. Found: a damaged one\. Wanted the source of .* Found: 'x'"):
        FeatureView.from_json(json.dumps({**stored, "source": "x"}), place="here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": {}}, "Found: none"),
        ({"fields": {"blue": "float"}}, r"Wanted the field name red, or red_ .* Found: 'blue'"),
        ({"fields": {"red": "real"}}, r"Wanted a type of boolean, .* Found: 'real'"),
        ({"fields": {"red": "float[0]"}}, r"Found: 'float\[0\]'"),
        ({"fields": {"red": "float[65537]"}}, r"for up to 65,536 numbers"),
        ({"digest": "x"}, "digits of 0-9 and a-f"),
    ],
)
def test_wrong_definitions_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        view(**changes)


def test_values_are_in_a_table_beside_the_metadata() -> None:
    metadata = TableName("ks", "metadata")
    assert str(view(version=3).table_of(metadata)) == "ks.metadata_red_v3"
    assert str(view(version=3, sequence=7).table_of(metadata)) == "ks.metadata_red"  # versions of labels share one
    with pytest.raises(IdentifierError, match=r"at most 48 characters.* Use a shorter name"):
        view(name="r" * 32, fields={"r" * 32: "float"}, version=1000).table_of(TableName("ks", "metadata_of_training"))


def test_the_tables_of_a_view_fit_beside_a_long_metadata_table_and_differ_for_each() -> None:
    vectors = view(name="embedding", fields={"embedding": "float[8]"})
    longest, other = TableName("ks", "m" * 48), TableName("ks", "m" * 47 + "n")
    names = [name for table in (longest, other) for name in (vectors.table_of(table), vectors.index_table_of(table))]
    assert len(set(names)) == 4
    for name in names:
        assert TableName.parse(str(name)) == name
        assert name.table.endswith(("_embedding_v1", "_embedding_v1_index"))
    assert max(len(f"{vectors.index_table_of(table).table}_ann") for table in (longest, other)) == 48
