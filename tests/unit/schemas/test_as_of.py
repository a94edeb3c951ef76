"""Points in the history of a table."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from schemas.as_of import AsOf


def test_runs_ingests_and_times_are_told_apart() -> None:
    assert AsOf.parse(" 12 ").sequence == 12
    one = uuid.uuid1()
    assert AsOf.parse(str(one)).ingest_id == one
    assert AsOf.parse("2026-03-01").time == datetime(2026, 3, 1, tzinfo=UTC)
    assert AsOf.parse("2026-03-01T12:00+01:00").time == datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=1)))
    assert AsOf.parse("2026-03-01T12:00:00Z").time == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert str(AsOf.parse("2026-03-01")) == "2026-03-01"


@pytest.mark.parametrize("text", ["", "-1", "march", "2026-13-01", "1.5"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Wanted the number of a run, an ingest id, or a time"):
        AsOf.parse(text)
