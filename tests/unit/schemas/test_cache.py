"""Manifests of metadata caches."""

from pathlib import Path

import pyarrow.parquet as pq

from schemas.cache import NAME, CacheManifest
from tests.support.stored import unpack


def test_a_cache_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    folder = unpack("metadata_cache", tmp_path)
    found = CacheManifest.from_json((folder / NAME).read_text(encoding="utf-8"), place="here")
    assert (found.data_table, found.metadata_table, found.label_type) == ("ks.data", "ks.metadata", "int")
    assert found.rows == 9
    assert found.class_names == {0: "cat", 1: "dog", 2: "Kuh"}
    (file,) = found.files
    rows = pq.read_table(folder / file.path).to_pydict()
    assert (rows["id"][0].hex(), rows["label"]) == ("5b5be4dc1eaa5e45ab6c156ac4ed5629", [0, 1, 2] * 3)
