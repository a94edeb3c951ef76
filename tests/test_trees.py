"""Listing trees: every file comes out, as an image to be or with a reason."""

import os
import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.trees import ListedFile, class_folders, list_files, loose_files, text, walk
from schemas import image_id


def _write(root: Path, *paths: str | bytes) -> None:
    for path in paths:
        place = os.path.join(os.fsencode(root), os.fsencode(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(b"x")


def test_text_keeps_utf8_and_escapes_the_rest() -> None:
    assert text("café/日本\n".encode()) == "café/日本\n"
    assert text(b"caf\xe9") == "caf\\xe9"
    assert text(b"\xed\xa0\x80") == r"\xed\xa0\x80"


def test_class_folders_come_by_split_and_in_byte_order(tmp_path: Path) -> None:
    _write(tmp_path, "val/b/1", "val/a/1", "train/a/1", "train/B/1", b"train/\xff/1")
    root = os.fsencode(tmp_path)
    assert class_folders(root, [b"val", b"train"]) == [
        (b"val", b"a"),
        (b"val", b"b"),
        (b"train", b"B"),
        (b"train", b"a"),
        (b"train", b"\xff"),
    ]


def test_trees_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a folder for every class"):
        class_folders(os.fsencode(tmp_path), [b""])
    _write(tmp_path, "1.png")
    with pytest.raises(SourceError, match="--split-subdir"):
        class_folders(os.fsencode(tmp_path), [b""])
    with pytest.raises(SourceError, match="No such file"):
        class_folders(os.fsencode(tmp_path), [b"val"])


def test_class_folders_of_the_same_text_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, b"a\xff/1", b"a\\xff/1")
    with pytest.raises(SourceError, match="differ as text"):
        class_folders(os.fsencode(tmp_path), [b""])


def test_walk_gives_every_file_at_any_depth_in_order(tmp_path: Path) -> None:
    _write(tmp_path, "c/2", "c/1", "c/d/e/f/1", "c/z/1", b"c/\xff\n/1")
    found = list(walk(os.fsencode(tmp_path), b"c"))
    assert found == [ListedFile(path, 1, None) for path in (b"c/1", b"c/2", b"c/d/e/f/1", b"c/z/1", b"c/\xff\n/1")]


def test_walk_follows_links_but_not_round_in_circles(tmp_path: Path) -> None:
    _write(tmp_path, "c/1", "elsewhere/2")
    (tmp_path / "c" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "c" / "file").symlink_to(tmp_path / "elsewhere" / "2")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "c")
    (tmp_path / "c" / "self").symlink_to(tmp_path / "c" / "self")
    (tmp_path / "c" / "gone").symlink_to(tmp_path / "nothing")
    found = {file.path: file.reason for file in walk(os.fsencode(tmp_path), b"c")}
    assert found == {
        b"c/1": None,
        b"c/file": None,
        b"c/link/2": None,
        b"c/link/up": "link loop: it leads to a folder that it is in",
        b"c/self": "link loop: it leads to itself",
        b"c/gone": "broken link: it leads nowhere",
    }


def test_pipes_and_sockets_are_told_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "c/1")
    os.mkfifo(tmp_path / "c" / "pipe")
    monkeypatch.chdir(tmp_path / "c")  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        found = {file.path: file.reason for file in walk(os.fsencode(tmp_path), b"c")}
    assert found == {
        b"c/1": None,
        b"c/pipe": "not a regular file: a pipe",
        b"c/socket": "not a regular file: a socket",
    }


def test_a_folder_that_this_machine_does_not_see_fails(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="shared file system"):
        list(walk(os.fsencode(tmp_path), b"c"))


def test_loose_files_have_a_reason(tmp_path: Path) -> None:
    _write(tmp_path, "c/1", "b", "a")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert list(loose_files(os.fsencode(tmp_path))) == [
        ListedFile(b"a", 1, "outside a class folder"),
        ListedFile(b"b", 1, "outside a class folder"),
        ListedFile(b"gone", 0, "broken link: it leads nowhere"),
    ]


def test_executors_list_what_walk_lists(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path, "train/a/1", "train/a/b/2", b"train/\xe9/1", "train/loose", "val/a/1", "other/a/1")
    root = os.fsencode(tmp_path)
    folders = class_folders(root, [b"train", b"val"])
    rows = list_files(spark, folders, root=root, dataset="d").collect()
    found = {(bytes(row.or_split), bytes(row.path)): (bytes(row.id), row.bytes, row.reason) for row in rows}
    wanted = [(b"train", b"a/1"), (b"train", b"a/b/2"), (b"train", b"\xe9/1"), (b"val", b"a/1")]
    assert found == {
        **{(split, path): (image_id("d", split, path).bytes, 1, None) for split, path in wanted},
        (b"train", b"loose"): (image_id("d", b"train", b"loose").bytes, 1, "outside a class folder"),
    }
    assert len(rows) == len(found)
