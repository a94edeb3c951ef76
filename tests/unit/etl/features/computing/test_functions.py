"""Feature functions: what they take, what their values are stored as, and what is refused."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from etl.errors import FunctionError
from etl.features.computing import builtin
from etl.features.computing.functions import (
    ValueMismatchError,
    agreed_fields,
    computed,
    digest_of,
    fields_of,
    is_unchanged,
    load,
    modules_unknown,
    row_of,
)
from etl.features.computing.pictures import Picture
from schemas.feature_sources import Builtin, Python
from schemas.features import FeatureView
from tests.support import feature_functions
from tests.support.encoding import encoded

FUNCTIONS = feature_functions.__name__


def value(name: str, data: bytes) -> Any:
    return builtin.VIEWS[name].compute(Picture(data))


def view(fields: dict[str, str], name: str = "x") -> FeatureView:
    return FeatureView(name=name, version=1, fields=fields, source=Python("m", "f"), digest="0" * 64)


def test_built_in_values_are_those_of_their_formulas() -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    data = encoded(rgb)
    gray = np.asarray(Image.fromarray(rgb).convert("L")).astype(np.float64)
    laplacian = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * gray[1:-1, 1:-1]
    shares = np.unique(gray, return_counts=True)[1] / gray.size
    assert value("size", data) == {"size_width": 30, "size_height": 20}
    assert value("brightness", data) == pytest.approx(gray.mean())
    assert value("sharpness", data) == pytest.approx(laplacian.var())
    assert value("entropy", data) == pytest.approx(-(shares * np.log2(shares)).sum())
    channels = value("channels", data)
    assert channels["channels_mean_red"] == pytest.approx(rgb[..., 0].mean())
    assert channels["channels_deviation_blue"] == pytest.approx(rgb[..., 2].std())


def test_built_in_values_of_images_without_detail() -> None:
    flat = encoded(np.full((2, 2), 7, np.uint8))
    assert value("sharpness", flat) is None  # too small for a Laplacian
    assert value("entropy", flat) == 0
    assert value("phash", flat) is None


def test_every_built_in_view_returns_its_fields() -> None:
    data = encoded(np.random.default_rng(1).integers(0, 256, (40, 40, 3), dtype=np.uint8), "JPEG")
    for name in builtin.VIEWS:
        found = builtin.view_of(name)
        ((values, error),) = computed(found, load(Builtin(name)), [Picture(data)])
        assert error == ""
        assert values is not None
        assert None not in values


def test_the_digest_of_a_function_of_pixels_follows_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, encoded_bytes = Python(FUNCTIONS, "redness"), Python(FUNCTIONS, "about")
    before = digest_of(pixels), digest_of(encoded_bytes)
    assert digest_of(Python(FUNCTIONS, "moments")) == before[0] != before[1]
    monkeypatch.setattr("etl.features.computing.functions.DECODER", "another")
    assert digest_of(pixels) != before[0]
    assert digest_of(encoded_bytes) == before[1]


def test_the_digest_follows_the_modules_that_the_module_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = "import digest_helper\ndef size(image: bytes) -> int:\n    return digest_helper.size(image)\n"
    (tmp_path / "digest_sizes.py").write_text(text)
    (tmp_path / "digest_helper.py").write_text("def size(image): return len(image)")
    source = Python("digest_sizes", "size")
    new, of_earlier_versions = digest_of(source), hashlib.sha256(text.encode()).hexdigest()
    assert is_unchanged(source, new)
    monkeypatch.delitem(sys.modules, "digest_sizes")  # as in a new process
    assert (modules_unknown(source, new), modules_unknown(source, of_earlier_versions)) == ([], ["digest_helper"])
    (tmp_path / "digest_helper.py").write_text("def size(image): return -len(image)")
    assert not is_unchanged(source, new)
    assert is_unchanged(source, of_earlier_versions)  # which did not tell
    (tmp_path / "digest_helper.py").unlink()
    assert not is_unchanged(source, new)
    (tmp_path / "digest_sizes.py").write_text(f"{text}#")
    assert not is_unchanged(source, of_earlier_versions)


def test_annotations_say_what_a_function_takes() -> None:
    pictures = [Picture(encoded(np.full((4, 4, 3), shade, np.uint8))) for shade in (3, 5)]
    assert load(Python(FUNCTIONS, "redness")).values(pictures) == [3.0, 5.0]
    moments = load(Python(FUNCTIONS, "moments"))
    assert moments.takes_lists
    assert [one[0] for one in moments.values(pictures)] == [3.0, 5.0]
    assert load(Python(FUNCTIONS, "about")).values(pictures[:1]) == [{"bytes": len(pictures[0].data), "kind": "PNG"}]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Python("no.such", "f"), "No module named 'no'"),
        (Python(FUNCTIONS, "nothing"), "no such name"),
        (Python(FUNCTIONS, "unclear"), "no annotation"),
        (Python("os.path", "join"), "parameters without a default"),
    ],
)
def test_functions_that_cannot_be_used_are_refused(source: Python, message: str) -> None:
    with pytest.raises(FunctionError, match=message):
        load(source)


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        (True, {"x": "boolean"}),
        (7, {"x": "bigint"}),
        (np.int32(7), {"x": "int"}),
        (0.5, {"x": "double"}),
        (np.float32(0.5), {"x": "float"}),
        ("a", {"x": "text"}),
        (b"a", {"x": "blob"}),
        ([1, 2, 3], {"x": "float[3]"}),
        (np.zeros(512), {"x": "float[512]"}),
        ({"low": 1, "x_high": 2.0}, {"x_low": "bigint", "x_high": "double"}),
    ],
)
def test_a_value_has_a_type(found: Any, fields: dict[str, str]) -> None:
    assert fields_of("x", found) == fields
    assert row_of(view(fields), found) is not None


@pytest.mark.parametrize(
    ("function", "kind"),
    [("redness", "double"), ("raises", "bigint"), ("hangs", "bigint"), ("about", None), ("reshapes", None)],
)
def test_the_annotation_of_the_result_says_the_type_if_it_names_one(function: str, kind: str | None) -> None:
    assert load(Python(FUNCTIONS, function)).returns == kind


def test_a_value_decides_the_type_only_where_the_annotation_does_not() -> None:
    assert fields_of("x", 0, returns="double") == {"x": "double"}
    assert fields_of("x", {"a": 0, "b": None}, returns="double") == {"x_a": "double", "x_b": "double"}
    with pytest.raises(ValueMismatchError, match=r"Wanted double for x\. Found: str 'a'"):
        fields_of("x", "a", returns="double")


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [
        ("float[2]", "float[2]", "float[2]"),
        ("float[2]", "float[3]", None),
        ("bigint", "double", "double"),
        ("float", "bigint", "double"),
        ("bigint", "int", "bigint"),
        ("bigint", "text", None),
        ("boolean", "int", None),
    ],
)
def test_two_images_agree_on_a_type_that_has_the_values_of_both(one: str, other: str, agreed: str | None) -> None:
    wanted = None if agreed is None else {"x": agreed, "y": "text"}
    for first, second in ((one, other), (other, one)):
        assert agreed_fields({"x": first, "y": "text"}, {"y": "text", "x": second}) == wanted
    assert agreed_fields({"x": one}, {"y": one}) is None


@pytest.mark.parametrize(
    "found", [np.zeros((2, 2)), [], ["a", "b"], object(), {}, {1: 2}, {"a": 1, "x_a": 2}, [[1], [1, 2]]]
)
def test_other_values_have_no_type(found: Any) -> None:
    with pytest.raises(ValueMismatchError, match="Wanted"):
        fields_of("x", found)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("boolean", 1),
        ("int", 2**31),
        ("bigint", True),
        ("bigint", 2**63),
        ("float", float("nan")),
        ("float", 1e39),
        ("double", float("inf")),
        ("double", "1"),
        ("text", b"a"),
        ("float[2]", [1, 2, 3]),
        ("float[2]", [1, float("nan")]),
        ("float[2]", {"a": 1}),
    ],
)
def test_values_of_another_type_are_refused(kind: str, found: Any) -> None:
    with pytest.raises(ValueMismatchError, match=r"Wanted .* Found:"):
        row_of(view({"x": kind}), found)
    with pytest.raises(ValueMismatchError, match=r"Wanted the fields x_a\. Found: a, x_a"):
        row_of(view({"x_a": "int"}), {"a": 1, "x_a": 2})


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=64))
def test_a_vector_is_stored_as_little_endian_float32(numbers: list[float]) -> None:
    (stored,) = row_of(view({"x": f"float[{len(numbers)}]"}), numbers)
    assert np.frombuffer(stored, "<f4").tolist() == numbers


def test_a_bad_image_costs_only_its_own_value_in_a_list() -> None:
    data = [encoded(np.full((4, 4, 3), 9, np.uint8)), b"no image", encoded(np.full((4, 4, 3), 8, np.uint8))]
    found = computed(view({"x": "float[6]"}), load(Python(FUNCTIONS, "moments")), list(map(Picture, data)))
    assert [error for _, error in found] == ["", "not an image", ""]
    assert found[1][0] is None
