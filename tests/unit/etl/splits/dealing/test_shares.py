"""Shares: what each split gets of each class, for every balance, cap and limit."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from etl.errors import TableError, WeightsError
from etl.splits.dealing.shares import Shares, Stratum, check_sizes, share
from etl.splits.plan import SplitPlan, SplitRef
from schemas import TableName

CLASSES = {0: 200, 3: 61, 4: 13, 9: 1}
"""Images by class number: uneven, with gaps between the numbers, one class with a single image."""
NAMES = {0: "ant", 3: "bee", 4: "cat", 9: "dog"}
TWO = (Fraction(8), Fraction(2))


def plan(**options: object) -> SplitPlan:
    given = {"out": "unused", "seed": 7, **options}
    return SplitPlan(data_table=TableName("ks", "data"), metadata_table=TableName("ks", "metadata"), **given)  # type: ignore[arg-type]


def shares_of(this: SplitPlan, *, ratios: tuple[Fraction, ...] = TWO, classes: Mapping[int, int] = CLASSES) -> Shares:
    none = (0,) * len(ratios)
    strata = [Stratum(values=(label,), label=label, images=images, fixed=none) for label, images in classes.items()]
    return share(strata, ratios=ratios, plan=this, names=NAMES)


def totals(shares: Shares) -> dict[int, int]:
    """Images by class in all splits together."""
    return {label: int(sum(row)) for label, row in shares.by_class(shares.quotas).items()}


def test_each_class_is_divided_in_the_ratios() -> None:
    shares = shares_of(plan())
    assert shares.sizes == [220, 55]
    assert totals(shares) == CLASSES
    assert shares.quotas[0].tolist() == [160, 40]
    assert shares.quotas[1].tolist() in ([48, 13], [49, 12])
    assert shares.quotas[2].tolist() in ([10, 3], [11, 2])


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        ("uniform", {0: 1, 3: 1, 4: 1, 9: 1}),
        ((Fraction(4), Fraction(2), Fraction(1), Fraction(0)), {0: 52, 3: 26, 4: 13, 9: 0}),
        (
            (("cat", Fraction(1)), (" dog", Fraction(0)), ("ant ", Fraction(4)), ("bee", Fraction(2))),
            {0: 52, 3: 26, 4: 13, 9: 0},
        ),
    ],
)
def test_a_balance_takes_this_many_images_of_each_class(balance: object, expected: dict[int, int]) -> None:
    shares = shares_of(plan(balance=balance), ratios=(Fraction(1), Fraction(1), Fraction(2)))
    assert totals(shares) == expected
    assert (
        max(abs(size - sum(expected.values()) * part / 4) for size, part in zip(shares.sizes, (1, 1, 2), strict=True))
        < 1
    )


def test_a_random_balance_depends_on_the_seed_alone() -> None:
    first, again, other = (shares_of(plan(balance="random", seed=seed)) for seed in (7, 7, 8))
    assert first.quotas.tolist() == again.quotas.tolist()
    assert totals(first) != totals(other)
    assert 0 < sum(first.sizes) < sum(CLASSES.values())


def test_many_splits_of_small_classes_have_equal_sizes() -> None:
    assert shares_of(plan(), ratios=(Fraction(1),) * 25).sizes == [11] * 25


@pytest.mark.parametrize(
    ("balance", "message"),
    [
        ((Fraction(1),) * 3, r"weight for each of the 4 classes, numbered 0, 3, 4, 9\. Found: 3 weights"),
        ((("ant", Fraction(1)),), "Found: none for bee, cat, dog"),
        (tuple((name, Fraction(1)) for name in ("ant", "bee", "cat", "dog", "eel")), "ant, bee, cat, dog. Found: eel"),
    ],
)
def test_weights_for_wrong_classes_are_refused_with_the_existing_classes(balance: object, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        shares_of(plan(balance=balance))


def test_weights_that_leave_no_image_are_refused() -> None:
    with pytest.raises(WeightsError, match="Found: none of 2 images left"):
        shares_of(plan(balance=(Fraction(1), Fraction(1, 1000))), classes={0: 0, 1: 2})


def test_caps_on_a_class_and_on_all_images_are_kept_and_reported() -> None:
    capped = shares_of(plan(per_class=30))
    assert totals(capped) == {0: 30, 3: 30, 4: 13, 9: 1}
    assert capped.warnings == ("2 classes with fewer than 30 images: cat, dog",)
    limited = shares_of(plan(limit=55))
    assert limited.sizes == [44, 11]
    assert all(abs(images - CLASSES[label] / 5) < 1 for label, images in totals(limited).items())
    assert shares_of(plan(limit=276)).warnings == ("there are 275 images, fewer than the limit of 276",)


def test_images_that_stay_count_towards_the_share_of_their_split() -> None:
    strata = [
        Stratum(values=(0,), label=0, images=100, fixed=(0, 20)),
        Stratum(values=(1,), label=1, images=10, fixed=(0, 10)),
    ]
    shares = share(strata, ratios=TWO, plan=plan(), names={})
    assert shares.quotas.tolist() == [[80, 20], [0, 10]]
    assert [stratum.free for stratum in strata] == [80, 0]
    assert shares.warnings == ("because images stay in their splits, sizes are 80, 30, not 88.0, 22.0",)


PINNED = [
    Stratum(values=(0,), label=0, images=200, fixed=(160, 40)),
    Stratum(values=(3,), label=3, images=61, fixed=(0, 12)),
    Stratum(values=(4,), label=4, images=13, fixed=(13, 0)),
]
"""A class whose images all have a split, one with a few that have, and one that is in one split."""


@pytest.mark.parametrize(
    ("options", "used", "quotas"),
    [
        ({"per_class": 30}, [30, 30, 13], [[24, 6], [24, 6], [13, 0]]),
        ({"limit": 55}, [40, 12, 3], [[32, 8], [10, 2], [3, 0]]),
        ({"balance": "uniform"}, [13, 13, 13], None),
        ({"balance": (Fraction(0), Fraction(2), Fraction(1))}, [0, 26, 13], None),
    ],
)
def test_caps_and_weights_hold_for_images_with_a_given_split(
    options: dict[str, object], used: list[int], quotas: list[list[int]] | None
) -> None:
    shares = share(PINNED, ratios=TWO, plan=plan(**options), names=NAMES)
    assert shares.quotas.sum(axis=1).tolist() == used
    for stratum, total, fixed, row in zip(PINNED, used, shares.fixed, shares.quotas.tolist(), strict=True):
        assert all(0 <= part <= quota for part, quota in zip(fixed, row, strict=True))
        assert all(
            abs(part - held * total / stratum.images) < 1 for part, held in zip(fixed, stratum.fixed, strict=True)
        )
        assert 0 <= total - sum(fixed) <= stratum.free
    if quotas is not None:
        assert shares.quotas.tolist() == quotas
    assert any(f" of {225:,} images with a given split are left out" in warning for warning in shares.warnings)


def test_images_of_a_split_that_is_extended_are_used_or_the_cap_is_refused() -> None:
    strata = [replace(stratum, staying=stratum.fixed) for stratum in PINNED]
    extends = {"extend": "splits/old"}
    shares = share(strata, ratios=TWO, plan=plan(limit=240, **extends), names=NAMES)
    assert shares.quotas.sum(axis=1).tolist() == [200, 27, 13]  # the others share what is left
    assert [tuple(row) for row in shares.fixed] == [stratum.fixed for stratum in strata]
    for options, message in (
        (
            {"limit": 224},
            r"a --limit of at least the 225 images that are in splits/old.* Found: 224\. .*leave out --ext",
        ),
        ({"per_class": 199}, r"the 200 images of class ant that are in splits/old.* Found: 199, by --per-class 199\."),
        ({"balance": "uniform"}, r"the 200 images of class ant .* Found: 13, by --balance uniform\."),
        ({"balance": (Fraction(1), Fraction(1), Fraction(0))}, "of class ant .* Found: 61, by --balance 1,1,0"),
    ):
        with pytest.raises(WeightsError, match=message):
            share(strata, ratios=TWO, plan=plan(**options, **extends), names=NAMES)


def test_classes_that_do_not_reach_every_split_are_reported_or_refused() -> None:
    counts = {0: (80, 20), 9: (1, 0), 3: (0, 0)}
    (warning,) = check_sizes(counts, [81, 20], plan=plan(), names=NAMES)
    assert warning == "1 class too small to be in every split: dog"
    with pytest.raises(TableError, match=r"at least 1 images of each class.*Found: 1 classes with fewer; dog has 1, 0"):
        check_sizes(counts, [81, 20], plan=plan(min_per_split=1), names=NAMES)


def test_splits_of_images_without_classes_may_be_refused_as_too_small() -> None:
    assert check_sizes({}, [8, 2], plan=plan(min_per_split=2), names={}) == []
    with pytest.raises(TableError, match=r"at least 3 images in each split\. Found: 8, 2"):
        check_sizes({}, [8, 2], plan=plan(min_per_split=3), names={})


def test_a_single_split_is_reported_as_having_no_held_out_images() -> None:
    assert check_sizes({0: (5,)}, [5], plan=plan(), names={}) == ["there is only one split: nothing is held out"]
    besides_others = plan(exclude=(SplitRef("splits/test"),))
    assert check_sizes({0: (5,)}, [5], plan=besides_others, names={}) == []
