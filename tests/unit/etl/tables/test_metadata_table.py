"""Facts of a metadata table that need no table."""

import pytest

from etl.tables.metadata_table import is_deleted
from schemas.tables import DELETED, PRUNED


@pytest.mark.parametrize(
    ("since", "kind", "deleted"),
    [
        (0, DELETED, True),  # it has no row
        (4, DELETED, True),  # the deletion was interrupted
        (6, DELETED, False),  # it was ingested again
        (0, PRUNED, False),
        (4, PRUNED, False),
    ],
)
def test_an_image_is_deleted_until_it_comes_back(since: int, kind: str, deleted: bool) -> None:
    assert is_deleted(since, kind=kind, until=5) == deleted
