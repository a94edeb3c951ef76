"""Label sets: images with several labels are distributed so that every split has its share of every label."""

from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from etl.splits.dealing import label_sets
from etl.splits.dealing.label_sets import LabelSets, stratify

Rows = Sequence[Collection[int]]
ROWS = st.lists(st.sets(st.sampled_from([0, 3, 4, 70, 10**9]), max_size=4), max_size=16)
SEEDS = st.integers(-(2**70), 2**70)


def sets_of(rows: Rows, order: Sequence[int] | None = None) -> LabelSets:
    """The rows as arrays, by default in their own order."""
    return LabelSets(
        starts=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        labels=np.array([label for row in rows for label in row], dtype=np.int64),
        order=np.array(range(len(rows)) if order is None else order, dtype=np.int64),
    )


def draw_sizes(data: st.DataObject, images: int) -> list[int]:
    """One to five sizes, possibly 0, that sum to this many images."""
    cuts = data.draw(st.lists(st.integers(0, images), max_size=4))
    return [end - start for start, end in pairwise([0, *sorted(cuts), images])]


def zipf_rows(images: int, labels: int, seed: int, *, fewest: int = 0) -> list[list[int]]:
    """Rows of up to four labels, of which the first is the most frequent and the last is rare."""
    random = np.random.default_rng(seed)
    chances = 1 / np.arange(1, labels + 1)
    chances /= chances.sum()
    return [
        random.choice(labels, size=count, replace=False, p=chances).tolist()
        for count in random.integers(fewest, 5, images)
    ]


def dealt(sets: LabelSets, sizes: Sequence[int], seed: int) -> NDArray[np.int64]:
    """The assignment that stratify starts to repair."""
    random = np.random.default_rng(seed % 2**64)
    known, numbers = np.unique(sets.labels, return_inverse=True)
    return label_sets._dealt(sets, random.permutation(len(known))[numbers], np.array(sizes, dtype=np.int64), random)


def label_deviations(sets: LabelSets, assigned: NDArray[np.int64], sizes: Sequence[int]) -> dict[int, list[float]]:
    """By label, ascending, and by split: the images of the label in the split, minus the split's share of them."""
    split_of = np.repeat(assigned, np.diff(sets.starts))
    got = {
        int(label): np.bincount(split_of[sets.labels == label], minlength=len(sizes))
        for label in np.unique(sets.labels)
    }
    return {label: (row - row.sum() * np.array(sizes) / sum(sizes)).tolist() for label, row in got.items()}


def deviations(sets: LabelSets, assigned: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.float64]:
    """The distance of each split from its share of each label."""
    return np.abs(np.array(list(label_deviations(sets, assigned, sizes).values()), dtype=np.float64))


