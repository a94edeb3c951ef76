"""One storage over local folders and other addresses: the same answers from both."""

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from formats.stores.storage import Storage


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "local":
        yield Storage(tmp_path / "place")
        return
    yield Storage("memory://place/here")
    memory = fsspec.filesystem("memory")
    if memory.exists("/place"):
        memory.rm("/place", recursive=True)


def test_text_that_is_published_is_read_back(storage: Storage) -> None:
    storage.publish_text("note.txt", "größer\n")
    assert storage.read_text("note.txt") == "größer\n"
    storage.publish_text("note.txt", "new")
    assert storage.read_text("note.txt") == "new"
    assert storage.names() == ["note.txt"]
    with storage.open("note.txt") as file:
        assert file.read() == b"new"


def test_a_missing_file_raises_file_not_found(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read_text("note.txt")
    assert not storage.exists("note.txt")
    assert not storage.exists()
    assert storage.names("folder") == []
    storage.remove("note.txt")


def test_files_are_listed_at_any_depth_and_moved(storage: Storage) -> None:
    for name in ("b/2", "b/1", "a"):
        storage.filesystem.makedirs(storage.path("b"), exist_ok=True)
        storage.filesystem.pipe_file(storage.path(name), name.encode())
    assert storage.files("") == ["a", "b/1", "b/2"]
    assert storage.files("b") == ["1", "2"]
    storage.move("b/1", "c/d/1")
    assert storage.files("") == ["a", "b/2", "c/d/1"]
    assert storage.read_text("c/d/1") == "b/1"
    storage.remove("c")
    assert storage.files("") == ["a", "b/2"]
    assert sorted(storage.names()) == ["a", "b"]


def test_an_address_is_named_as_the_user_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage("here").address == str(tmp_path / "here")
    assert Storage(f"file://{tmp_path}/here").is_local
    assert Storage("memory://place/here/").address == "memory://place/here"
    assert repr(Storage("memory://place")) == "Storage('memory://place')"


def test_readers_never_see_partial_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(tmp_path)
    storage.publish_text("note.txt", "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        storage.publish_text("note.txt", "new and longer")
    assert storage.read_text("note.txt") == "old"
