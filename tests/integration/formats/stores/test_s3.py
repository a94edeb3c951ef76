"""Storages on a real S3 server: reading, listing, writing, and refusals."""

import gc
import os
import time
from collections.abc import Callable

import pytest

from formats.errors import StorageError
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.services import fresh_name
from tests.support.shard_checks import assert_streamed


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    s3.make_bucket(bucket := fresh_name("bucket"))
    return bucket


@pytest.fixture(scope="module")
def access(s3: S3) -> S3Access:
    return S3Access(s3.endpoint, s3.access_key, s3.secret_key)


ASKS: list[Callable[[Storage], object]] = [
    Storage.check,
    lambda storage: list(storage.entries()),
    lambda storage: list(storage.walk("a")),
    lambda storage: storage.names(),
    lambda storage: storage.read_bytes("a"),
    lambda storage: storage.read_range("a", 1, 2),
    lambda storage: storage.open("a").__enter__(),
    lambda storage: storage.size("a"),
    lambda storage: storage.write_bytes("a", b"1"),
]


def test_every_operation_reports_wrong_keys(s3: S3, bucket: str) -> None:
    for pair in ((s3.access_key, "wrong"), ("wrong", s3.secret_key)):
        for ask in ASKS:
            storage = Storage(f"s3://{bucket}/x", S3Access(s3.endpoint, *pair))
            with pytest.raises(StorageError) as raised:
                ask(storage)
            assert str(raised.value).startswith(
                f"Wanted s3://{bucket}/x at {s3.endpoint}. Found: the keys are rejected ("
            )
            assert "\n" not in str(raised.value)
            assert s3.secret_key not in str(raised.value)


def test_every_operation_reports_a_missing_bucket(access: S3Access) -> None:
    for ask in ASKS:
        with pytest.raises(StorageError) as raised:
            ask(Storage("s3://nowhere/x", access))
        assert str(raised.value).endswith("Found: no bucket 'nowhere' there.")


def test_objects_are_read_by_ranges_and_listed_by_pages(s3: S3, access: S3Access, bucket: str) -> None:
    storage = Storage(f"s3://{bucket}/pages", access)
    names = [f"many/{number:04}" for number in range(1010)]  # a page has a thousand
    root = s3.folder / "buckets" / bucket / "pages"  # the server lists the files in it
    (root / "many").mkdir(parents=True)
    for name in names:
        (root / name).write_bytes(name.encode())
    storage.write_bytes("é #?%+ ", b"12345")
    assert dict(storage.walk()) == {**dict.fromkeys(names, 9), "é #?%+ ": 5}
    assert sorted(storage.entries()) == [("many", 0, True), ("é #?%+ ", 5, False)]
    assert len(storage.names("many")) == 1010
    assert storage.names("nothing") == []
    assert [storage.read_range("é #?%+ ", *at) for at in ((1, 2), (4, 9), (5, 9), (9, 1), (0, 0))] == [
        *(b"23", b"5", b"", b"", b"")
    ]
    assert storage.size("é #?%+ ") == 5
    for ask in (storage.read_bytes, storage.size, storage.read_text, lambda name: storage.read_range(name, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask("many/none")


def test_names_that_look_like_patterns_are_names(access: S3Access, bucket: str) -> None:
    storage = Storage(f"s3://{bucket}/patterns", access)
    names = ["run1/a", "run[1]/a", "run[1]/b/c", "x*", "xy"]
    for name in names:
        storage.write_bytes(name, b"1")
    storage.remove("run[1]")
    storage.remove("x*")
    storage.move("run1/a", "run[2]/a")
    storage.move("run[2]/a", "run[3]/a")
    assert storage.files("") == ["run[3]/a", "xy"]
    storage.remove("")
    assert storage.files("") == []


def test_detailed_listings_keep_all_fields(access: S3Access, bucket: str) -> None:
    storage = Storage(f"s3://{bucket}/whole", access)
    storage.write_bytes("a", b"1")
    assert list(storage.walk()) == [("a", 1)]
    assert storage.filesystem.ls(storage.path(), detail=True)[0]["LastModified"].year > 2000


def test_a_forked_process_does_not_use_its_parent_s_connections(access: S3Access, bucket: str) -> None:
    storages = [Storage(f"s3://{bucket}/forked", access)]
    storages[0].write_bytes("a", b"1")
    pid = os.fork()
    if not pid:
        own = Storage(f"s3://{bucket}/forked", access)
        is_right = own.read_bytes("a") == b"1"
        for free in (storages.clear, gc.collect):  # garbage collection may happen at any time
            own.filesystem.loop.call_soon_threadsafe(free)
        is_right &= own.read_bytes("a") == b"1"  # behind both
        os._exit(not is_right)
    assert os.waitpid(pid, 0)[1] == 0
    started = time.monotonic()
    assert storages[0].read_bytes("a") == b"1"
    assert time.monotonic() - started < 8  # otherwise it waits fifteen seconds for an answer that it cannot get


def test_no_shard_is_held_in_memory(access: S3Access, bucket: str) -> None:
    assert_streamed(Storage(f"s3://{bucket}/large", access))
