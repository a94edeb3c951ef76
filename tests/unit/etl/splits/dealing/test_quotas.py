"""Quotas: how many images of each class go where."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from etl.splits.dealing.quotas import apportion, quotas, thinned
from etl.splits.dealing.weights import class_totals, random_weights
from etl.splits.plan import listed, parse_numbers, parse_ratios

Matrix = NDArray[np.int64]

RATIOS = st.lists(
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000), min_size=1, max_size=7
)


def off_the_ideal(totals: Sequence[int], ratios: Sequence[Fraction], seed: int) -> list[str]:
    """All ways in which the matrix is not a controlled rounding of its ideal."""
    matrix = quotas(totals, ratios, seed=seed).matrix
    found = []
    for label, total in enumerate(totals):
        if matrix[label].sum() != total:
            found.append(f"class {label} has {matrix[label].sum()} of {total}")
        for split, ratio in enumerate(ratios):
            ideal = total * ratio / sum(ratios)
            if not floor(ideal) <= matrix[label, split] <= ceil(ideal):
                found.append(f"cell {label}, {split} is {matrix[label, split]}, ideally {ideal}")
    for split, ratio in enumerate(ratios):
        ideal = sum(totals) * ratio / sum(ratios)
        if not floor(ideal) <= matrix[:, split].sum() <= ceil(ideal):
            found.append(f"split {split} is {matrix[:, split].sum()}, ideally {ideal}")
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
    matrix = quotas([13] * 1000, [Fraction(8), Fraction(2)], seed=0).matrix
    assert matrix.sum(axis=0).tolist() == [10_400, 2_600]


def test_ties_follow_the_seed() -> None:
    ratios = [Fraction(1), Fraction(1)]
    matrices = {quotas([1] * 12, ratios, seed=seed).matrix.tobytes() for seed in range(10)}
    assert len(matrices) > 5
    again = [quotas([1] * 12, ratios, seed=4).matrix.tobytes() for _ in range(2)]
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


def test_random_weights_depend_on_seed_and_class_alone() -> None:
    assert random_weights([3, 8], 1) == [random_weights([8, 3], 1)[1], random_weights([8], 1)[0]]
    assert random_weights(range(50), 1) != random_weights(range(50), 2)
    assert all(0 < weight <= 1 for weight in random_weights(range(1000), 5))


@pytest.mark.parametrize(
    "text", ["", "a", "8,", "8;2", "-1,2", "1e9", "nan", "inf", "8,-2", "1/2", "٣", "1" + "0" * 120, "1,0", "0.0"]
)
def test_ratios_that_are_not_plain_numbers_above_0_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Wanted split ratios as numbers above 0 with"):
        parse_ratios(text)


def test_decimal_numbers_of_any_length_are_parsed_and_written_exactly() -> None:
    for text in ("12345678901234567890.09876543210987654321", "0.1", "3", "100", "0.000000000001", "0"):
        (found,) = parse_numbers(text, what="ratios")
        assert listed([found]) == text
    long = parse_numbers("99999999999999999999999.5,.33333333333333333333,1", what="ratios")
    assert quotas([10, 7], long, seed=1).matrix.tolist() == [[10, 0, 0], [7, 0, 0]]
    assert parse_numbers(".5,.25", what="ratios") == (Fraction(1, 2), Fraction(1, 4))
    assert parse_numbers(" 0.7, .2,0.1 ", what="ratios") == (Fraction(7, 10), Fraction(1, 5), Fraction(1, 10))


@st.composite
def held(draw: st.DrawFn) -> tuple[list[int], list[Fraction], list[list[int]]]:
    """Totals, ratios, and at most as many images that are already in splits."""
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
    matrix = quotas(totals, ratios, seed=seed, fixed=fixed).matrix
    assert matrix.sum(axis=1).tolist() == totals
    for label, row in enumerate(matrix.tolist()):
        assert all(got >= there for got, there in zip(row, fixed[label], strict=True))
        # If a split got images, no other split is a whole image or more behind it.
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
            assert floor(ideal) <= matrix[:, split].sum() <= ceil(ideal)


def unrounded(totals: Sequence[int], ratios: Sequence[Fraction], margin: Sequence[int], matrix: Matrix) -> int:
    """Totals of a value in a split that are neither the floor nor the ceiling of the ideal."""
    found = 0
    for value in set(margin):
        rows = [row for row, one in enumerate(margin) if one == value]
        for split, ratio in enumerate(ratios):
            ideal = sum(totals[row] for row in rows) * ratio / sum(ratios)
            found += not floor(ideal) <= matrix[rows, split].sum() <= ceil(ideal)
    return found


def can_be_rounded(totals: Sequence[int], ratios: Sequence[Fraction], margins: Sequence[Sequence[int]]) -> bool:
    """Whether all totals can be rounded, by trying every rounding."""
    ideals = [[total * ratio / sum(ratios) for ratio in ratios] for total in totals]
    partitions = [[0] * len(totals), *margins]
    loads = [[[0] * len(ratios) for _ in range(max(partition) + 1)] for partition in partitions]
    sums = [[[Fraction(0)] * len(ratios) for _ in of] for of in loads]
    last = [{value: row for row, value in enumerate(partition)} for partition in partitions]
    for row, ideal in enumerate(ideals):
        for number, partition in enumerate(partitions):
            sums[number][partition[row]] = [a + b for a, b in zip(sums[number][partition[row]], ideal, strict=True)]

    def add(row: int, cells: Sequence[int], sign: int) -> bool:
        fits = True
        for number, partition in enumerate(partitions):
            value = partition[row]
            of_value, total = loads[number][value], sums[number][value]
            for split, cell in enumerate(cells):
                of_value[split] += sign * cell
                fits &= of_value[split] <= ceil(total[split])
                fits &= last[number][value] != row or of_value[split] >= floor(total[split])
        return fits

    def search(row: int) -> bool:
        if row == len(totals):
            return True
        down = [floor(cell) for cell in ideals[row]]
        part = [split for split, cell in enumerate(ideals[row]) if cell != down[split]]
        for up in combinations(part, totals[row] - sum(down)):
            cells = [cell + (split in up) for split, cell in enumerate(down)]
            if add(row, cells, 1) and search(row + 1):
                return True
            add(row, cells, -1)
        return False

    return search(0)


@st.composite
def crossed(draw: st.DrawFn) -> tuple[list[int], list[Fraction], list[list[int]]]:
    """Combinations of two or three columns, some of them missing, with few images each."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    cells = draw(st.lists(st.sampled_from(list(product(*map(range, sizes)))), min_size=1, max_size=8, unique=True))
    totals = draw(st.lists(st.integers(0, 6), min_size=len(cells), max_size=len(cells)))
    ratios = draw(st.lists(st.integers(1, 6).map(Fraction), min_size=2, max_size=4))
    return totals, ratios, [[cell[column] for cell in cells] for column in range(len(sizes))]


