"""Group quotas: whole groups come as close to the quotas as possible."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from etl.splits.dealing.group_quotas import Groups, assign_groups
from etl.splits.dealing.quotas import quotas

Content = Sequence[tuple[int, int]]


def made(contents: Sequence[Content], order: Sequence[int] | None = None) -> Groups:
    """Groups of ``(stratum, images)`` pairs, in a scattered order by default."""
    scattered = [(number * 2654435761) % (1 << 32) for number in range(len(contents))]
    pairs = [pair for content in contents for pair in content]
    return Groups(
        starts=np.cumsum([0, *map(len, contents)], dtype=np.int64),
        strata=np.array([stratum for stratum, _ in pairs], dtype=np.int64),
        images=np.array([images for _, images in pairs], dtype=np.int64),
        order=np.array(scattered if order is None else order, dtype=np.int64),
    )


def deviations(groups: Groups, assigned: NDArray[np.int64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The images of each stratum that each split got, minus those wanted."""
    cells = groups.strata * wanted.shape[1] + assigned[groups.owners]
    return np.bincount(cells, weights=groups.images, minlength=wanted.size).reshape(wanted.shape) - wanted


def images_by_stratum(groups: Groups, strata: int) -> NDArray[np.float64]:
    return np.bincount(groups.strata, weights=groups.images, minlength=strata).astype(np.float64)


def in_ratios(groups: Groups, ratios: Sequence[float], strata: int) -> NDArray[np.float64]:
    """The quotas if the images of every stratum are distributed in these ratios."""
    shares = np.array(ratios, dtype=np.float64) / sum(ratios)
    return np.outer(images_by_stratum(groups, strata), shares)


def drawn_groups(seed: int, *, groups: int, strata: int, at_most: int, tail: float = 1.5) -> Groups:
    """Groups of one to ``at_most`` strata with heavy-tailed sizes."""
    random = np.random.default_rng(seed)
    contents = []
    for _ in range(groups):
        held = random.choice(strata, size=random.integers(1, at_most + 1), replace=False)
        contents.append([(int(stratum), 1 + int(min(200, random.pareto(tail) * 4))) for stratum in held])
    return made(contents, random.integers(0, 1 << 62, groups).tolist())


CONTENTS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=3), min_size=1, max_size=12
)
WANTED = st.integers(1, 4).flatmap(
    lambda splits: st.lists(
        st.lists(st.sampled_from([-3.0, 0.0, 0.25, 1.0, 7.5, 20.0]), min_size=splits, max_size=splits),
        min_size=4,
        max_size=4,
    )
)


@settings(max_examples=40, deadline=None)
@given(contents=CONTENTS, wanted=WANTED)
def test_every_group_goes_to_one_existing_split(contents: list[Content], wanted: list[list[float]]) -> None:
    groups, wants = made(contents), np.array(wanted)
    assigned = assign_groups(groups, wants)
    assert assigned.dtype == np.int64
    assert assigned.shape == (len(contents),)
    assert set(assigned.tolist()) <= set(range(wants.shape[1]))
    got = deviations(groups, assigned, wants) + wants
    assert got.sum(axis=1).tolist() == images_by_stratum(groups, 4).tolist()


@settings(max_examples=40, deadline=None)
@given(contents=CONTENTS, wanted=WANTED, data=st.data())
def test_the_order_of_the_groups_does_not_matter(
    contents: list[Content], wanted: list[list[float]], data: st.DataObject
) -> None:
    order = data.draw(st.lists(st.integers(0, 2), min_size=len(contents), max_size=len(contents)))
    places = data.draw(st.permutations(range(len(contents))))
    straight = assign_groups(made(contents, order), np.array(wanted)).tolist()
    turned = [data.draw(st.permutations(contents[place])) for place in places]
    permuted = assign_groups(made(turned, [order[place] for place in places]), np.array(wanted)).tolist()

    def by_group(assigned: list[int], at: Sequence[int]) -> list[tuple[list[tuple[int, int]], int, int]]:
        return sorted((sorted(contents[place]), order[place], split) for place, split in zip(at, assigned, strict=True))

    assert by_group(permuted, places) == by_group(straight, range(len(contents)))


