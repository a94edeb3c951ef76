"""The sizing table follows from its formulas."""

import pytest

from docs import sizing


def test_the_formulas_give_the_rates_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COPIES": 1, "NODES": 1, "SPARK_CORES": 2, "NODE_CORES": 2}.items():
        monkeypatch.setattr(sizing, name, value)
    assert sizing.split_seconds(100_000_000) - 25 == pytest.approx(168.7, rel=0.02)
    assert sizing.split_seconds(1_280_000) == pytest.approx(26.6, rel=0.1)
    assert sizing.metadata_seconds(2_000_000) - 25 + 3.4 == pytest.approx(31.7, rel=0.02)
    assert sizing.opening_seconds(100_000_000) == pytest.approx(24.7, rel=0.02)
    assert sizing.opening_seconds(1_280_000) == pytest.approx(0.77, rel=0.1)


def test_an_ingest_takes_as_long_as_its_slowest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "NODE_BYTES_PER_S", 1e6)
    assert sizing.ingest_seconds(100) == pytest.approx(100 * 110_000 * 3 / 3e6)
    monkeypatch.setattr(sizing, "NODE_BYTES_PER_S", 1e12)
    assert sizing.ingest_seconds(1000) == pytest.approx(1000 * 110_000 * 3 / 1e9)
    monkeypatch.setattr(sizing, "DISK_BYTES_PER_S", 1e12)
    assert sizing.ingest_seconds(48_000) == pytest.approx(48_000 * 1.84e-3 * 3 / 48)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.1e11, "bytes", "110 GB"),
        (22_080_000_000_000, "bytes", "22 TB"),
        (500, "bytes", "500 B"),
        (26.2, "time", "26 s"),
        (119, "time", "119 s"),
        (150, "time", "2.5 min"),
        (11_500, "time", "3.2 h"),
        (2_201, "count", "2.2 k"),
        (1e6, "count", "1.0 M"),
    ],
)
def test_values_are_shown_with_the_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert sizing.shown(value, unit) == text
