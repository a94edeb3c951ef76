"""Manifests of metadata caches."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.cache import NAME, CacheManifest
from tests.support.stored import unpack


@pytest.mark.parametrize(("name", "format"), [("metadata_cache", 1), ("metadata_cache_2", 2)])
def test_a_cache_of_an_earlier_version_is_read(name: str, format: int, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    found = CacheManifest.from_json((folder / NAME).read_text(encoding="utf-8"), place="here")
    assert (found.data_table, found.metadata_table, found.label_type) == ("ks.data", "ks.metadata", "int")
    assert (found.format, found.rows) == (format, 9)
    assert found.class_names == {0: "cat", 1: "dog", 2: "Kuh"}
    (file,) = found.files
    rows = pq.read_table(folder / file.path).to_pydict()
    assert (rows["id"][0].hex(), rows["label"]) == ("5b5be4dc1eaa5e45ab6c156ac4ed5629", [0, 1, 2] * 3)
    assert ("imagestrata:expires" in rows) == (format > 1)
