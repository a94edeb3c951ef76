"""Ids of rows, from their text columns."""

import pytest

from etl.sources.entries import text
from schemas import image_id
from schemas.identity import is_id_of


@pytest.mark.parametrize("path", [b"a/1.png", "é/\n.png".encode(), b"caf\xe9/5\xff.png", b"literal \\xff/1"])
def test_ids_follow_from_paths_of_any_bytes(path: bytes) -> None:
    for or_split in (b"", b"train\xff"):
        image = image_id("digits", or_split, path).bytes
        assert is_id_of(image, dataset="digits", or_split=text(or_split), path=text(path))
        assert not is_id_of(image, dataset="other", or_split=text(or_split), path=text(path))
