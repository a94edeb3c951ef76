"""Sources of feature views: their stored texts, and what users write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import SchemaError
from schemas.feature_sources import (
    PREPROCESSES,
    Builtin,
    FeatureSource,
    Labels,
    Onnx,
    Preprocess,
    Python,
    Sql,
    parse_source,
    parse_typed,
    typed,
)

TEXTS = st.text(min_size=1)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
SIDES = st.integers(1, 9999)
PYTHON = st.builds(Python, st.lists(NAMES, min_size=1, max_size=3).map(".".join), NAMES)
ONNX = st.builds(Onnx, st.builds(Preprocess, st.sampled_from(PREPROCESSES), st.none() | st.tuples(SIDES, SIDES)), TEXTS)
SOURCES = st.builds(Builtin, TEXTS) | PYTHON | ONNX | st.builds(Sql, TEXTS) | st.builds(Labels, TEXTS)


@given(SOURCES)
def test_a_source_is_read_as_it_is_stored(source: FeatureSource) -> None:
    assert parse_source(str(source)) == source


@given(
    PYTHON.filter(lambda one: one.module not in ("onnx", "sql"))
    | ONNX.filter(lambda one: one.file.strip())
    | TEXTS.map(str.strip).filter(bool).map(Sql)
)
def test_a_source_is_read_as_users_write_it(source: Python | Onnx | Sql) -> None:
    preprocess = source.preprocess if isinstance(source, Onnx) else Preprocess()
    assert parse_typed(typed(source), preprocess=preprocess) == source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("builtin:size", Builtin("size")),
        ("python:m.n:f", Python("m.n", "f")),
        ("onnx:imagenet:/x/a:b.onnx", Onnx(Preprocess(), "/x/a:b.onnx")),
        ("onnx:clip@8x9:m.onnx", Onnx(Preprocess("clip", (8, 9)), "m.onnx")),
        ("sql:CASE WHEN a = ':' THEN b END", Sql("CASE WHEN a = ':' THEN b END")),
        ("labels:new.csv", Labels("new.csv")),
    ],
)
def test_stored_texts_stay_as_they_are(text: str, source: FeatureSource) -> None:
    assert parse_source(text) == source
    assert str(source) == text


def test_definitions_of_people_may_be_shorter() -> None:
    assert parse_source("m.n:f") == Python("m.n", "f")
    assert parse_source("onnx:m.onnx") == Onnx(Preprocess(), "m.onnx")
    assert [typed(Builtin("size")), typed(Labels("new.csv"))] == ["size", "new.csv"]


@pytest.mark.parametrize("text", ["", "f", "builtin:", "python:", "python:m:", "python::f", "onnx:", "sql:", "labels:"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(
        SchemaError, match=r"Wanted the source of a feature view: builtin:NAME, .* Found: ''|Found: '\w"
    ):
        parse_source(text)


@pytest.mark.parametrize("text", ["", "os", "os:", "a b:f", "m:f(x)", "m:n:f", "onnx:", "onnx: ", "sql:", "sql: "])
def test_other_sources_of_users_are_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"Wanted MODULE:FUNCTION, onnx:FILE or sql:EXPRESSION\. Found: "):
        parse_typed(text, preprocess=Preprocess())


@pytest.mark.parametrize("text", ["", "vgg", "imagenet@", "imagenet@big", "clip@0", "clip@8x", "@224"])
def test_other_preprocesses_are_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"Wanted imagenet, clip, 0-1 or none for --onnx-preprocess.* Found: "):
        Preprocess.parse(text)
    with pytest.raises(SchemaError, match="--onnx-preprocess"):
        parse_source(f"onnx:{text}:m.onnx")


def test_a_size_of_one_number_is_a_square() -> None:
    assert str(Preprocess.parse("0-1@224")) == "0-1@224x224"
