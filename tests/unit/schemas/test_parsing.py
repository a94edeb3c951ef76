"""Values in texts and manifests."""

import pytest

from schemas.parsing import parse_ttl


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2m", 120), ("12h", 43_200), ("30d", 2_592_000), ("none", 0)]
)
def test_a_time_to_live_has_a_unit(text: str, seconds: int) -> None:
    assert parse_ttl(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "d", "-3", "3.5d", "30 d", "1y", "\u0663d"])
def test_other_times_to_live_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Wanted a time in seconds, or as 30d"):
        parse_ttl(text)
