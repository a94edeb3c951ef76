"""The embedded S3 server: its keys, its life on the command line; and what our storage says of servers that fail."""

import gc
import os
import socket
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devstack import NodeError, PortError, golang, ports
from devstack.__main__ import main
from devstack.s3 import S3
from etl.errors import SourceError
from etl.secrets import PROPERTIES, driver_storage, executor_storage, secrets_on_executors
from formats.errors import StorageError
from formats.s3 import CHECK_SECONDS, S3Access
from formats.s3_pages import objects
from formats.storage import Storage


@pytest.fixture(scope="module")
def access(s3: S3) -> S3Access:
    s3.make_bucket("storage")
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


def test_wrong_keys_are_told_whatever_is_asked(s3: S3) -> None:
    for keys in ((s3.access_key, "wrong"), ("wrong", s3.secret_key)):
        for ask in ASKS:
            storage = Storage("s3://storage/x", S3Access(s3.endpoint, *keys))
            with pytest.raises(StorageError) as told:
                ask(storage)
            assert str(told.value).startswith(f"Wanted s3://storage/x at {s3.endpoint}. Found: it refuses the keys (")
            assert "\n" not in str(told.value)
            assert s3.secret_key not in str(told.value)


def test_a_missing_bucket_is_told_whatever_is_asked(access: S3Access) -> None:
    for ask in ASKS:
        with pytest.raises(StorageError) as told:
            ask(Storage("s3://nowhere/x", access))
        assert str(told.value) == f"Wanted s3://nowhere/x at {access.endpoint}. Found: no bucket 'nowhere' there."


def test_an_endpoint_that_is_down_is_told_soon(access: S3Access) -> None:
    endpoint = f"http://127.0.0.1:{ports.free(['127.0.0.1'], 1)[0]}"
    for ask in ASKS[:2]:
        started = time.monotonic()
        with pytest.raises(StorageError) as told:
            ask(Storage("s3://storage/x", S3Access(endpoint, access.key, access.secret)))
        assert str(told.value) == (
            f"Wanted s3://storage/x at {endpoint}. "
            "Found: no answer. Is it up, and is its address right (AWS_ENDPOINT_URL)?"
        )
        assert time.monotonic() - started < 15


