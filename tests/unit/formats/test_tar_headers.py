"""Tar headers: we accept what GNU tar reads; everything else is damaged."""

import os
import subprocess
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import ArchiveError
from formats.shards.layout import contents_of
from formats.tar_headers import BLOCK, NoEndError, TarError, headers, number
from formats.tar_index import TarIndex, write_index

END = bytes(4 * BLOCK)


def header(
    name: bytes = b"f",
    size: bytes = b"0",
    type: bytes = b"0",
    *,
    mode: bytes = b"644",
    magic: bytes = b"ustar\x0000",
    checksum: str = "%06o\0 ",
) -> bytes:
    """A header with a valid checksum."""
    fields = [(0, name), (100, mode), (108, b"0"), (116, b"0"), (124, size), (136, b"0"), (156, type), (157, b"t")]
    block = bytearray(BLOCK)
    for place, value in [*fields, (257, magic), (148, b" " * 8)]:
        block[place : place + len(value)] = value
    block[148:156] = (checksum % sum(block)).encode()
    return bytes(block)


def record(key: bytes, value: bytes) -> bytes:
    """A record of a pax header."""
    length = len(key) + len(value) + 3
    length += len(str(length + len(str(length))))
    return b"%d %s=%s\n" % (length, key, value)


def extended(content: bytes, type: bytes = b"x") -> bytes:
    return header(b"h", b"%o" % len(content), type) + content + bytes(-len(content) % BLOCK)


def found(data: bytes) -> list[tuple[str, bytes, int]]:
    members = headers(lambda place, count: data[place : place + count])
    return [(member.kind, member.name, member.size) for member in members]


def listed(data: bytes) -> list[tuple[str, bytes, int]] | None:
    """The listing of GNU tar, converted to our types; None if it reports errors."""
    command = ["tar", "-tvf", "-", "--numeric-owner", "--quoting-style=escape"]
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    answer = subprocess.run(command, input=data, capture_output=True, check=False, env=environment)
    if answer.returncode:
        return None
    kinds = {"-": "file", "C": "file", "d": "folder", "l": "link", "h": "link", "b": "device", "c": "device"}
    rows = [line.split() for line in answer.stdout.splitlines() if not line.startswith(b"V")]
    kinds["p"] = "pipe"
    return [_comparable(kinds.get(chr(row[0][0]), "other"), row[5], int(row[2].replace(b",", b""))) for row in rows]


def _comparable(kind: str, name: bytes, size: int) -> tuple[str, bytes, int]:
    """Without what listings show about links and folders. A name that ends with / becomes a folder when extracted."""
    kind = "folder" if name.endswith(b"/") else kind
    return kind, name.rstrip(b"/"), size if kind == "file" else 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"00000001750\0", 1000),
        (b"       1750 ", 1000),
        (b"1750\0\0\0\0\0\0\0\0", 1000),
        (b"000000001750", 1000),
        (b"   1750 \0\0\0\0", 1000),
        (bytes(12), 0),
        (b"     \0\0\0\0\0\0\0", 0),
        (b"\x80" + bytes(9) + b"\3\xe8", 1000),
        (b"\x80\0\0\0\0\2\0\0\0\0\0\0", 2 << 48),
    ],
)
def test_numbers_are_octal_or_base_256(field: bytes, value: int) -> None:
    assert number(field) == value
    assert listed(header(size=field) + bytes(1024) + END) == [("file", b"f", value)] or value > 1000


@pytest.mark.parametrize(
    "field",
    [
        b"0000003_000\0",
        b"0o3000\0\0\0\0\0\0",
        b"-0000001000\0",
        b"+0000001000\0",
        b"00000000008\0",
        b"0x3000\0\0\0\0\0\0",
        b"17 50\0\0\0\0\0\0\0",
        b"1750\0rest\0\0\0",
        b"\t1750\0\0\0\0\0\0\0",
        b"\0001750\0\0\0\0\0\0\0",
        b" " * 12,
        b"\xff" * 11 + b"\xfd",
        b"\x81" + bytes(11),
        b"\0\x80" + bytes(9) + b"\1",
        "١٢٣".encode().ljust(12, b"\0"),
    ],
)
def test_any_other_number_is_damage(field: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="instead of a number"):
        number(field)
    body = header(b"1.cls", size=field) + bytes(4096)
    with pytest.raises(TarError, match=r"damaged: .* instead of a number; nothing after"):
        found(body)
    with pytest.raises(ValueError, match="instead of a number"):
        contents_of(memoryview(body))
    (tmp_path / "tar").write_bytes(body)
    with pytest.raises(ArchiveError, match=r"Wanted a tar\. Found: damaged: .* \(byte 0\)"):
        write_index(tmp_path / "tar", tmp_path / "index")