@settings(max_examples=200, deadline=None)
@given(given_=crossed(), seed=st.integers(0, 2**32))
def test_totals_of_each_column_are_rounded_wherever_that_is_possible(
    given_: tuple[list[int], list[Fraction], list[list[int]]], seed: int
) -> None:
    totals, ratios, margins = given_
    found = quotas(totals, ratios, seed=seed, margins=margins)
    wrong = [unrounded(totals, ratios, margin, found.matrix) for margin in margins]
    assert [(way.margin, way.off) for way in found.gave_way] == [(n, off) for n, off in enumerate(wrong) if off]
    assert not wrong[0]
    assert found.matrix.sum(axis=1).tolist() == totals
    assert not unrounded(totals, ratios, [0] * len(totals), found.matrix)
    assert not unrounded(totals, ratios, range(len(totals)), found.matrix)
    if any(wrong):
        assert not can_be_rounded(totals, ratios, margins)


def test_a_column_that_gives_way_is_named_with_its_distance() -> None:
    """Each pair of sites, scanners and classes has one of four images: two splits cannot divide all evenly."""
    cells = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]
    margins = [[cell[column] for cell in cells] for column in range(3)]
    assert not can_be_rounded([1] * 4, [Fraction(1)] * 2, margins)
    (way,) = quotas([1] * 4, [Fraction(1)] * 2, seed=0, margins=margins).gave_way
    assert way.margin > 0
    assert (way.off, way.totals, way.most) == (4, 4, 1.0)


@pytest.mark.parametrize("splits", [2, 10])
def test_totals_of_crossing_columns_are_rounded_over_many_strata(splits: int) -> None:
    """Sites cross classes, and super-classes hold classes."""
    random = np.random.default_rng(3)
    cells = [(row % 200, row // 200, row % 200 // 10) for row in range(2_000) if random.random() < 0.7]
    totals = random.integers(1, 30, len(cells)).tolist()
    ratios = [Fraction(int(part)) for part in random.integers(1, 9, splits)]
    margins = [[cell[column] for cell in cells] for column in range(3)]
    found = quotas(totals, ratios, seed=1, margins=margins)
    assert found.gave_way == ()
    assert [unrounded(totals, ratios, margin, found.matrix) for margin in margins] == [0, 0, 0]


@given(
    strata=st.lists(
        st.tuples(
            st.lists(st.integers(0, 20), min_size=3, max_size=3), st.lists(st.fractions(0, 1), min_size=4, max_size=4)
        ),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 99),
)
def test_all_parts_of_a_stratum_lose_the_same_share(strata: list[tuple[list[int], list[Fraction]]], seed: int) -> None:
    parts = [counts for counts, _ in strata]
    least = [
        [int(part * share) for part, share in zip(counts[:-1], held, strict=False)] + [0] for counts, held in strata
    ]
    totals = [
        sum(low) + int((sum(counts) - sum(low)) * held[-1]) for (counts, held), low in zip(strata, least, strict=True)
    ]
    found = thinned(parts, totals, least=least, seed=seed).tolist()
    for counts, total, low, row in zip(parts, totals, least, found, strict=True):
        assert sum(row) == total
        assert all(below <= used <= part for below, used, part in zip(low, row, counts, strict=True))
        if not any(low) and sum(counts):
            ideals = [Fraction(total * part, sum(counts)) for part in counts]
            assert all(abs(used - ideal) < 1 for used, ideal in zip(row[:-1], ideals[:-1], strict=True))


@given(
    shares=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    held=st.lists(st.fractions(0, 1), min_size=21, max_size=21),
    seed=st.integers(0, 99),
)
def test_apportioned_numbers_are_never_below_what_is_held(shares: list[int], held: list[Fraction], seed: int) -> None:
    least = [int(part * kept) for part, kept in zip(shares, held, strict=False)]
    total = sum(least) + int((sum(shares) - sum(least)) * held[-1])
    found = apportion(total, shares, seed=seed, least=least)
    assert sum(found) == total
    assert all(below <= number <= part for below, number, part in zip(least, found, shares, strict=True))


@given(total=st.integers(0, 100), shares=st.lists(st.integers(0, 50), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_apportioned_numbers_are_their_ideals_rounded_down_or_up(total: int, shares: list[int], seed: int) -> None:
    total = min(total, sum(shares))
    found = apportion(total, shares, seed=seed)
    assert sum(found) == total
    for number, part in zip(found, shares, strict=True):
        ideal = Fraction(total * part, sum(shares)) if sum(shares) else 0
        assert floor(ideal) <= number <= min(ceil(ideal), part)
