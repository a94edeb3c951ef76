"""Reading the files of entries: exact bytes in many threads, and a reason for each fault."""

import gzip
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.pictures.images import RejectedError
from etl.sources import archives, reading
from etl.sources.reading import Reader
from formats.errors import StorageError
from formats.stores.storage import Storage


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A reader that is closed after the test."""
    with Reader() as opened:
        yield opened


def _write(place: Path, data: bytes) -> bytes:
    place.write_bytes(data)
    return os.fsencode(place)


def _reason(reader: Reader, place: bytes, offset: int | None, size: int) -> str:
    with pytest.raises(RejectedError) as caught:
        reader.read(place, offset, size)
    return str(caught.value)


def test_files_and_ranges_are_read_exactly(reader: Reader, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(100_000)
    place = _write(tmp_path / "x", data)
    assert reader.read(place, None, 0) == data  # it has grown since it was listed
    assert reader.read(place, 0, 0) == b""
    assert reader.read(place, 99, 1000) == data[99:1099]
    assert reader.read(place, 99_999, 1) == data[99_999:]
    name = os.fsencode(tmp_path) + b"/\xff://"
    os.mkdir(name[:-2])
    assert reader.read(_write(Path(os.fsdecode(name + b"y")), b"abc"), None, 3) == b"abc"  # local, whatever its name


def test_files_that_cannot_be_read_have_a_reason(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    os.mkfifo(tmp_path / "pipe")
    place = _write(tmp_path / "x", b"x" * 2000)
    for offset in (None, 0):
        assert _reason(reader, os.fsencode(tmp_path / "no"), offset, 1) == "unreadable: No such file or directory"
        assert _reason(reader, os.fsencode(tmp_path / "pipe"), offset, 1) == "not a regular file"
        assert _reason(reader, os.fsencode(tmp_path), offset, 1) == "not a regular file"
    assert _reason(reader, place, None, 10) == "too large: 2000 bytes"
    assert _reason(reader, place, 0, 1001) == "too large: 1001 bytes"
    assert _reason(reader, place, 1990, 11) == "truncated: 10 of 11 bytes"
    assert _reason(reader, place, 3000, 1) == "truncated: 0 of 1 bytes"


def test_many_threads_read_many_archives_with_few_left_open(tmp_path: Path) -> None:
    places = [_write(tmp_path / str(index), bytes([index]) * 1000) for index in range(40)]
    order = [random.Random(7).randrange(40) for _ in range(4000)]
    before = set(os.listdir("/proc/self/fd"))
    with Reader() as reader, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda index: reader.read(places[index], 10 * index, 10), order))
        assert found == [bytes([index]) * 10 for index in order]
        assert len(set(os.listdir("/proc/self/fd")) - before) <= 16 + 8
    assert set(os.listdir("/proc/self/fd")) <= before


def test_threads_reading_in_about_archive_order_decompress_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0

    class Counted(archives.GzipBytes):
        def __init__(self, *arguments: object) -> None:
            nonlocal opened
            opened += 1
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "GzipBytes", Counted)
    data = random.Random(2).randbytes(24 << 20)
    place = _write(tmp_path / "x.tar.gz", gzip.compress(data, 1))
    size = 100_000
    with Reader() as reader, ThreadPoolExecutor(4) as threads:
        starts = range(0, len(data) - size, size)
        for first in range(0, len(starts), 64):  # as many as a task has in flight
            some = starts[first : first + 64]
            found = threads.map(lambda at: reader.read(place, at, size), some)
            assert list(found) == [data[start : start + size] for start in some]
        assert opened == 1
        assert reader.read(place, 5, 10) == data[5:15]  # far back: it reads from the beginning again
        assert opened == 2
        assert _reason(reader, place, len(data) - 5, 10) == "truncated: 5 of 10 bytes"
    cut = _write(tmp_path / "y.tgz", gzip.compress(data[:100_000])[:60_000])
    with Reader() as reader:
        assert reader.read(cut, 0, 50_000) == data[:50_000]
        assert _reason(reader, cut, 50_000, 50_000).startswith("truncated")
        assert _reason(reader, os.fsencode(tmp_path / "no.tgz"), 0, 1) == "unreadable: No such file or directory"
        assert _reason(reader, _write(tmp_path / "z.tgz", b"no gzip"), 0, 1) == "truncated: 0 of 1 bytes"


@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 100_000)), min_size=1, max_size=20),
    st.sampled_from([1, 1000, 50_000]),
)
def test_any_ranges_of_a_stream_are_the_same_bytes(ranges: list[tuple[int, int]], kept: int) -> None:
    data = random.Random(3).randbytes(1000) * 250
    packed = gzip.compress(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "_KEPT", kept)
        patch.setattr(archives, "_PIECE", 4096)
        position = 0

        def read(count: int) -> bytes:
            nonlocal position
            position += count
            return packed[position - count : position]

        stream = archives.GzipBytes(read)
        for offset, size in ranges:
            if offset < stream.start:
                position = 0
                stream = archives.GzipBytes(read)
            assert stream.read(offset, size) == data[offset : offset + size]


class _Broken:
    """A storage whose reads all fail with one error."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def read_bytes(self, name: str) -> NoReturn:
        raise self._error

    def read_range(self, name: str, start: int, length: int) -> NoReturn:
        raise self._error


