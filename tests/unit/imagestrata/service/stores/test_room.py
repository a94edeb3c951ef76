"""Reserved space for uploads: never more than the quota or the disk, and counted once."""

import shutil
from pathlib import Path

import pytest

from imagestrata.service.errors import FullError
from imagestrata.service.stores.room import Room


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Room(tmp_path)
    room.quota = 1000
    room.add("x", 1, "a", 100)
    return room


def test_promises_never_exceed_the_quota_together(room: Room, tmp_path: Path) -> None:
    room.promise(tmp_path / "a", 500)
    with pytest.raises(FullError, match="600 of the quota of 1,000"):
        room.promise(tmp_path / "b", 401)
    room.promise(tmp_path / "b", 400)
    with pytest.raises(FullError):
        room.take(tmp_path / "c", 1)
    room.take(tmp_path / "a", 500)
    with pytest.raises(FullError):
        room.take(tmp_path / "a", 1)
    room.forget(tmp_path / "b")
    room.take(tmp_path / "a", 400)


def test_promises_never_exceed_the_free_disk_together(room: Room, tmp_path: Path) -> None:
    room.quota = None
    free = shutil.disk_usage(tmp_path).free
    room.promise(tmp_path / "a", free * 3 // 4)
    with pytest.raises(FullError, match="not reserved"):
        room.promise(tmp_path / "b", free * 3 // 4)
    with pytest.raises(FullError, match="not reserved"):
        room.take(tmp_path / "c", free * 3 // 4)


def test_a_promise_ends_when_nothing_comes_and_can_be_renewed(room: Room, tmp_path: Path) -> None:
    room.promise(tmp_path / "a", 900)
    room.take(tmp_path / "a", 10)
    room.keep(tmp_path / "a", here=10, seconds=3600)
    with pytest.raises(FullError):
        room.promise(tmp_path / "b", 500)
    room.keep(tmp_path / "a", here=10, seconds=-1)
    room.promise(tmp_path / "b", 500)
    assert room.arriving == 10
    with pytest.raises(FullError):
        room.promise(tmp_path / "a", 900, here=10)
    assert room.arriving == 10
    room.forget(tmp_path / "b")
    room.promise(tmp_path / "a", 900, here=10)


def test_a_body_counts_once_when_it_becomes_a_version(room: Room, tmp_path: Path) -> None:
    room.promise(tmp_path / "a", 900)
    room.take(tmp_path / "a", 900)
    room.add("x", 2, "b", 900, staged=tmp_path / "a")
    assert (room.used, room.arriving) == (1000, 0)
    room.remove("x", 2)
    room.promise(tmp_path / "b", 900)


def test_what_is_there_when_a_server_starts_counts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "data").write_bytes(bytes(70))
    assert Room(tmp_path).arriving == 70
