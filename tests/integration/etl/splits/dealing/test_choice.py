"""Splits of DataFrames are exact, and the same for any partitioning."""

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import TableError
from etl.splits.dealing import choice
from etl.splits.dealing.methods import deal_strata
from etl.splits.dealing.shares import Shares, share
from etl.splits.dealing.steps import deal, order_rows
from etl.splits.dealing.survey import survey
from etl.splits.metadata import Metadata
from etl.splits.plan import SplitPlan
from formats.hashing import xxhash64
from schemas import TableName, image_id
from tests.support.spark_rows import rows_of

CLASSES = {0: 200, 3: 61, 4: 13, 9: 1}
"""Rows by class number: uneven, with gaps between the numbers, one class with a single row."""

ROWS = [(image_id("test", b"", f"{c}/{n}".encode()).bytes, c) for c, rows in CLASSES.items() for n in range(rows)]


BY_LABEL = {"label": "label"}


def plan(**options: object) -> SplitPlan:
    """A plan over tables that these tests never read."""
    given = {"out": "unused", "ratios": (Fraction(8), Fraction(2)), "seed": 7, **options}
    return SplitPlan(data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"), **given)  # type: ignore[arg-type]


def images(spark: SparkSession, rows: Sequence[tuple[bytes | None, int | None]] = ROWS) -> DataFrame:
    """Rows in the form of a metadata copy."""
    return rows_of(spark, [(bytearray(i) if i else None, c) for i, c in rows], "id BINARY, label INT")


def shares_of(rows: DataFrame, this: SplitPlan) -> Shares:
    """The size of each class in each split."""
    assert this.ratios is not None
    assert this.data_table is not None
    assert this.metadata_table is not None
    metadata = Metadata(
        rows=rows,
        data_table=this.data_table,
        metadata_table=this.metadata_table,
        columns=this.columns,
        label_type="int",
        class_names={},
    )
    strata = survey(rows, by=BY_LABEL, plan=this, metadata=metadata, splits=len(this.ratios)).strata
    return share(strata, ratios=this.ratios, plan=this, names={})


def assigned(spark: SparkSession, rows: DataFrame, this: SplitPlan) -> list[tuple[int, bytes, int, int]]:
    """From images to positions: (split, id, label, position), sorted."""
    dealt = deal_strata(spark, rows, shares_of(rows, this), by=BY_LABEL, plan=this, keep=[])
    ordered = order_rows(dealt.rows, sizes=dealt.sizes, seed=this.seed)
    return sorted((row["split"], bytes(row["id"]), row["label"], row["position"]) for row in ordered.collect())


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> list[tuple[int, bytes, int, int]]:
    return assigned(spark, images(spark).coalesce(1), plan())


def test_a_split_is_the_same_for_any_partitioning_and_any_order_of_the_input(
    spark: SparkSession, expected: list[tuple[int, bytes, int, int]]
) -> None:
    shuffled = random.Random(7).sample(ROWS, len(ROWS))
    assert assigned(spark, images(spark, shuffled).repartition(7), plan()) == expected


@pytest.mark.parametrize("values", [1 << 64, 5])
def test_rows_are_dealt_in_seeded_order_however_it_is_distributed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    """Also if a cut is not where it is expected, and if rows share an order key."""
    shift = F.lit((1 << 62) + 1)
    order = F.xxhash64("id").bitwiseAND(shift) if values > 5 else F.pmod(F.xxhash64("id"), F.lit(values)) - shift
    monkeypatch.setattr(choice, "choice_order", lambda seed: order)
    rows = images(spark)
    in_order = sorted(
        (row["stratum"], row["choice"], bytes(row["id"]))
        for row in rows.select(F.col("label").alias("stratum"), order.alias("choice"), "id").collect()
    )
    quotas = {0: [33, 0, 67], 3: [1, 59, 1], 4: [0, 0, 0], 9: [0, 1, 0]}
    wanted = {}
    for stratum, of_split in quotas.items():
        ids = iter([i for s, _, i in in_order if s == stratum])
        wanted |= {i: split for split, number in enumerate(of_split) for i in islice(ids, number)}
    strata = rows.withColumn("stratum", F.col("label"))
    dealt = deal(spark, strata, free=CLASSES, quotas=quotas, splits=3, seed=7)
    assert {bytes(row["id"]): row["split"] for row in dealt.collect()} == wanted


def test_rows_that_differ_from_those_counted_are_refused(spark: SparkSession) -> None:
    strata = images(spark).withColumn("stratum", F.col("label"))
    with pytest.raises(TableError, match="Wanted the rows that were counted before"):
        deal(spark, strata, free={**CLASSES, 9: 8}, quotas={9: [5]}, splits=1, seed=7)


def test_no_row_is_lost_or_duplicated(expected: list[tuple[int, bytes, int, int]]) -> None:
    assert Counter((i, c) for _, i, c, _ in expected) == Counter(ROWS)


def test_counts_equal_the_quota_matrix(expected: list[tuple[int, bytes, int, int]]) -> None:
    found = Counter((split, label) for split, _, label, _ in expected)
    assert {split: sum(n for (s, _), n in found.items() if s == split) for split in (0, 1)} == {0: 220, 1: 55}
    assert (found[0, 0], found[1, 0]) == (160, 40)
    assert found[0, 3] in (48, 49)
    assert found[0, 4] in (10, 11)
    assert found[0, 9] in (0, 1)


def test_positions_are_dense_and_follow_the_seeded_hash(expected: list[tuple[int, bytes, int, int]]) -> None:
    for split in (0, 1):
        rows = sorted((position, i) for s, i, _, position in expected if s == split)
        assert [position for position, _ in rows] == list(range(len(rows)))
        ids = np.frombuffer(b"".join(i for _, i in rows), dtype=np.uint8).reshape(-1, 16)
        hashes = xxhash64([np.full(len(ids), 7, dtype=np.int64), ids])
        assert np.all(np.diff(hashes) > 0)


def test_another_seed_chooses_other_rows(spark: SparkSession, expected: list[tuple[int, bytes, int, int]]) -> None:
    other = assigned(spark, images(spark), plan(seed=8))
    assert {i for s, i, _, _ in other if s == 1} != {i for s, i, _, _ in expected if s == 1}
    assert Counter(s for s, *_ in other) == Counter(s for s, *_ in expected)


def test_positions_do_not_depend_on_classes_when_balanced(spark: SparkSession) -> None:
    rows = [
        (image_id("t", b"", f"{c}/{n}".encode()).bytes, c) for c, size in ((0, 3000), (1, 300)) for n in range(size)
    ]
    found = assigned(spark, images(spark, rows), plan(balance="uniform", ratios=(Fraction(1),)))
    first_half = Counter(label for _, _, label, position in found if position < 300)
    assert len(found) == 600
    assert 110 < first_half[0] < 190  # half of 300, within five standard deviations


def test_negative_labels_are_refused(spark: SparkSession) -> None:
    with pytest.raises(TableError, match="1 images with a negative one"):
        shares_of(images(spark, [*ROWS[:5], (b"a" * 16, -1)]), plan())
