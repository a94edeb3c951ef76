"""The keyed permutation is a bijection, repeatable, and mixes well enough to shuffle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import Permutation
from formats.permutation import Permutations


def order(n: int, key: bytes = b"key") -> np.ndarray:
    return Permutation(n, key)(np.arange(n))


@given(st.integers(0, 3000), st.binary(max_size=40))
def test_each_number_has_exactly_one_position(n: int, key: bytes) -> None:
    assert np.array_equal(np.sort(order(n, key)), np.arange(n))


@given(st.integers(1, 1 << 61), st.binary(max_size=40), st.data())
def test_a_single_position_gives_the_same_number_as_in_bulk(n: int, key: bytes, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)), dtype=np.int64)
    permutation = Permutation(n, key)
    found = permutation(places)
    assert found.min() >= 0
    assert found.max() < n
    assert [int(permutation(place)) for place in places] == found.tolist()
    assert len(set(found.tolist())) == len(set(places.tolist()))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.binary(max_size=40))
def test_orders_of_several_lengths_are_computed_together_and_can_be_inverted(sizes: list[int], key: bytes) -> None:
    orders = Permutations(key)
    which = np.repeat(np.arange(len(sizes)), sizes)
    lengths = np.repeat(sizes, sizes)
    places = np.concatenate([np.arange(n) for n in sizes])
    values = orders(places, lengths, which)
    for number, n in enumerate(sizes):
        assert sorted(values[which == number]) == list(range(n))
        assert values[which == number].tolist() == orders(np.arange(n), n, number).tolist()
    assert orders.inverse(values, lengths, which).tolist() == places.tolist()


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 1 << 61)), max_size=20), st.data())
def test_orders_of_several_keys_are_computed_together(each: list[tuple[bytes, int]], data: st.DataObject) -> None:
    places = [data.draw(st.integers(0, n - 1)) for _, n in each]
    orders, lengths = Permutations(*(key for key, _ in each)), np.array([n for _, n in each], dtype=np.int64)
    values = orders(np.array(places, dtype=np.int64), lengths, np.arange(len(each)))
    for number, ((key, n), place, value) in enumerate(zip(each, places, values, strict=True)):
        assert Permutations(key)(np.array(place), n, number) == value
    assert orders.inverse(values, lengths, np.arange(len(each))).tolist() == places


@given(st.integers(1, 1 << 61), st.binary(max_size=40), st.data())
def test_the_inverse_finds_the_position(n: int, key: bytes, data: st.DataObject) -> None:
    place = np.array([data.draw(st.integers(0, n - 1))])
    permutation = Permutation(n, key)
    assert permutation.inverse(permutation(place)) == place


def test_another_key_gives_another_order() -> None:
    assert np.array_equal(order(1000), order(1000))
    assert not np.array_equal(order(1000), order(1000, b"other"))


def test_the_order_never_changes() -> None:
    assert order(10).tolist() == [5, 7, 6, 4, 8, 1, 9, 2, 3, 0]
    long = Permutation(1 << 54, b"key")  # its largest number has more bits than a float
    assert long(np.arange(3)).tolist() == [4273911324610770, 17676463484022334, 5848466011924575]


def test_numbers_are_spread_evenly_over_positions() -> None:
    """A chi-square test of the first thousand places of many orders, in ten bins of numbers."""
    n, draws = 10_000, 100
    bins = np.zeros(10)
    for key in range(draws):
        bins += np.bincount(Permutation(n, bytes([key]))(np.arange(1000)) * 10 // n, minlength=10)
    expected = draws * 100
    assert float(((bins - expected) ** 2 / expected).sum()) < 35  # 9 degrees of freedom: p < 0.0001
    neighbours = np.diff(order(n))
    assert np.mean(neighbours == 1) < 0.001


@pytest.mark.parametrize("place", [-1, 5])
def test_a_position_out_of_range_is_refused(place: int) -> None:
    with pytest.raises(IndexError, match=r"0 to 4\. Found: "):
        Permutation(5, b"")(np.array([0, place]))


@pytest.mark.parametrize("n", [-1, 1 << 62])
def test_a_length_out_of_range_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"Found: {n}"):
        Permutation(n, b"")
