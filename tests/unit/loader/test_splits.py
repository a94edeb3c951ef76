"""Rows files as splits: which table they are read from, and what is no rows file."""

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
