"""Quotas: the arithmetic of how many images of each class go where."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.splits.plan import parse_numbers
from etl.splits.quotas import apportion, quota_matrix
from etl.splits.weights import class_totals, random_weights

RATIOS = st.lists(
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000), min_size=1, max_size=7
)


def off_the_ideal(totals: Sequence[int], ratios: Sequence[Fraction], seed: int) -> list[str]:
    """Every way in which the matrix is no controlled rounding of its ideal."""
    quotas = quota_matrix(totals, ratios, seed=seed)
    found = []
    for label, total in enumerate(totals):
        if quotas[label].sum() != total:
            found.append(f"class {label} has {quotas[label].sum()} of {total}")
        for split, ratio in enumerate(ratios):
            ideal = total * ratio / sum(ratios)
            if not floor(ideal) <= quotas[label, split] <= ceil(ideal):
                found.append(f"cell {label}, {split} is {quotas[label, split]}, ideally {ideal}")
    for split, ratio in enumerate(ratios):
        ideal = sum(totals) * ratio / sum(ratios)
        if not floor(ideal) <= quotas[:, split].sum() <= ceil(ideal):
            found.append(f"split {split} is {quotas[:, split].sum()}, ideally {ideal}")
    return found


@settings(max_examples=150, deadline=None)
@given(totals=st.lists(st.integers(0, 40), min_size=1, max_size=30), ratios=RATIOS, seed=st.integers(0, 2**32))
def test_every_cell_and_every_total_is_its_ideal_rounded_down_or_up(
    totals: list[int], ratios: list[Fraction], seed: int
) -> None:
    assert off_the_ideal(totals, ratios, seed) == []


@pytest.mark.parametrize("rows", [13, 1, 2, 3, 7])
def test_totals_do_not_drift_over_many_small_classes(rows: int) -> None:
    assert off_the_ideal([rows] * 1000, [Fraction(8), Fraction(2)], seed=3) == []


def test_quotas_avoid_the_drift_of_plain_rounding() -> None:
    quotas = quota_matrix([13] * 1000, [Fraction(8), Fraction(2)], seed=0)
    assert quotas.sum(axis=0).tolist() == [10_400, 2_600]


def test_ties_follow_the_seed() -> None:
    ratios = [Fraction(1), Fraction(1)]
    matrices = {quota_matrix([1] * 12, ratios, seed=seed).tobytes() for seed in range(10)}
    assert len(matrices) > 5
    again = [quota_matrix([1] * 12, ratios, seed=4).tobytes() for _ in range(2)]
    assert again[0] == again[1]


def test_uniform_takes_as_many_of_each_class_as_of_the_rarest() -> None:
    assert class_totals([90, 30, 50], [Fraction(1)] * 3) == [30, 30, 30]


def test_weights_take_the_largest_set_in_their_proportion() -> None:
    assert class_totals([90, 30, 50], [Fraction(3), Fraction(1), Fraction(0)]) == [90, 30, 0]
    assert class_totals([100, 100], [Fraction("0.7"), Fraction("0.3")]) == [100, 42]


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=20),
    weights=st.data(),
)
def test_weighted_totals_fit_the_classes_and_exhaust_one(counts: list[int], weights: st.DataObject) -> None:
    drawn = weights.draw(st.lists(st.fractions(0, 9, max_denominator=100), min_size=len(counts), max_size=len(counts)))
    if not any(drawn):
        drawn[0] = Fraction(1)
    totals = class_totals(counts, drawn)
    assert all(0 <= total <= count for total, count in zip(totals, counts, strict=True))
    assert any(total == count for total, count, weight in zip(totals, counts, drawn, strict=True) if weight)


@pytest.mark.parametrize("weights", [[1], [1, 1, 1], [0, 0], [1, -1]])
def test_invalid_weights_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="Wanted"):
        class_totals([5, 5], [Fraction(weight) for weight in weights])


def test_random_weights_depend_on_seed_and_class_alone() -> None:
    assert random_weights([3, 8], 1) == [random_weights([8, 3], 1)[1], random_weights([8], 1)[0]]
    assert random_weights(range(50), 1) != random_weights(range(50), 2)
    assert all(0 < weight <= 1 for weight in random_weights(range(1000), 5))


@pytest.mark.parametrize(
    "text", ["", "a", "8,", "8;2", "-1,2", "1e9", "nan", "inf", "8,-2", "1/2", "٣", "1" + "0" * 12]
)
def test_ratios_that_are_not_plain_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Wanted split ratios"):
        parse_numbers(text, what="split ratios")


def test_decimal_numbers_are_parsed_exactly() -> None:
    assert parse_numbers(" 0.7, .2,0.1 ", what="ratios") == (Fraction(7, 10), Fraction(1, 5), Fraction(1, 10))


@st.composite
def held(draw: st.DrawFn) -> tuple[list[int], list[Fraction], list[list[int]]]:
    """Totals, ratios, and images that are in splits already, no more than there are."""
    ratios = draw(RATIOS)
    fixed, totals = [], []
    for _ in range(draw(st.integers(1, 12))):
        row = draw(st.lists(st.integers(0, 9), min_size=len(ratios), max_size=len(ratios)))
        fixed.append(row)
        totals.append(sum(row) + draw(st.integers(0, 20)))
    return totals, ratios, fixed


@settings(max_examples=100, deadline=None)
@given(given_=held(), seed=st.integers(0, 2**32))
def test_fixed_images_stay_and_the_rest_fills_the_splits_evenly(
    given_: tuple[list[int], list[Fraction], list[list[int]]], seed: int
) -> None:
    totals, ratios, fixed = given_
    quotas = quota_matrix(totals, ratios, seed=seed, fixed=fixed)
    assert quotas.sum(axis=1).tolist() == totals
    for label, row in enumerate(quotas.tolist()):
        assert all(got >= there for got, there in zip(row, fixed[label], strict=True))
        # Where something was added, no other split is behind by a whole image and more: water finds one level.
        added = [s for s, (got, there) in enumerate(zip(row, fixed[label], strict=True)) if got > there]
        for high in added:
            assert all((row[high] - 1) / ratios[high] < (row[low] + 1) / ratios[low] for low in range(len(ratios)))
    if all(
        there * sum(ratios) <= total * r
        for total, of in zip(totals, fixed, strict=True)
        for there, r in zip(of, ratios, strict=True)
    ):
        for split, ratio in enumerate(ratios):
            ideal = sum(totals) * ratio / sum(ratios)
            assert floor(ideal) <= quotas[:, split].sum() <= ceil(ideal)


def test_strata_of_one_class_together_keep_its_share() -> None:
    strata, classes = [3] * 400, [place // 40 for place in range(400)]
    quotas = quota_matrix(strata, [Fraction(8), Fraction(1), Fraction(1)], seed=1, families=classes)
    of_class = quotas.reshape(10, 40, 3).sum(axis=1)
    assert abs(of_class - [96, 12, 12]).max() <= 2


@given(total=st.integers(0, 100), shares=st.lists(st.integers(0, 50), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_apportioned_numbers_are_their_ideals_rounded_down_or_up(total: int, shares: list[int], seed: int) -> None:
    total = min(total, sum(shares))
    found = apportion(total, shares, seed=seed)
    assert sum(found) == total
    for number, part in zip(found, shares, strict=True):
        ideal = Fraction(total * part, sum(shares)) if sum(shares) else 0
        assert floor(ideal) <= number <= min(ceil(ideal), part)