def test_an_endpoint_that_never_answers_is_told_soon(access: S3Access, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHECK_SECONDS < 15
    monkeypatch.setattr("formats.storage.CHECK_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(StorageError, match="no answer"):
            Storage("s3://storage", S3Access(endpoint, access.key, access.secret)).check()
        assert time.monotonic() - started < 10


def test_what_is_no_endpoint_or_has_no_keys_is_told(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(StorageError, match=r"Found: no keys\. Set AWS_ACCESS_KEY_ID"):
        Storage("s3://storage", S3Access(s3.endpoint)).check()
    with pytest.raises(StorageError, match="Invalid endpoint: nonsense"):
        Storage("s3://storage", S3Access("nonsense", "a", "b")).check()
    with pytest.raises(StorageError, match="with a bucket"):
        Storage("s3://")


def test_objects_are_read_by_ranges_and_listed_by_pages(access: S3Access) -> None:
    storage = Storage("s3://storage/pages", access)
    names = [f"many/{number:04}" for number in range(1010)]  # a page has a thousand
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.write_bytes(name, name.encode()), names))
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


def test_a_page_that_is_written_unusually_is_left_to_the_client() -> None:
    one = b"<Contents><Key>a &amp; &quot;b&lt;</Key><Tag/><Size>5</Size></Contents>"
    assert objects(b"<R><X/>" + one + b"<Y/></R>") == ([{"Key": 'a & "b<', "Size": 5}], b"<R><X/><Y/></R>")
    assert objects(b"<R></R>") == ([], b"<R></R>")
    for wrong in (one.replace(b"b", b"&#10;"), one.replace(b"5", b""), one[:-3], one.replace(b"a", b"<![CDATA[a]]>")):
        assert objects(b"<R>" + wrong + b"</R>") is None


def test_other_listings_of_the_client_are_whole(access: S3Access) -> None:
    storage = Storage("s3://storage/whole", access)
    storage.write_bytes("a", b"1")
    assert list(storage.walk()) == [("a", 1)]
    assert storage.filesystem.ls(storage.path(), detail=True)[0]["LastModified"].year > 2000


def test_a_forked_process_leaves_its_parent_s_connections_alone(access: S3Access) -> None:
    storages = [Storage("s3://storage/forked", access)]
    storages[0].write_bytes("a", b"1")
    pid = os.fork()
    if not pid:
        own = Storage("s3://storage/forked", access)
        is_right = own.read_bytes("a") == b"1"
        for free in (storages.clear, gc.collect):  # where a collection may happen at any time
            own.filesystem.loop.call_soon_threadsafe(free)
        is_right &= own.read_bytes("a") == b"1"  # behind both
        os._exit(not is_right)
    assert os.waitpid(pid, 0)[1] == 0
    started = time.monotonic()
    assert storages[0].read_bytes("a") == b"1"
    assert time.monotonic() - started < 8  # else it waits fifteen seconds for an answer that it cannot hear


def test_secrets_reach_tasks_and_nothing_else(
    spark: SparkSession, s3: S3, access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    Storage("s3://storage/told", access).write_bytes("a", b"right")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    conf = {"endpoint": s3.endpoint, "key": s3.access_key, "secret": s3.secret_key}
    for field, value in conf.items():
        spark.conf.set(PROPERTIES[field], value)
    try:
        assert driver_storage(spark, "s3://storage/told").read_bytes("a") == b"right"
        numbers = spark.sparkContext.parallelize([1], 1)
        with secrets_on_executors(spark):
            assert numbers.map(lambda _: executor_storage("s3://storage/told").read_bytes("a")).collect() == [b"right"]
        assert spark.sparkContext.getLocalProperty(PROPERTIES["secret"]) is None
        with pytest.raises(SourceError, match="no bucket 'nowhere'"):
            driver_storage(spark, "s3://nowhere/a")
        shown = {field: spark.sql(f"SET {PROPERTIES[field]}").collect()[0].value for field in conf}
        assert [field for field, value in shown.items() if "redacted" not in value] == ["endpoint"]
    finally:
        for field in conf:
            spark.conf.unset(PROPERTIES[field])
    assert s3.secret_key not in repr(access)
    with pytest.raises(TypeError, match="the address of a storage in a closure"):
        Storage("s3://storage", access).__reduce_ex__(2)


def test_keys_lie_in_a_file_of_their_own(s3: S3) -> None:
    settings = s3.folder / "settings.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    pid = s3.pid
    assert pid is not None
    assert s3.secret_key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert not ports.is_held(s3.port, "127.0.0.2")  # the loopback's first address alone


def test_a_life_on_the_command_line(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(tmp_path / "with space")]
    assert main(["s3-status", *data]) == 1
    assert main(["s3-up", "--port", str(s3.port), *data]) == 1
    assert f"versitygw (pid {s3.pid}) listens there" in capsys.readouterr().err
    port = ports.free(["127.0.0.1"], 1)[0]
    try:
        assert main(["s3-up", "--port", str(port), "--bucket", "demo", *data]) == 0
        said = capsys.readouterr().out
        assert f"AWS_ENDPOINT_URL=http://127.0.0.1:{port}" in said
        server = S3(tmp_path / "with space")
        assert server.secret_key not in said
        storage = Storage("s3://demo", S3Access(server.endpoint, server.access_key, server.secret_key))
        storage.write_bytes("a", b"1")
        with ThreadPoolExecutor(2) as pool:  # side by side: one starts it, both find it up
            assert list(pool.map(main, [["s3-up", *data]] * 2)) == [0, 0]
        pid = server.pid
        assert pid is not None
        os.kill(pid, 9)
        deadline = time.monotonic() + 10
        while server.is_up() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert main(["s3-up", *data]) == 0
        assert storage.read_bytes("a") == b"1"
        assert main(["s3-status", *data]) == 0
        assert main(["s3-down", *data]) == 0
        assert main(["s3-down", *data]) == 0
    finally:
        assert main(["s3-clean-data", *data]) == 0
    assert not (tmp_path / "with space").exists()


def test_bad_ports_and_damaged_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="1024 to 65535"):
        S3(tmp_path, port=80)
    with pytest.raises(SystemExit) as refused:
        main(["s3-up", "--port", "80"])
    assert refused.value.code == 2
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(NodeError, match=r"settings\.json"):
        S3(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(PortError, match=str(os.getpid())):
        S3(tmp_path / "new", port=stranger.getsockname()[1]).start()


def test_the_program_is_built_with_a_go_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    assert golang.go_version(old) == (1, 19)
    assert golang.go_version(tmp_path / "none") == (0, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert golang.find_go() != old
