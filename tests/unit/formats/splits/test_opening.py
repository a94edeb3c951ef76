"""Folders and dictionaries are opened as one type."""

from pathlib import Path

import pytest

from formats import OpenSplit, open_split, write_dictionary
from formats.stores.storage import Storage
from tests.support.split_folders import image_ids, write_split_folder

IDS, LABELS = image_ids(9), [number % 4 for number in range(9)]


@pytest.fixture(params=["folder", "dictionary"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> OpenSplit:
    folder = open_split(write_split_folder(tmp_path / "split", [(IDS[:6], LABELS[:6]), (IDS[6:], LABELS[6:])]))
    if request.param == "folder":
        return folder
    rows = [folder.rows(index, cache=tmp_path / "cache") for index in (0, 1)]
    write_dictionary(Storage(tmp_path), "split.pckl", manifest=folder.manifest, splits=rows)
    return open_split(tmp_path / "split.pckl")


def test_a_folder_and_a_dictionary_answer_alike(split: OpenSplit, tmp_path: Path) -> None:
    assert [(part.rows, part.counts) for part in split.manifest.splits] == [
        (6, {0: 2, 1: 2, 2: 1, 3: 1}),
        (3, {0: 1, 2: 1, 3: 1}),
    ]
    assert split.fingerprints == [split.part(0).fingerprint, split.part(1).fingerprint]
    rows = split.rows(1, cache=tmp_path / "cache")
    assert rows.labels is not None
    assert (rows.ids[0].tobytes(), rows.labels.tolist()) == (IDS[6].bytes, LABELS[6:])
    assert split.find(1, IDS[7].bytes) == (LABELS[7], 1)
    assert split.find(0, IDS[7].bytes) is None
    for ask in (split.part, split.rows, lambda index: split.find(index, IDS[0].bytes)):
        with pytest.raises(IndexError, match=r"a split from 0 to 1 of .*Found: 2"):
            ask(2)
