"""Listing trees: every file is listed, as an image or with a reason."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources.entries import text
from etl.sources.trees import ListedFile, loose_files, walk
from schemas import image_id
from schemas.identity import image_ids
from tests.support.trees import touch


def test_text_keeps_utf8_and_escapes_the_rest() -> None:
    assert text("café/日本\n".encode()) == "café/日本\n"
    assert text(b"caf\xe9") == "caf\\xe9"
    assert text(b"\xed\xa0\x80") == r"\xed\xa0\x80"


def test_walk_gives_every_file_at_any_depth_in_order(tmp_path: Path) -> None:
    touch(tmp_path, "c/2", "c/1", "c/d/e/f/1", "c/z/1", b"c/\xff\n/1")
    found = list(walk(os.fsencode(tmp_path), b"c"))
    assert found == [ListedFile(path, 1, None) for path in (b"c/1", b"c/2", b"c/d/e/f/1", b"c/z/1", b"c/\xff\n/1")]


def test_walk_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    touch(tmp_path, "c/1", "elsewhere/2")
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


def test_pipes_and_sockets_are_listed_and_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "c/1")
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


def test_a_folder_missing_on_this_machine_fails(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="shared file system"):
        list(walk(os.fsencode(tmp_path), b"c"))


def test_files_beside_class_folders_are_loose(tmp_path: Path) -> None:
    touch(tmp_path, "c/1", "b", "a")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert list(loose_files(os.fsencode(tmp_path))) == [
        ListedFile(b"a", 1, None),
        ListedFile(b"b", 1, None),
        ListedFile(b"gone", 0, "broken link: it leads nowhere"),
    ]


def test_a_link_to_the_whole_tree_is_a_loop(tmp_path: Path) -> None:
    touch(tmp_path, "c/1", "d/2")
    (tmp_path / "c" / "up").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [one for folder in (b"c", b"loop") for one in walk(os.fsencode(tmp_path), folder)]
    loops = [ListedFile(path, 0, "link loop: it leads to a folder that it is in") for path in (b"c/up", b"loop")]
    assert found == [ListedFile(b"c/1", 1, None), *loops]


@given(st.binary(max_size=200), st.binary(max_size=20), st.text(max_size=20))
def test_bulk_ids_equal_single_ids(path: bytes, split: bytes, dataset: str) -> None:
    assert image_ids(dataset, split)(path) == image_id(dataset, split, path).bytes
