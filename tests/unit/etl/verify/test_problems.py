"""Verification: the page size."""

import pytest

from etl.verify.problems import page_rows


@pytest.mark.parametrize(
    ("mean", "largest", "rows"),
    [
        (0, 0, 4),
        (110e3, 200_000, 100),
        (1e6, 2 << 20, 16),
        (110e3, 64 << 20, 4),
        (50e6, 60 << 20, 1),
        (1e9, 1 << 40, 1),
    ],
)
def test_pages_are_small_in_rows_and_in_bytes(mean: float, largest: int, rows: int) -> None:
    assert page_rows(mean=mean, largest=largest) == rows