def test_the_order_of_large_inputs_does_not_matter() -> None:
    groups = drawn_groups(1, groups=400, strata=20, at_most=5)
    wanted = in_ratios(groups, [8, 1, 1], 20)
    places = np.random.default_rng(2).permutation(400)
    contents = [
        list(zip(groups.strata[a:b].tolist(), groups.images[a:b].tolist(), strict=True))
        for a, b in zip(groups.starts[places].tolist(), groups.starts[places + 1].tolist(), strict=True)
    ]
    turned = assign_groups(made(contents, groups.order[places].tolist()), wanted)
    assert turned.tolist() == assign_groups(groups, wanted)[places].tolist()


def chances(contents: list[Content], ratios: Sequence[float], *, seeds: int, off: float = 1) -> NDArray[np.float64]:
    """How often each group is in each split, over many orders. No number of images may be ``off`` by more."""
    strata = 1 + max(stratum for content in contents for stratum, _ in content)
    found = np.zeros((len(contents), len(ratios)))
    for seed in range(seeds):
        groups = made(contents, np.random.default_rng(seed).integers(0, 1 << 62, len(contents)).tolist())
        wanted = np.round(in_ratios(groups, ratios, strata))
        assigned = assign_groups(groups, wanted)
        found[np.arange(len(contents)), assigned] += 1 / seeds
        assert np.abs(deviations(groups, assigned, wanted)).max() <= off
    return found


@pytest.mark.parametrize(
    ("groups", "strata", "ratios", "seeds", "each"),
    [(30, 1, [8, 2], 100, 0.25), (60, 2, [1, 1, 1, 1, 1], 40, 0.3), (2600, 1, [8, 2], 2, 1)],
    ids=["patients", "folds", "many groups"],
)
def test_a_group_is_in_a_split_as_often_as_the_ratio_says_whatever_its_size(
    groups: int, strata: int, ratios: list[float], seeds: int, each: float
) -> None:
    """The quotas are kept all the same. The smallest groups fill the last gaps, so they deviate most."""
    contents = [[(number % strata, 4 + (number * number) % 37)] for number in range(groups)]
    off = chances(contents, ratios, seeds=seeds) - np.array(ratios) / sum(ratios)
    assert np.abs(off).max() <= each
    by_size = np.argsort([-images for ((_, images),) in contents])
    assert max(np.abs(off[of_size].mean(axis=0)).max() for of_size in np.array_split(by_size, 3)) <= 0.08


def test_a_group_that_a_split_has_no_room_for_stays_out_of_it() -> None:
    contents = [[(0, 90)], *([(0, 4)] for _ in range(60))]  # split 1 wants 66 images
    found = chances(contents, [8, 2], seeds=20, off=2)
    assert found[0].tolist() == pytest.approx([1, 0])
    assert found[1:, 1].max() < 0.7
    assert found[1:, 1].min() > 0


def test_ties_follow_the_order() -> None:
    wanted = np.array([[5.0, 5.0]])
    found = {
        tuple(assign_groups(made([[(0, 1)]] * 10, np.roll(range(10), turn).tolist()), wanted)) for turn in range(9)
    }
    assert len(found) > 1


@settings(max_examples=30, deadline=None)
@given(
    totals=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    ratios=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_groups_of_one_image_come_out_exact(totals: list[int], ratios: list[int], seed: int) -> None:
    wanted = quotas(totals, [Fraction(ratio) for ratio in ratios], seed=seed).matrix.astype(np.float64)
    contents = [[(stratum, 1)] for stratum, total in enumerate(totals) for _ in range(total)]
    order = np.random.default_rng(seed).permutation(len(contents)).tolist()
    groups = made(contents, order)
    assert not deviations(groups, assign_groups(groups, wanted), wanted).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("ratios", "strata"), [([1, 1], 3), ([8, 1, 1], 10), ([70, 20, 10], 150), ([1] * 10, 5)])
