"""The number of images of an epoch that may be missing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loader
from loader.prefetch.missing import most_missing
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder


@pytest.mark.parametrize(
    ("share", "samples", "whole", "part"),
    [
        (0.0, 1000, 0, 0),
        (0.01, 8, 0, 3),
        (0.01, 99, 0, 6),
        (0.01, 100, 1, 6),
        (0.01, 1438, 14, 28),
        (0.29, 100, 29, 45),
        (0.5, 3, 1, 7),
        (1.0, 7, 7, 10),
    ],
)
def test_a_part_of_an_epoch_may_miss_more_by_chance(share: float, samples: int, whole: int, part: int) -> None:
    assert most_missing(share, samples=samples, rows=samples) == whole
    assert most_missing(share, samples=samples, rows=1_000_000) == part


@given(st.floats(0, 1), st.integers(1, 500), st.integers(1, 500))
def test_a_part_of_an_epoch_may_never_miss_more_than_all_of_it(share: float, samples: int, rows: int) -> None:
    assert most_missing(share, samples=samples, rows=rows) <= share * max(samples, rows) + 1e-6


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "1%", True, float("nan")])
def test_a_share_out_of_range_is_refused(tmp_path: Any, wrong: Any) -> None:
    split = loader.open_split(write_split_folder(tmp_path, [(image_ids(3), [0, 1, 2])]), cache=tmp_path / "cache")
    with pytest.raises(loader.OptionError, match=r"max_missing as a share from 0 to 1\. Found: "):
        RowSource(split, rows={}, batch_size=2, max_missing=wrong)
