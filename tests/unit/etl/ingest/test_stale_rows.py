"""What the report says about stale rows."""

import pytest

from etl.errors import EtlError
from etl.ingest.stale_rows import StaleRows


def test_the_report_says_how_to_list_and_remove_stale_rows() -> None:
    few, many = StaleRows(1, 100), StaleRows(1_200, 2_000)
    assert str(few).endswith("(to list them: --list-stale; to remove them: --prune)")
    assert str(many).startswith("1,200 of 2,000 rows of this source are stale: ")
    assert str(many).endswith("(to list them: --list-stale; to remove them: --prune --prune-count 1200)")
    assert str(StaleRows(1, 100, is_listed=True)).endswith(" or are damaged (to remove them: --prune)")
    few.check(None)


def test_images_of_hidden_files_of_an_earlier_version_are_removed_only_on_confirmation() -> None:
    hidden = StaleRows(1, 1_000, hidden=1)
    assert "damaged, or files are hidden (1 here), which earlier versions have ingested (to list" in str(hidden)
    assert str(hidden).endswith("--prune --prune-count 1)")
    with pytest.raises(EtlError, match=r"exceeds 1% of the rows or if files are hidden \(1 here\)"):
        hidden.check(None)
    hidden.check(1)