def test_totals_are_off_by_the_largest_group_at_most(seed: int, ratios: list[float], strata: int) -> None:
    groups = drawn_groups(seed, groups=300, strata=strata, at_most=3)
    wanted = in_ratios(groups, ratios, strata)
    off = deviations(groups, assign_groups(groups, wanted), wanted).sum(axis=0)
    assert np.abs(off).max() <= np.add.reduceat(groups.images, groups.starts[:-1]).max()


def test_small_strata_do_not_starve_a_small_split() -> None:
    # The small split gets 0.2 of the 20 images of each class, much less than a group of 10; in all, it gets 20 groups.
    groups = made([[(number % 1000, 10)] for number in range(2000)])
    wanted = in_ratios(groups, [99, 1], 1000)
    off = deviations(groups, assign_groups(groups, wanted), wanted).sum(axis=0)
    assert np.abs(off).max() <= 10


def test_one_giant_group_leaves_the_rest_in_balance() -> None:
    groups = made([[(0, 5000)]] + [[(number % 4, 1 + number % 7)] for number in range(400)])
    wanted = in_ratios(groups, [1, 1, 1], 4)
    assigned = assign_groups(groups, wanted)
    off = deviations(groups, assigned, wanted)
    assert np.abs(off[1:]).max() <= 7
    others = off[0, np.arange(3) != assigned[0]]
    assert abs(others[0] - others[1]) <= 7


def test_groups_are_swapped_when_no_single_move_helps() -> None:
    groups = made([[(0, size)] for size in (3, 3, 2, 2, 2)])
    assert not deviations(groups, assign_groups(groups, np.array([[6.0, 6.0]])), np.array([[6.0, 6.0]])).any()


@pytest.mark.parametrize("seed", range(6))
def test_few_groups_are_assigned_near_the_optimum(seed: int) -> None:
    groups = drawn_groups(seed, groups=8, strata=2, at_most=2, tail=3)
    wanted = in_ratios(groups, [3, 2], 2)

    def distance(assigned: NDArray[np.int64]) -> float:
        return float((deviations(groups, assigned, wanted) ** 2 / np.maximum(wanted, 1)).sum())

    every = [distance(np.array(splits)) for splits in product(range(2), repeat=8)]
    found = distance(assign_groups(groups, wanted))
    assert sum(other < found for other in every) <= len(every) // 20


@pytest.mark.parametrize("small", [0.5, 1.0, 3.0])
def test_a_split_with_a_small_quota_still_gets_a_group(small: float) -> None:
    groups = made([[(0, 50)], [(0, 40)], [(1, 30)], [(1, 20)], [(0, 20)]])
    wanted = np.array([[110 - 2 * small, small, small], [50 - 2 * small, small, small]])
    assigned = assign_groups(groups, wanted).tolist()
    assert set(assigned) == {0, 1, 2}
    assert {assigned[3], assigned[4]} == {1, 2}  # the smallest ones


def test_no_split_is_emptied_to_supply_another() -> None:
    groups = made([[(0, 9)], [(0, 5)], [(0, 1)]])
    assert sorted(assign_groups(groups, np.array([[14.8, 0.1, 0.1]])).tolist()) == [0, 1, 2]


def test_fewer_groups_than_splits_are_no_error() -> None:
    assigned = assign_groups(made([[(0, 4)], [(0, 4)]]), np.array([[2.0, 2.0, 2.0, 2.0]]))
    assert len(set(assigned.tolist())) == 2


@pytest.mark.parametrize(("strata", "at_most"), [(2, 1), (100, 1), (100, 5)])
def test_a_split_that_has_enough_or_too_much_gets_nothing(strata: int, at_most: int) -> None:
    groups = drawn_groups(3, groups=200, strata=strata, at_most=at_most)
    wanted = in_ratios(groups, [9, 1], strata)
    wanted = np.column_stack((wanted[:, 0], np.zeros(strata), wanted[:, 1], np.full(strata, -7.0)))
    assert set(assign_groups(groups, wanted).tolist()) == {0, 2}


