"""Splits: row lists and their tables, Arrow tables of the rows, and files that are not splits."""

import json
import pickle
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import loader
from tests.support.pictures import picture
from tests.support.split_caches import write_cache
from tests.support.split_folders import image_ids, write_split_folder


def test_rows_are_read_from_the_named_table(tmp_path: Path) -> None:
    rows = image_ids(6), [0, 1, 2, 0, 1, 2]
    one = write_split_folder(tmp_path / "one", [rows], data_table="ks.data")
    split = loader.open_rows(one, data_table="other.pictures", cache=tmp_path / "cache")
    assert split.data_table == "other.pictures"
    sent = pickle.loads(pickle.dumps(split))  # as in a process that loads
    assert (sent.data_table, len(sent)) == ("other.pictures", 6)
    assert np.array_equal(sent.ids, split.ids)
    assert np.array_equal(split.ids, loader.open_split(one, cache=tmp_path / "cache").ids)
    two = write_split_folder(tmp_path / "two", [rows, rows])
    with pytest.raises(loader.SplitError, match=r"a row list of .* at .*two\. Found: 2 splits"):
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


IDS = image_ids(7)


@pytest.fixture(autouse=True)
def no_local_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formats.local_node.PLACE", tmp_path / "node.json")


@pytest.fixture
def split(tmp_path: Path) -> loader.Split:
    folder = write_split_folder(
        tmp_path / "pets",
        [(IDS[:5], [0, 1, 2, 0, 1]), (IDS[5:], [1, 2])],
        class_names={0: "cat", 1: "Übel"},
        metadata_table="ks.metadata",
    )
    return loader.open_split(folder, cache=tmp_path / "cache")


def cached(folder: Path, ids: list[uuid.UUID], **columns: list[Any]) -> str:
    """A metadata cache of these images in three files, with a path and a width, or with other columns."""
    packed = [one.bytes for one in ids]
    given = columns or {"path": [f"p/{one}" for one in ids], "width": list(range(len(ids)))}
    return write_cache(folder, {"id": packed, "label": [0] * len(ids), **given}, files=3)


def test_a_split_becomes_a_table_in_the_order_of_its_positions(split: loader.Split) -> None:
    table = split.to_arrow()
    assert table.schema == pa.schema(
        {"id": pa.string(), "label": pa.int32(), "class_name": pa.string(), "position": pa.int64()}
    )
    assert table.to_pydict() == {
        "id": list(map(str, IDS[:5])),
        "label": [0, 1, 2, 0, 1],
        "class_name": ["cat", "Übel", None, "cat", "Übel"],  # class 2 has no name
        "position": [0, 1, 2, 3, 4],
    }
    frame = split.to_pandas()
    assert list(frame.columns) == table.column_names
    assert frame["id"].tolist() == list(map(str, IDS[:5]))
    assert frame["class_name"].isna().tolist() == [False, False, True, False, False]


def test_metadata_of_a_cache_are_joined_by_id(split: loader.Split, tmp_path: Path) -> None:
    order = [IDS[number] for number in (6, 3, 0, 5, 4, 1, 2)]
    cache = cached(tmp_path / "metadata", order)
    table = split.to_arrow(metadata=True, metadata_cache=cache)
    assert table.column_names == ["id", "label", "class_name", "position", "path", "width"]
    assert table["path"].to_pylist() == [f"p/{one}" for one in IDS[:5]]
    assert table["width"].to_pylist() == [order.index(one) for one in IDS[:5]]
    assert split.to_pandas(metadata=["width"], metadata_cache=cache)["width"].tolist() == table["width"].to_pylist()
    others = cached(tmp_path / "others", order, position=[str(one) for one in order], labels=[[1]] * 7)
    table = split.to_arrow(metadata=True, metadata_cache=others)
    assert table.column_names[3:] == ["position", "metadata_position", "labels"]
    assert table["metadata_position"].to_pylist() == table["id"].to_pylist()
    ours = {"imagestrata:checksum": [1] * 7}  # not of the table
    bare = write_cache(tmp_path / "bare", {"id": [one.bytes for one in order], "label": [0] * 7, **ours})
    assert split.to_arrow(metadata=True, metadata_cache=bare) == split.to_arrow()


def test_metadata_that_are_missing_are_named_and_never_left_out(split: loader.Split, tmp_path: Path) -> None:
    part = cached(tmp_path / "part", [IDS[number] for number in (0, 6, 4, 3)])
    with pytest.raises(loader.MissingImageError, match=rf"Found: none of 2 of them, the first is {IDS[1]}"):
        split.to_arrow(metadata=True, metadata_cache=part)
    twice = cached(tmp_path / "twice", [*IDS, IDS[0]])
    with pytest.raises(loader.SplitError, match="each id once"):
        split.to_arrow(metadata=True, metadata_cache=twice)
    (Path(part) / "rows" / "00001.parquet").unlink()
    with pytest.raises(loader.SplitError, match=r"Wanted the files of the metadata cache .*00001\.parquet"):
        split.to_arrow(metadata=True, metadata_cache=part)
    with pytest.raises(loader.SplitError, match=r"a metadata cache at .*nowhere\. Found: no cache\.json there"):
        split.to_arrow(metadata=True, metadata_cache=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"metadata": True}, "Found: neither"),
        ({"metadata": True, "hosts": "h", "metadata_cache": "CACHE"}, "Found: both, metadata_cache and hosts"),
        ({"metadata": ["colour"], "metadata_cache": "CACHE"}, r"others: path, width\. Found: colour"),
        ({"metadata": "path", "metadata_cache": "CACHE"}, "a list of different names"),
        ({"metadata_cache": "CACHE"}, "Found: only metadata_cache"),
        ({"hosts": "h"}, "Found: only hosts"),
        ({"metadata": True, "metadata_cache": "OTHERS"}, "Found: .*others is a cache of ks.metadata"),
    ],
)
def test_options_that_read_no_metadata_are_refused(
    split: loader.Split, tmp_path: Path, options: dict[str, Any], found: str
) -> None:
    if options.get("metadata_cache") == "OTHERS":
        folder = write_split_folder(tmp_path / "other", [(IDS, [0] * 7)], metadata_table="ks.others")
        split = loader.open_split(folder, cache=tmp_path / "cache")
    cache = cached(tmp_path / "others", IDS)
    options = {name: cache if value in ("CACHE", "OTHERS") else value for name, value in options.items()}
    with pytest.raises(loader.OptionError, match=found.replace("CACHE", cache)):
        split.to_arrow(**options)


def test_class_folders_know_their_paths(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/a/2.png"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).write_bytes(picture(1))
    folder = loader.open_folder(tmp_path / "tree")
    rows = folder.to_arrow(metadata=True).to_pylist()
    assert {(row["path"], row["class_name"]) for row in rows} == {("cat/1.png", "cat"), ("dog/a/2.png", "dog")}
    assert [row["id"] for row in rows] == [str(uuid.UUID(bytes=one.tobytes())) for one in folder.ids]
    with pytest.raises(loader.OptionError, match="class folders have no other metadata"):
        folder.to_arrow(metadata=["width"])


def test_without_pandas_a_table_says_what_to_install(split: loader.Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert len(split.to_arrow()) == 5
    with pytest.raises(loader.MissingExtraError, match="pip install"):
        split.to_pandas()