def test_objects_are_read_whole_and_in_ranges() -> None:
    storage = Storage("memory://reading")
    data = random.Random(4).randbytes(9 << 20)
    for name, content in [("a b/x#1.png", b"picture"), ("x.tar", data), ("x.tar.gz", gzip.compress(data, 1))]:
        with storage.filesystem.open(storage.path(name), "wb") as file:
            file.write(content)
    with Reader() as reader:
        assert reader.read(b"memory://reading/a b/x#1.png", None, 7) == b"picture"
        assert reader.read(b"memory://reading/x.tar", 1000, 50) == data[1000:1050]
        assert reader.read(b"memory://reading/x.tar.gz", 1000, 50) == data[1000:1050]
        assert reader.read(b"memory://reading/x.tar.gz", 8 << 20, 50) == data[8 << 20 : (8 << 20) + 50]
        assert _reason(reader, b"memory://reading/x.tar", (9 << 20) - 5, 10) == "truncated: 5 of 10 bytes"
        assert _reason(reader, b"memory://reading/no", None, 1).startswith("unreadable: ")


@pytest.mark.parametrize("name", [b"x.png", b"x.tar", b"x.tar.gz"])
def test_a_storage_outage_is_not_blamed_on_the_image(name: bytes) -> None:
    offset = None if name == b"x.png" else 0
    errors = [StorageError("Wanted s3://b. Found: it is down."), TimeoutError("timed out"), ConnectionError()]
    for error, told in zip(errors, ["Wanted s3://b. Found: it is down.", "timed out", "ConnectionError"], strict=True):
        storage = _Broken(error)
        with Reader(storage_at=lambda _: storage) as reader, pytest.raises(SourceError, match=told):  # type: ignore[arg-type, return-value]  # noqa: B023
            reader.read(b"s3://b/" + name, offset, 1)
    for refused in (FileNotFoundError(2, "No such key"), PermissionError(13, "Forbidden")):
        storage = _Broken(refused)
        with Reader(storage_at=lambda _: storage) as reader:  # type: ignore[arg-type, return-value]  # noqa: B023
            assert _reason(reader, b"s3://b/" + name, offset, 1) == f"unreadable: {refused.strerror}"


def test_one_storage_serves_all_threads() -> None:
    made, lock = [], threading.Lock()

    def storage_at(address: str) -> Storage:
        with lock:
            made.append(address)
        return Storage(address)

    with Storage("memory://many").filesystem.open("/many/x", "wb") as file:
        file.write(b"x")
    with Reader(storage_at=storage_at) as reader, ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: reader.read(b"memory://many/x", None, 1), range(100))) == {b"x"}
    assert made == ["memory://many"]
