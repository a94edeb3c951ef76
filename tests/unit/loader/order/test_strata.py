"""Stratified orders: each global batch has its share of each class, and images of a class come equally often."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.order.strata import Sampling, Strata, StratifiedOrder, classes_of, dues_of

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=8)
batches = st.integers(1, 60)


def labels_of(counts: list[int]) -> np.ndarray:
    """So many rows of each class, in a mixed order. Class numbers have gaps."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int32) * 3, counts)
    np.random.default_rng(len(labels)).shuffle(labels)
    return labels


def order_of(strata: Strata, epoch: int) -> StratifiedOrder:
    return StratifiedOrder(strata, fingerprint="f", seed=5, epoch=epoch)


def check_epochs(labels: np.ndarray, strata: Strata, *, epochs: int = 3) -> None:
    """Compare epochs with what is promised, by counting."""
    rows, numbers = strata.rows, strata.classes.numbers
    seen = np.zeros(len(labels), dtype=int)
    for epoch in range(epochs):
        order = order_of(strata, epoch)
        positions = order(np.arange(rows))
        found = np.searchsorted(numbers, labels[positions])
        assert np.bincount(found, minlength=len(numbers)).tolist() == strata.dues.tolist()
        for start in range(0, rows, strata.batch):
            batch = found[start : start + strata.batch]
            ideal = strata.dues * len(batch)  # in parts of an epoch
            off = np.bincount(batch, minlength=len(numbers)) * rows - ideal
            assert (np.abs(off) < rows).all()
        times = np.bincount(positions, minlength=len(labels))
        seen += times
        for number, due in zip(numbers, strata.dues.tolist(), strict=True):
            of_class, of_all = times[labels == number], seen[labels == number]
            assert of_class.max() - of_class.min() <= 1
            whole, rest = divmod((epoch + 1) * due, len(of_all))
            assert {*of_all.tolist()} <= {whole, whole + (rest > 0)}
        for position in range(0, len(labels), 1 + len(labels) // 10):
            assert order.places_of(position) == np.flatnonzero(positions == position).tolist()


@settings(max_examples=60)
@given(sizes, batches)
def test_each_batch_has_its_share_of_each_class_and_each_image_comes_once(counts: list[int], batch: int) -> None:
    labels = labels_of(counts)
    strata = Sampling("stratified", batch).strata(classes_of(labels))
    check_epochs(labels, strata)
    assert sorted(order_of(strata, 1)(np.arange(strata.rows))) == list(range(len(labels)))


@settings(max_examples=60)
@given(sizes, batches, st.data())
def test_classes_have_their_due_and_images_of_a_class_take_turns(
    counts: list[int], batch: int, data: st.DataObject
) -> None:
    labels = labels_of(counts)
    classes = classes_of(labels)
    drawn = data.draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0]), min_size=len(counts), max_size=len(counts)))
    weights = None if not any(drawn) else tuple(zip(classes.numbers.tolist(), drawn, strict=True))
    strata = Sampling("balanced", batch, weights).strata(classes)
    assert strata.rows == len(labels)
    check_epochs(labels, strata)


@given(st.integers(1, 10**12), st.dictionaries(st.integers(0, 99), st.floats(0, 1e9), min_size=1))
def test_dues_are_shares_rounded_up_or_down_that_add_up(rows: int, weights: dict[int, float]) -> None:
    if not any(weights.values()):
        weights[0] = 1.0
    dues = dues_of(rows, weights)
    assert sum(dues.values()) == rows
    total = sum(weights.values())
    for number, weight in weights.items():
        assert abs(dues[number] - rows * weight / total) < 1 + 1e-9 * rows
        assert weight or not dues[number]


def test_the_order_never_changes() -> None:
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2], dtype=np.int32)
    stratified, balanced = (Sampling(name, 3).strata(classes_of(labels)) for name in ("stratified", "balanced"))
    assert order_of(stratified, 2)(np.arange(8)).tolist() == [0, 5, 7, 6, 1, 3, 4, 2]
    assert order_of(balanced, 2)(np.arange(8)).tolist() == [0, 5, 5, 7, 6, 1, 3, 7]


def test_rare_classes_do_not_always_meet() -> None:
    labels = labels_of([97, 1, 1, 1])
    strata = Sampling("stratified", 10).strata(classes_of(labels))
    together = 0
    for epoch in range(300):
        places = [order_of(strata, epoch).places_of(int(np.flatnonzero(labels == number)[0]))[0] for number in (3, 6)]
        together += places[0] // 10 == places[1] // 10
    assert together < 60  # by chance 30, and never if they could not meet


@pytest.mark.parametrize("name", ["stratified", "balanced"])
def test_two_epochs_and_two_seeds_have_other_orders(name: str) -> None:
    strata = Sampling(name, 32).strata(classes_of(labels_of([300, 200, 100])))
    orders = [
        StratifiedOrder(strata, fingerprint=fingerprint, seed=seed, epoch=epoch)(np.arange(600)).tolist()
        for fingerprint, seed, epoch in (("f", 1, 0), ("f", 1, 1), ("f", 2, 0), ("g", 1, 0))
    ]
    assert all(sum(map(int.__eq__, one, other)) < 30 for one in orders for other in orders if one is not other)
