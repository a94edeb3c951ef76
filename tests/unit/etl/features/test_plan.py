"""Feature requests as they are written on the command line."""

import pytest

from etl.features.plan import FeatureRequest, FeaturizePlan
from schemas import TableName
from schemas.feature_sources import FeatureSource, Onnx, Preprocess, Python, Sql
from schemas.features import ViewName


def sources(*texts: str, preprocess: str | None = None) -> dict[str, FeatureSource | None]:
    return {str(one.view): one.source for one in FeatureRequest.parse_all(texts, preprocess=preprocess)}


def test_requests_name_views_and_sources() -> None:
    assert sources("a,b@v2", "c=m.n:f") == {"a": None, "b@v2": None, "c": Python("m.n", "f")}
    assert sources("a=onnx:/x/m.onnx,b") == {"a": Onnx(Preprocess(), "/x/m.onnx"), "b": None}
    assert sources("a=onnx:m", preprocess="clip@8x9") == {"a": Onnx(Preprocess("clip", (8, 9)), "m")}
    sql = Sql("round(x, 2)")
    assert sources("a", "b,c@v2=sql: round(x, 2) ", "d") == {"a": None, "b": None, "c@v2": sql, "d": None}
    assert FeatureRequest.parse("a@v3=sql:x").view == ViewName("a", 3)


@pytest.mark.parametrize(
    ("text", "preprocess", "message"),
    [
        ("a=os", None, r"NAME=MODULE:FUNCTION, NAME=onnx:FILE or NAME=sql:EXPRESSION\. Found: 'a=os'"),
        ("a__b=m:f", None, "Wanted the name of a feature view"),
        ("a=onnx:m", "vgg", r"Wanted imagenet, clip, 0-1 or none for --onnx-preprocess.* Found: 'vgg'"),
        ("a", "clip", r"Wanted a feature NAME=onnx:FILE for --onnx-preprocess clip\. Found: none"),
    ],
)
def test_wrong_requests_are_refused(text: str, preprocess: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureRequest.parse_all([text], preprocess=preprocess)


def test_a_vector_index_of_expressions_is_refused() -> None:
    tables = {f"{name}_table": TableName("ks", name) for name in ("data", "metadata")}
    features = FeatureRequest.parse_all(["a=sql:x"])
    with pytest.raises(ValueError, match=r"Wanted --vector-index only .* that are stored\. Found: a, computed when"):
        FeaturizePlan(**tables, features=features, vector_index=True)
