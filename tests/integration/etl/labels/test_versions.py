"""Which labels of versions count for what an image is, from literal rows."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.columns import ours
from etl.labels.corrections import State
from etl.labels.versions import LabelVersions
from schemas import TableName
from schemas.feature_sources import Labels
from schemas.features import FeatureView
from tests.support.spark_rows import rows_of

VIEWS = tuple(
    FeatureView(name="v", version=run, fields={"v": "int"}, source=Labels("x"), digest="0" * 64, sequence=run)
    for run in (2, 1)
)


@pytest.mark.parametrize(
    ("sha256", "uses_replaced", "wanted"),
    [
        ("b", False, (20, False)),
        ("a", False, (10, False)),  # its former bytes: the first version counts again
        ("a", True, (20, True)),
        ("c", False, (None, True)),
    ],
)
def test_an_image_counts_as_replaced_if_its_label_is_not_of_its_bytes(
    spark: SparkSession, sha256: str, uses_replaced: bool, wanted: tuple[int | None, bool]
) -> None:
    versions = LabelVersions(
        metadata=TableName("k", "m"),
        views=VIEWS,
        recorded=frozenset(one for view in VIEWS for one in view.label_columns),
    )
    names = [name for view in VIEWS for name in view.label_columns]
    row = (20, bytearray(b"b"), 0, 10, bytearray(b"a"), 0)
    rows = rows_of(spark, [row], ", ".join(f"c{n} {'BINARY' if n % 3 == 1 else 'INT'}" for n in range(6)))
    rows = rows.toDF(*(ours(f"v {name}") for name in names))
    now = State(F.lit(5), F.lit(bytearray(sha256.encode())), F.lit(0))
    label = versions.correction(now=now, uses_replaced=uses_replaced)["label"]
    (found,) = rows.select(label, versions.replaced(now=now, uses_replaced=uses_replaced)).collect()
    assert tuple(found) == wanted