@pytest.mark.parametrize("seed", range(10))
def test_a_split_with_a_total_quota_of_zero_gets_no_surplus(seed: int) -> None:
    groups = drawn_groups(seed, groups=10, strata=4, at_most=2)
    wanted = np.column_stack((in_ratios(groups, [1, 1], 4) * 0.3, [5.0, -5.0, 0.0, 0.0]))
    assert set(assign_groups(groups, wanted).tolist()) == {0, 1}


def test_images_already_in_a_split_count_towards_its_quota() -> None:
    groups = made([[(0, 1)]] * 30)
    wanted = np.array([[25.0, -5.0, 10.0]])  # 10 images are already there, most of them in the second
    got = (deviations(groups, assign_groups(groups, wanted), wanted) + wanted)[0]
    assert got[1] == 0
    assert got[0] > 2 * got[2] > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_class_excluded_from_a_split_stays_out(seed: int) -> None:
    groups = drawn_groups(seed, groups=500, strata=6, at_most=1)
    wanted = in_ratios(groups, [8, 1, 1], 6)
    wanted[0] = np.array([0, 1, 1]) * wanted[0].sum() / 2
    off = deviations(groups, assign_groups(groups, wanted), wanted)
    assert off[0, 0] == 0
    assert np.abs(off[0, 1:]).max() <= groups.images[groups.strata == 0].max()


def test_a_small_split_is_filled_from_the_classes_in_its_quota() -> None:
    groups = made([[(number % 400, 10)] for number in range(800)])
    wanted = in_ratios(groups, [98, 2], 400)
    wanted[::2] = [20, 0]
    off = deviations(groups, assign_groups(groups, wanted), wanted)
    assert not off[::2].any()
    assert np.abs(off.sum(axis=0)).max() <= 10


def test_no_groups_are_no_error() -> None:
    assert assign_groups(made([]), np.ones((2, 2))).shape == (0,)


def folds_of(splitter: Any, groups: Groups, strata: int) -> NDArray[np.float64]:
    """Images by stratum and fold, from scikit-learn, for groups of one stratum each."""
    owners = np.repeat(np.arange(len(groups.order)), groups.images)
    labels = groups.strata[owners]
    columns = [np.bincount(labels[test], minlength=strata) for _, test in splitter.split(labels, labels, owners)]
    return np.column_stack(columns).astype(np.float64)


def in_folds(groups: Groups, folds: int, strata: int) -> NDArray[np.float64]:
    """Images by stratum and fold, from our code."""
    wanted = in_ratios(groups, [1] * folds, strata)
    return deviations(groups, assign_groups(groups, wanted), wanted) + wanted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("folds", [2, 5, 10])
def test_fold_sizes_spread_no_more_than_those_of_group_k_fold(seed: int, folds: int) -> None:
    from sklearn.model_selection import GroupKFold

    groups = drawn_groups(seed, groups=20 * (seed + 1), strata=1, at_most=1)
    theirs = np.ptp(folds_of(GroupKFold(folds), groups, 1))
    assert np.ptp(in_folds(groups, folds, 1)) <= theirs + groups.images.min()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("folds", "strata"), [(2, 3), (3, 10), (5, 5)])
def test_class_shares_are_as_even_as_those_of_stratified_group_k_fold(seed: int, folds: int, strata: int) -> None:
    from sklearn.model_selection import StratifiedGroupKFold

    groups = drawn_groups(seed, groups=200, strata=strata, at_most=1)
    theirs = folds_of(StratifiedGroupKFold(folds), groups, strata)
    ours = in_folds(groups, folds, strata)
    totals = images_by_stratum(groups, strata)[:, None]

    def unevenness(counts: NDArray[np.float64]) -> list[float]:
        """The mean absolute deviations of each class over the folds, and of the classes within each fold."""
        within = counts / counts.sum(axis=0)
        return [np.abs(counts / totals - 1 / folds).mean(), np.abs(within - totals / totals.sum()).mean()]

    assert all(our <= their + 0.001 for our, their in zip(unevenness(ours), unevenness(theirs), strict=True))