@pytest.mark.parametrize(
    "before",
    [
        *(extended(record(b"size", value)) for value in (b"+512", b"5_12", b" 512", b"512 ", b"-512", b"", b"1e3")),
        *(extended(record(b"size", value)) for value in (b"512\0", b"9" * 19, b"9" * 5000)),
        *(extended(record(b"path", value)) for value in (b"", b"a\0b")),
        *(extended(text) for text in (b"12  path=one\n", b" 12 path=one\n", b"+12 path=one\n", b"12\tpath=one\n")),
        *(extended(text) for text in (b"12 path=one\0", b"99 path=one\n", b"1_2 path=one\n", b"11 path=one\n")),
        *(extended(text) for text in (b"9 pathone\n", b"13 pa\0h=one\n", b"3 \n", b"path=one", "٩ a=b\n".encode())),
        extended(b"", b"L"),
        extended(b"one\0", b"L") + extended(b"two\0", b"L"),
        extended(b"one\0", b"L") + extended(record(b"path", b"two")),
        extended(record(b"path", b"one")) + extended(record(b"path", b"two")),
        extended(record(b"size", b"512")) + extended(record(b"mtime", b"2"), b"X"),
        *(extended(record(key, b"512"), b"g") for key in (b"size", b"path", b"GNU.sparse.size")),
        header(b"h", b"4000001", b"x") + bytes(1 << 21),
        *(header(b"h", b"1000", type) for type in (b"2", b"3", b"4", b"6", b"V")),
        header(b"h/", b"1000", b"0"),
        header(b"h/", b"1000", b"\0"),
        *(extended(record(b"size", b"512")) + header(b"h", b"0", type) for type in (b"1", b"2", b"5")),
        extended(record(b"GNU.sparse.size", b"0")) + header(b"h", b"1000", b"D") + header(b"hidden", b"0", b"2"),
        *(extended(record(b"GNU.sparse.realsize", b"0")) + header(b"h", b"0", type) for type in (b"2", b"5", b"Z")),
        *(extended(record(b"GNU.sparse.size", b"0")) + header(b"h/", b"0", type) for type in (b"0", b"\0")),
        header(mode=b"0o644"),
        header(checksum="%05o_\0 "),
        header(checksum="0o%04o\0 "),
    ],
)
def test_headers_that_tars_read_in_different_ways_are_damage(before: bytes) -> None:
    with pytest.raises(TarError, match="damaged"):
        found(header(b"first") + before + header() + END)


@pytest.mark.parametrize("data", [b"", b"x", header()[:511], header() + bytes(100), extended(b"9 path=a\n")])
def test_an_archive_that_ends_too_early_is_an_error(data: bytes) -> None:
    with pytest.raises(TarError, match="truncated"):
        found(data)
    with pytest.raises(NoEndError):
        found(header())


def test_global_headers_take_no_memory() -> None:
    parts = [extended(record(b"comment%d" % part, b"x" * 500_000), b"g") + header(b"%d" % part) for part in range(30)]
    data = b"".join(parts) + END
    tracemalloc.start()
    try:
        count = sum(1 for _ in headers(lambda place, count: data[place : place + count]))
        assert (count, tracemalloc.get_traced_memory()[1] < 4_000_000) == (30, True)
    finally:
        tracemalloc.stop()


def test_a_member_that_goes_on_behind_the_end_of_a_piece_is_damage() -> None:
    with pytest.raises(ValueError, match="1,000 bytes that extends past the end"):
        contents_of(memoryview(header(b"1.cls", b"1750") + bytes(BLOCK)))


def _mixed(*usual: bytes, odd: Sequence[bytes]) -> Any:
    return st.one_of(st.sampled_from(usual), st.sampled_from(usual), st.sampled_from(odd))


_SIZES = _mixed(
    b"0",
    b"00000001000\0",
    b"       1000 ",
    odd=[b"1_000", b"0o1000", b"-1000", b"\t1000", b"\0001000", b"1000\0x", b"\x80" + bytes(9) + b"\2\0", b" " * 12],
)
_RECORDS = _mixed(
    record(b"path", b"longer"),
    record(b"mtime", b"1"),
    odd=[
        *(record(b"size", value) for value in (b"512", b"0512", b"+512", b"5_12", b"512 ", b"-512", b"0")),
        *(b"12  path=one\n", b"12 path=one\0", b"11 path=one\n", b"12 path=one\n\0\0", b"0012 path=on\n"),
        record(b"path", b"a/"),
        record(b"linkpath", b"x"),
    ],
)


@st.composite
def _archives(draw: Any) -> bytes:
    """Archives whose unusual headers may hide a link, a folder or a file."""
    made = b""
    for _ in range(draw(st.integers(1, 3))):
        for type in draw(st.lists(_mixed(b"x", odd=[b"L", b"K", b"g", b"X"]), max_size=2)):
            content = b"name\0" if type in b"LK" else draw(_RECORDS)
            made += extended(content, type)
        type = draw(_mixed(b"0", b"\0", odd=[b"1", b"2", b"3", b"5", b"6", b"7", b"D", b"V", b"Z"]))
        name, size = draw(_mixed(b"f", b"a/f", odd=[b"f/"])), draw(_SIZES)
        magic = draw(st.sampled_from([b"ustar\x0000", b"ustar  \0", bytes(8)]))
        made += header(name, size, type, magic=magic, mode=draw(_mixed(b"0000644", odd=[b"0o644", b" 644 "])))
        made += draw(st.sampled_from([b"", b"x" * BLOCK, header(b"hidden", b"0", b"2"), header(b"hidden")]))
    return made + END


@given(_archives())
@settings(max_examples=400, deadline=None)
def test_what_is_accepted_is_what_gnu_tar_lists(data: bytes) -> None:
    try:
        ours = found(data)
    except TarError:
        return
    assert [_comparable(*one) for one in ours] == listed(data)


def test_an_index_opens_at_any_path(tmp_path: Path) -> None:
    for name in ("a#b", "a?mode=rwc&b", "a%41", "ü ;"):
        (tmp_path / name).mkdir()
        (tmp_path / "tar").write_bytes(header() + END)
        assert write_index(tmp_path / "tar", tmp_path / name / "index") == 1
        with TarIndex(tmp_path / name / "index") as index:
            assert len(index) == 1
