"""Splits, caches, dictionaries and shards that an earlier version wrote are read."""

from pathlib import Path

import numpy as np
import pytest

from formats import SplitRows, open_split
from formats.shards.layout import contents_of
from formats.splits.cache import cached_rows
from schemas import Columns, SchemaError
from schemas.shards import ShardManifest
from tests.support.stored import unpack

TRAIN = {
    "06c06f8b": 2,
    "32e4d639": 1,
    "7010f479": 0,
    "8ffe06b7": 1,
    "66d7c638": 0,
    "534d57f5": 2,
}
VAL = {"5b5be4dc": 0, "2bb6f721": 1, "7ff8b8ae": 2}
FINGERPRINTS = (
    "c447585ba9fe90628d246feddcd3c5de1990a2de0835b5aadc020cb98c5f44e2",
    "e49dd0c256423d3e495cbb3282b2c51cb133bf18d7648a0e6953784a1db2229c",
)


def firsts(ids: np.ndarray) -> list[str]:
    """The first digits of each id."""
    return [bytes(one).hex()[:8] for one in ids]


def rows(found: SplitRows) -> dict[str, int]:
    return dict(zip(firsts(found.ids), found.labels.tolist(), strict=True))


def test_a_split_folder_is_read_in_its_order(tmp_path: Path) -> None:
    folder = open_split(unpack("split_folder", tmp_path / "split"))
    manifest = folder.manifest
    assert (manifest.data_table, manifest.metadata_table, manifest.seed) == ("ks.data", "ks.metadata", 5)
    assert manifest.class_names == {0: "cat", 1: "dog", 2: "Kuh"}
    assert [(part.rows, part.counts) for part in manifest.splits] == [(6, {0: 2, 1: 2, 2: 2}), (3, {0: 1, 1: 1, 2: 1})]
    assert tuple(part.fingerprint for part in manifest.splits) == FINGERPRINTS
    for index, wanted in enumerate((TRAIN, VAL)):
        assert list(rows(folder.rows(index, cache=tmp_path / "cache")).items()) == list(wanted.items())


def test_the_newer_of_two_manifests_in_a_folder_counts(tmp_path: Path) -> None:
    """Both remain if a run that replaced an earlier version's split was killed."""
    split = unpack("split_folder", tmp_path / "split")
    text = (split / "manifest.json").read_text()
    (split / "_manifest.json").write_text(text.replace('"seed": 5', '"seed": 6'))
    assert open_split(split).manifest.seed == 6
    (split / "_manifest.json").write_text("cut")
    with pytest.raises(SchemaError, match=r"split/_manifest\.json"):
        open_split(split)


def no_fill(*_: object) -> None:
    pytest.fail("the cache was there")


def test_a_cache_of_opened_splits_is_used(tmp_path: Path) -> None:
    cache = unpack("split_cache", tmp_path)
    for fingerprint, wanted in zip(FINGERPRINTS, (TRAIN, VAL), strict=True):
        found = cached_rows(cache, fingerprint=fingerprint, rows=len(wanted), fill=no_fill)
        assert list(rows(found).items()) == list(wanted.items())


def test_a_split_dictionary_is_read(tmp_path: Path) -> None:
    found = open_split(unpack("split_dictionaries", tmp_path) / "split.pckl")
    assert (found.manifest.data_table, found.manifest.metadata_table, found.manifest.label_type) == (
        "ks.data",
        "ks.metadata",
        "int",
    )
    assert (found.manifest.columns, found.manifest.num_classes) == (Columns(id="id", label="label", data="data"), 3)
    for index, wanted in enumerate((TRAIN, VAL)):
        part = found.rows(index)
        assert part.labels is not None
        assert firsts(part.ids) == list(wanted)
        assert part.labels.tolist() == list(wanted.values())
    assert [text[:12] for text in found.fingerprints] == ["9cac03176f5c", "4ff0d93907a6"]


def test_a_split_dictionary_of_another_tool_is_read(tmp_path: Path) -> None:
    found = open_split(unpack("split_dictionaries", tmp_path) / "theirs.pckl")
    assert (found.manifest.data_table, found.manifest.columns.id) == ("imagenette.data", "patch_id")
    assert found.manifest.num_classes == 10
    parts = [found.rows(0), found.rows(1)]
    assert [firsts(part.ids) for part in parts] == [["b7d55bf4", "391ada15", "996ad860"], ["bf428e1d"]]
    assert [part.labels for part in parts] == [None, None]


def test_shards_and_their_manifest_are_read(tmp_path: Path) -> None:
    folder = unpack("shards", tmp_path)
    manifest = ShardManifest.from_json((folder / "shards.json").read_text(encoding="utf-8"), place="here")
    assert (manifest.samples, manifest.num_classes, manifest.label_type) == (7, 3, "int")
    assert manifest.class_names == {0: "cat", 1: "dog", 2: "Kuh"}
    assert manifest.counts == {0: 3, 1: 2, 2: 2}
    assert manifest.fingerprint == "d96981f8b8f7976e5a2a19fd9ba4a111da878f4e83ca8e3b219b85c2eddc9539"
    labels = []
    for shard in manifest.shards:
        data = memoryview((folder / shard.name).read_bytes())
        found = contents_of(data)
        labels += [int(found.files(number, data)["cls"]) for number in range(len(found))]
    assert labels == [0, 1, 0, 0, 1, 2, 2]