def is_as_published(rows: Rows, assigned: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the published algorithm, one step at a time, can reach these splits with some way to break ties.

    The rows are in their order.
    """
    counts = Counter(label for row in rows for label in row)
    shares = {label: [Fraction(count * size, len(rows)) for size in sizes] for label, count in counts.items()}

    def put(image: int, first: Sequence[Fraction | int], desired: dict[int, list[Fraction]], room: list[int]) -> bool:
        split = assigned[image]
        if (first[split], room[split]) != max(zip(first, room, strict=True)):
            return False
        room[split] -= 1
        for label in rows[image]:
            desired[label][split] -= 1
        return True

    def serve(label: int, left: list[int], desired: dict[int, list[Fraction]], room: list[int]) -> bool:
        desired, room = {other: list(row) for other, row in desired.items()}, list(room)
        served = [image for image in left if label in rows[image]]
        if not all(put(image, desired[label], desired, room) for image in served):
            return False
        return go_on([image for image in left if label not in rows[image]], desired, room)

    def go_on(left: list[int], desired: dict[int, list[Fraction]], room: list[int]) -> bool:
        counts = Counter(label for image in left for label in rows[image])
        if not counts:
            return all(put(image, [0] * len(sizes), desired, room) for image in left)
        fewest = min(counts.values())
        return any(serve(label, left, desired, room) for label, count in counts.items() if count == fewest)

    return go_on(list(range(len(rows))), shares, list(sizes))


@settings(max_examples=80, deadline=None)
@given(rows=ROWS, data=st.data(), seed=SEEDS)
def test_each_step_of_dealing_is_one_that_the_published_algorithm_can_take(
    rows: list[set[int]], data: st.DataObject, seed: int
) -> None:
    sizes = [size for size in draw_sizes(data, len(rows)) if size]
    assert is_as_published(rows, dealt(sets_of(rows), sizes, seed).tolist(), sizes)


def test_the_reference_check_detects_wrong_steps() -> None:
    rows = [{1, 2}, {1}, {2}, {2}, set()]
    right = dealt(sets_of(rows), [3, 2], seed=0).tolist()
    assert is_as_published(rows, right, [3, 2])
    assert sum(is_as_published(rows, [number >> bit & 1 for bit in range(5)], [3, 2]) for number in range(32)) < 5


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, data=st.data(), seed=SEEDS)
def test_each_image_goes_to_one_split_and_totals_are_exact(
    rows: list[set[int]], data: st.DataObject, seed: int
) -> None:
    sizes = draw_sizes(data, len(rows))
    assigned = stratify(sets_of(rows), sizes, seed=seed)
    assert assigned.dtype == np.int64
    assert assigned.shape == (len(rows),)
    assert np.bincount(assigned, minlength=len(sizes)).tolist() == sizes


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, data=st.data(), seed=SEEDS)
def test_the_order_of_images_and_labels_does_not_matter(rows: list[set[int]], data: st.DataObject, seed: int) -> None:
    sizes = draw_sizes(data, len(rows))
    numbers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(rows), max_size=len(rows), unique=True)
    order = data.draw(numbers)
    shuffled = data.draw(st.permutations(range(len(rows))))
    assigned = stratify(sets_of(rows, order), sizes, seed=seed)
    again = stratify(
        sets_of([sorted(rows[image], reverse=True) for image in shuffled], [order[image] for image in shuffled]),
        sizes,
        seed=seed,
    )
    assert again.tolist() == [assigned[image] for image in shuffled]


def test_the_order_of_images_does_not_matter_when_many_move() -> None:
    rows, sizes = zipf_rows(3000, 25, 0, fewest=1), [2100, 600, 300]
    random = np.random.default_rng(0)
    order, shuffled = random.permutation(len(rows)), random.permutation(len(rows))
    sets = sets_of(rows, order.tolist())
    assigned = stratify(sets, sizes, seed=0)
    assert np.count_nonzero(assigned != dealt(sets, sizes, seed=0)) > 10
    again = stratify(sets_of([rows[image][::-1] for image in shuffled], order[shuffled].tolist()), sizes, seed=0)
    assert again.tolist() == assigned[shuffled].tolist()


def test_ties_depend_on_the_seed_and_images_keep_their_order() -> None:
    rows = [[0, 1], [0, 2], [1, 2]] * 4
    found = {tuple(stratify(sets_of(rows), [6, 6], seed=seed).tolist()) for seed in range(20)}
    assert len(found) > 2
    assert stratify(sets_of(rows), [6, 6], seed=4).tolist() == stratify(sets_of(rows), [6, 6], seed=4).tolist()
    for row in ([0], []):  # neither split lacks more than the other
        assert {int(stratify(sets_of([row, row]), [1, 1], seed=seed)[0]) for seed in range(20)} == {0, 1}
    turned = stratify(sets_of([[0]] * 5, range(5)[::-1]), [1, 4], seed=0)
    assert turned.tolist() == stratify(sets_of([[0]] * 5), [1, 4], seed=0).tolist()[::-1] != turned.tolist()[::-1]


def test_the_input_is_not_modified() -> None:
    sets, sizes = sets_of([[5, 2], [2], []]), [2, 1]
    before = [array.tolist() for array in (sets.starts, sets.labels, sets.order)]
    stratify(sets, sizes, seed=1)
    assert [array.tolist() for array in (sets.starts, sets.labels, sets.order)] == before
    assert sizes == [2, 1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fewest", [0, 1])
def test_each_split_has_its_share_of_each_label(fewest: int, seed: int) -> None:
    rows, sizes = zipf_rows(3000, 25, seed, fewest=fewest), [2100, 600, 300]
    sets = sets_of(rows, np.random.default_rng(seed).permutation(len(rows)).tolist())
    drift = np.abs(np.bincount(dealt(sets, sizes, seed)) - sizes).max()
    assert (drift > 0) == (fewest > 0)
    found = deviations(sets, stratify(sets, sizes, seed=seed), sizes)
    assert found.mean() < 0.5
    assert found.max() < 2


@pytest.mark.parametrize("candidates", [2, 1024])
def test_images_with_many_labels_are_stratified_where_published_steps_fail(
    monkeypatch: pytest.MonkeyPatch, candidates: int
) -> None:
    monkeypatch.setattr(label_sets, "_CANDIDATES", candidates)
    random = np.random.default_rng(0)
    rows = [random.permutation(60)[:count].tolist() for count in random.integers(1, 30, 2000)]
    sets, sizes = sets_of(rows), [1400, 400, 200]
    assert deviations(sets, dealt(sets, sizes, seed=0), sizes).max() > 10
    assigned = stratify(sets, sizes, seed=0)
    assert np.bincount(assigned).tolist() == sizes
    assert deviations(sets, assigned, sizes).max() < 3


@pytest.mark.parametrize("seed", range(3))
def test_a_surplus_is_moved_without_concentrating_on_few_labels(seed: int) -> None:
    """If only the fullest split gave up images, one label or another would get the surplus."""
    random = np.random.default_rng(seed)
    rows = [[label for label in range(3) if kind >> label & 1] for kind in random.integers(1, 8, 20_000)]
    sets, sizes = sets_of(rows), [14_000, 4000, 2000]
    assert np.abs(np.bincount(dealt(sets, sizes, seed)) - sizes).max() > 10
    assigned = stratify(sets, sizes, seed=seed)
    assert np.bincount(assigned).tolist() == sizes
    assert deviations(sets, assigned, sizes).max() < 3


def test_totals_are_exact_even_if_every_move_worsens_labels() -> None:
    rows, sizes = [[2], [3], [0], [3], [2, 3], [0, 3]], [3, 3]
    for seed in range(20):
        assert np.bincount(stratify(sets_of(rows), sizes, seed=seed)).tolist() == sizes


@pytest.mark.parametrize("candidates", [1, 5, 1024])
def test_a_surplus_is_shared_among_labels_by_moving_their_first_images(
    monkeypatch: pytest.MonkeyPatch, candidates: int
) -> None:
    """At 8:2, 13 images go 10:3 each time: of twenty such labels that makes 200:60, not 208:52."""
    monkeypatch.setattr(label_sets, "_CANDIDATES", candidates)
    rows, sizes = [[label] for label in range(20) for _ in range(13)], [208, 52]
    sets = sets_of(rows, np.random.default_rng(0).permutation(260).tolist())
    before, assigned = dealt(sets, sizes, seed=0), stratify(sets, sizes, seed=0)
    assert np.bincount(before).tolist() == [200, 60]
    of_label = [[int((assigned[sets.labels == label] == split).sum()) for split in (0, 1)] for label in range(20)]
    assert Counter(map(tuple, of_label)) == {(10, 3): 12, (11, 2): 8}
    if candidates > 20:  # so that none moves back and forth
        moved = np.flatnonzero(before != assigned)
        firsts = [
            min(np.flatnonzero((sets.labels == label) & (before == 1)), key=sets.order.__getitem__)
            for label in range(20)
        ]
        assert len(moved) == 8
        assert set(moved.tolist()) <= set(firsts)


def test_an_assignment_without_deviations_is_kept() -> None:
    rows = zipf_rows(300, 6, 0) + [[]] * 300
    sets, sizes = sets_of(rows), [300, 300]
    before = dealt(sets, sizes, seed=0)
    assert deviations(sets, before, sizes).max() <= 0.5
    assert stratify(sets, sizes, seed=0).tolist() == before.tolist()


def test_rare_labels_reach_every_split() -> None:
    splits, rare = 5, range(100, 120)
    rows = [row + ([rare[image // splits]] if image < 100 else []) for image, row in enumerate(zipf_rows(500, 9, 1))]
    order = np.random.default_rng(1).permutation(len(rows)).tolist()
    assigned = stratify(sets_of(rows, order), [100] * splits, seed=1)
    for label in rare:
        assert sorted(assigned[[label in row for row in rows]].tolist()) == list(range(splits))


def test_the_rarest_label_is_served_first() -> None:
    """Images of the frequent label alternate between two splits, so images 0 and 2 would be in the same one."""
    frequent, rare = 1, 2
    rows = [[frequent, rare] if image in (0, 2) else [frequent] for image in range(8)]
    most_frequent_first = stratify(sets_of([[frequent]] * 8), [4, 4], seed=0)
    assert most_frequent_first[0] == most_frequent_first[2]
    rarest_first = stratify(sets_of(rows), [4, 4], seed=0)
    assert rarest_first[0] != rarest_first[2]


def test_the_rarest_label_is_recomputed_from_the_remaining_images() -> None:
    """Label 1 takes all images but one of label 3, so label 3 comes before label 2."""
    rows = [[1, 3], [1, 3], [1, 3], [2, 3], [2], [2], [2]]
    for seed in range(10):
        assigned = stratify(sets_of(rows), [4, 3], seed=seed).tolist()
        # Label 3 wants 16/7 and 12/7; label 1 wants 12/7 and 9/7 and puts two images into split 0 and one into split 1.
        assert assigned[:3] == [0, 1, 0]
        assert assigned[3] == 1


@settings(max_examples=60, deadline=None)
@given(data=st.data(), splits=st.integers(1, 6), share=st.integers(1, 10), seed=SEEDS)
def test_classes_are_within_one_of_their_ideal_where_splits_are_equal(
    data: st.DataObject, splits: int, share: int, seed: int
) -> None:
    images = splits * share
    rows = [[label] for label in data.draw(st.lists(st.integers(0, 8), min_size=images, max_size=images))]
    sets, sizes = sets_of(rows), [share] * splits
    found = label_deviations(sets, stratify(sets, sizes, seed=seed), sizes)
    assert all(abs(off) < 1 for row in found.values() for off in row)


@settings(max_examples=60, deadline=None)
@given(
    classes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    parts=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any),
    seed=SEEDS,
)
def test_classes_that_divide_evenly_have_exactly_their_shares(classes: list[int], parts: list[int], seed: int) -> None:
    rows = [[label] for label, times in enumerate(classes) for _ in range(times * sum(parts))]
    sets, sizes = sets_of(rows), [part * sum(classes) for part in parts]
    found = label_deviations(sets, stratify(sets, sizes, seed=seed), sizes)
    assert found == {label: [0.0] * len(parts) for label in range(len(classes))}


def test_images_without_labels_fill_what_is_left() -> None:
    rows = [[7]] * 10 + [[]] * 90
    assigned = stratify(sets_of(rows), [70, 20, 10], seed=0)
    assert np.bincount(assigned[:10]).tolist() == [7, 2, 1]
    assert np.bincount(assigned[10:]).tolist() == [63, 18, 9]
    bare = stratify(sets_of([[]] * 10), [7, 2, 1], seed=0)
    assert bare.tolist()[:5] == [0] * 5  # the largest desired total, image by image
    assert np.bincount(bare).tolist() == [7, 2, 1]


def test_a_single_split_takes_all() -> None:
    assert stratify(sets_of([[1], [], [1, 2]]), [3], seed=0).tolist() == [0, 0, 0]


def test_a_split_with_a_quota_of_zero_gets_no_images() -> None:
    rows = zipf_rows(200, 6, 0)
    for seed in range(5):
        assert set(stratify(sets_of(rows), [0, 120, 0, 80], seed=seed).tolist()) == {1, 3}


def test_no_images_give_an_empty_assignment() -> None:
    assert stratify(sets_of([]), [0, 0], seed=0).tolist() == []
    assert stratify(sets_of([]), [], seed=0).tolist() == []


def test_label_numbers_may_have_gaps() -> None:
    rows = zipf_rows(300, 8, 2)
    apart = [[label**2 * 10**12 for label in row] for row in rows]
    sizes = [200, 100]
    dense, gaps = (stratify(sets_of(found), sizes, seed=3) for found in (rows, apart))
    assert dense.tolist() == gaps.tolist()
    assert list(label_deviations(sets_of(apart), gaps, sizes)) == [label**2 * 10**12 for label in range(8)]
