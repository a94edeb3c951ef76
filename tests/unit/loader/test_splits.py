"""Rows files as splits: which table they are read from, and what is no rows file."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import loader
from tests.support.split_folders import image_ids, write_split_folder


def test_rows_are_read_from_the_named_table(tmp_path: Path) -> None:
    rows = image_ids(6), [0, 1, 2, 0, 1, 2]
    one = write_split_folder(tmp_path / "one", [rows], data_table="ks.data")
    split = loader.open_rows(one, data_table="other.pictures", cache=tmp_path / "cache")
    assert split.data_table == "other.pictures"
    sent = pickle.loads(pickle.dumps(split))  # as to a process that loads
    assert (sent.data_table, len(sent)) == ("other.pictures", 6)
    assert np.array_equal(sent.ids, split.ids)
    assert np.array_equal(split.ids, loader.open_split(one, cache=tmp_path / "cache").ids)
    two = write_split_folder(tmp_path / "two", [rows, rows])
    with pytest.raises(loader.SplitError, match=r"a rows file, .* at .*two\. Found: 2 splits"):
        loader.open_rows(two, cache=tmp_path / "cache")
    for wrong in ("pictures", 5):
        with pytest.raises(loader.OptionError, match=str(wrong)):
            loader.open_rows(one, data_table=wrong, cache=tmp_path / "cache")  # type: ignore[arg-type]


def test_a_crafted_fingerprint_or_path_leads_nowhere(tmp_path: Path) -> None:
    split, cache = (
        write_split_folder(tmp_path / "split", [(image_ids(6), [0, 1, 2, 0, 1, 2])]),
        tmp_path / "a" / "cache",
    )
    told = json.loads((split / "_manifest.json").read_text())
    for change in ({"fingerprint": "../../out"}, {"fingerprint": str(tmp_path / "out")}, {"fingerprint": ".."}):
        crafted = {**told, "splits": [{**told["splits"][0], **change}]}
        (split / "_manifest.json").write_text(json.dumps(crafted))
        with pytest.raises(loader.SplitError, match=r"split manifest at .*manifest\.json.* Wanted 64 digits"):
            loader.open_split(split, cache=cache)
    (split / "split=0").rename(tmp_path / "split=0")
    crafted = json.dumps(told).replace('"split=0/', '"../split=0/')
    (split / "_manifest.json").write_text(crafted)
    with pytest.raises(loader.SplitError, match=r"split manifest at .*manifest\.json.* Wanted the relative path"):
        loader.open_split(split, cache=cache)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["split", "split=0"]
