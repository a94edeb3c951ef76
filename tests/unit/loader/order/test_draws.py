"""Random numbers that follow from seed, epoch and place alone: the same in any batch, and even and independent."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.errors import OptionError
from loader.order.draws import Draws

MOST, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15
PLACES = st.lists(st.integers(0, 2**62), min_size=1, max_size=20)


def draws(places: list[int] | range, *, seed: int = 0, epoch: int = 0) -> Draws:
    return Draws(seed=seed, epoch=epoch, places=np.array(places, dtype=np.int64))


@given(PLACES, st.integers(-5, 2**70), st.integers(0, 10**9), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_sample_has_the_same_numbers_in_any_batch(
    places: list[int], seed: int, epoch: int, counts: list[int]
) -> None:
    whole = draws(places, seed=seed, epoch=epoch)
    found = np.concatenate([whole.bits(count) for count in counts], axis=1)
    assert (found == draws(places, seed=seed, epoch=epoch).bits(sum(counts))).all()
    for row, place in enumerate(places):
        assert (draws([place], seed=seed, epoch=epoch).bits(sum(counts)) == found[row]).all()


def mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xC2B2AE3D27D4EB4F & MOST
    value = (value ^ value >> 29) * 0x165667B19E3779F9 & MOST
    return value ^ value >> 32


def test_the_numbers_of_a_key_never_change() -> None:
    key = hashlib.blake2b(b"augmentation 2\x007\x003", digest_size=16, person=b"imagestrata").digest()
    first, second = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    for place in (0, 1, 2**40):
        of_place = mixed(mixed(place * GOLDEN + first & MOST) ^ second)
        wanted = [mixed(of_place + number * GOLDEN & MOST) for number in (1, 2)]
        assert draws([place], seed=7, epoch=3).bits(2).tolist() == [wanted]
        assert draws([place], seed=7, epoch=3).uniform().item() == (wanted[0] >> 40) / 2**24
    assert draws([0], seed=7, epoch=3).bits().item() == 0xCB181E798D0387DE


@pytest.mark.parametrize("other", [{"seed": 1}, {"epoch": 1}, {"seed": 10}, {"seed": 1, "epoch": 0}])
def test_other_seeds_and_epochs_have_other_numbers(other: dict[str, int]) -> None:
    usual = draws(range(1000)).bits(8)
    assert not np.isin(draws(range(1000), **other).bits(8), usual).any()


def test_numbers_are_even_and_independent_of_their_neighbours() -> None:
    values = draws(range(20_000)).uniform(12)
    assert values.dtype == np.float32
    assert 0 <= values.min() < 0.001
    assert 0.999 < values.max() < 1
    counts = np.histogram(values, bins=64, range=(0, 1))[0]
    expected = values.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi square of 63 degrees: above 120 once in 10**5
    columns = np.corrcoef(values, rowvar=False) - np.eye(12)
    neighbours = [np.corrcoef(values[:-lag, 0], values[lag:, 0])[0, 1] for lag in (1, 2, 64, 1024)]
    assert max(np.abs(columns).max(), *np.abs(neighbours)) < 5 / np.sqrt(20_000)  # standard deviations
    pairs = np.histogram2d(values[:, 0], values[:, 1], bins=16, range=[(0, 1), (0, 1)])[0]
    expected = 20_000 / 256
    assert ((pairs - expected) ** 2 / expected).sum() < 365  # of 255 degrees: above 365 once in 10**5


def test_flips_come_half_the_time_and_are_whole_numbers() -> None:
    flips = draws(range(10_000)).flips()
    assert (flips.dtype, flips.shape) == (np.int32, (10_000,))
    assert abs(flips.mean() - 0.5) < 0.025
    assert set(flips.tolist()) == {0, 1}


def test_numbers_out_of_their_range_are_refused() -> None:
    for change in ({"seed": 1.5}, {"epoch": -1}):
        with pytest.raises(OptionError, match="whole number"):
            draws([0], **change)  # type: ignore[arg-type]
    for count in (0, 1.5):
        with pytest.raises(OptionError, match="count as a whole number of at least 1"):
            draws([0]).uniform(count)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="low and high as 2 numbers"):
        draws([0]).uniform(low=float("nan"))
    with pytest.raises(OptionError, match="low and high as numbers of 32 bits"):
        draws([0]).uniform(high=1e39)
    for places in (3, None, np.array([0.5]), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(OptionError, match="places as whole numbers"):
            Draws(seed=0, epoch=0, places=places)  # type: ignore[arg-type]
