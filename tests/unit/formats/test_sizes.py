"""Sizes as people write them."""

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.sizes import counted, parse_size

UNITS = {"": 1, "k": 1000, "M": 1000**2, "g": 1000**3, "T": 1000**4, "P": 1000**5} | {
    "Ki": 1024, "mi": 1024**2, "Gi": 1024**3, "TI": 1024**4, "Pi": 1024**5
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1), ("500M", 500_000_000), ("1MB", 1_000_000), ("1GiB", 1 << 30), ("3e8", 300_000_000), ("1e+3", 1000),
        ("1.5 kB", 1500), (" 2 T ", 2 * 10**12), ("0.5Ki", 512), (".5k", 500), ("100000000", 10**8), ("10b", 10),
        ("1.5e9", 1_500_000_000), ("9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_numbers_with_and_without_units_are_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_count_has_the_singular_for_one() -> None:
    assert [counted(n, "image") for n in (0, 1, 2000)] == ["0 images", "1 image", "2,000 images"]
    assert [counted(n, "class", "classes") for n in (1, 2)] == ["1 class", "2 classes"]


@given(st.integers(1, 10**12), st.sampled_from(sorted(UNITS)), st.sampled_from(["", "B", "b"]), st.booleans())
def test_a_whole_number_times_its_unit_is_exact(number: int, unit: str, end: str, has_space: bool) -> None:
    size = number * UNITS[unit]
    text = f"{number}{' ' * has_space}{unit}{end}"
    if size < 2**63:
        assert parse_size(text) == size
    else:
        with pytest.raises(ValueError, match="more than"):
            parse_size(text)


@given(st.decimals(Decimal("0.001"), Decimal(10**6), places=3), st.sampled_from(sorted(UNITS)))
def test_a_fraction_is_exact_or_refused(number: Decimal, unit: str) -> None:
    exact = number * UNITS[unit]
    if exact == int(exact) and 1 <= exact < 2**63:
        assert parse_size(f"{number:f}{unit}") == exact
    else:
        with pytest.raises(ValueError, match="Wanted a size"):
            parse_size(f"{number:f}{unit}")


@given(st.text(max_size=12))
def test_any_other_text_is_refused_with_examples(text: str) -> None:
    found = []
    with suppress(ValueError):
        found.append(parse_size(text))
    if found:
        assert found[0] >= 1
    else:
        with pytest.raises(ValueError, match=r"Wanted a size .*, such as 500M, 1GiB or 3e8\. Found: "):
            parse_size(text)


@pytest.mark.parametrize(
    "text", ["", "M", "-1", "0", "0M", "1.5", "1X", "1 M B", "inf", "nan", "1e", "1e99", "١M", "1_0"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Wanted a size"):
        parse_size(text)
