"""Listing tars: the ranges of the index are the members' bytes, and each fault is listed with its reason."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources import tars
from etl.sources.archives import GzipBytes, RangedBytes, open_archive
from etl.sources.plan import SourcePlan
from etl.sources.tar_members import CUT, Archive, Member, NotATarError, members
from etl.sources.tars import is_tar_of_tars
from formats.stores.storage import Storage
from schemas import image_id
from tests.support.archives import tar_of

_SIZES = st.one_of(st.sampled_from([0, 1, 511, 512, 513, 1023, 1024, 1025]), st.integers(0, 3000))


_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=150).map(
    lambda name: "a/" + name
)


def _special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def _ranged(data: bytes, block: int = 4096) -> RangedBytes:
    return RangedBytes(lambda at, count: data[at : at + count], len(data), block)


def _write(place: Path, data: bytes) -> str:
    place.write_bytes(data)
    return str(place)


def _listed(place: Path, **options: Any) -> list[dict[str, Any]]:
    """The entries that the task finds in an archive; without classes unless the options say so."""
    plan = SourcePlan(address="s3://b/x.tar", **{"label_type": "none", **options})
    found = tars._list_batches([os.fsencode(place)], plan=plan, dataset="d")
    return [row for batch in found for row in batch.to_pylist()]


def _paths(rows: list[dict[str, Any]]) -> dict[bytes, str | None]:
    return {row["path"]: row["reason"] for row in rows}


@given(
    files=st.lists(st.tuples(_NAMES, _SIZES), max_size=12),
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    block=st.sampled_from([16, 4096, 65536]),
)
def test_ranges_are_exactly_the_members_bytes(files: list[tuple[str, int]], format: int, block: int) -> None:
    contents = [(name, bytes([index % 251 + 1]) * size) for index, (name, size) in enumerate(files)]
    data = tar_of(*contents, format=format)
    wanted = [(name.encode(), content) for name, content in contents]
    found = list(members(_ranged(data, block)))
    assert [(member.name, data[member.offset : member.offset + member.size]) for member in found] == wanted
    assert [member.reason for member in found] == [None] * len(files)
    packed = gzip.compress(data, 1)
    assert list(members(GzipBytes(io.BytesIO(packed).read))) == found
    stream = GzipBytes(io.BytesIO(packed).read)
    assert [(member.name, stream.read(member.offset, member.size)) for member in found] == wanted


@given(sizes=st.lists(_SIZES, min_size=1, max_size=6), cut=st.integers(1, 20_000))
def test_a_truncated_archive_keeps_whole_files_and_has_a_reason_for_the_rest(sizes: list[int], cut: int) -> None:
    data = tar_of(*((f"a/{index}", b"x" * size) for index, size in enumerate(sizes)))
    data = data[: min(cut, len(data))]
    if len(data) < 512:
        with pytest.raises(NotATarError):
            list(members(_ranged(data)))
        return
    found = list(members(_ranged(data)))
    whole = [member for member in found if member.reason is None]
    assert [member.size for member in whole] == sizes[: len(whole)]
    assert all(member.offset + member.size <= len(data) for member in whole)
    ended = len(data) >= sum(512 + size + -size % 512 for size in sizes) + 512
    assert [(member.reason or "").partition(":")[0] for member in found[len(whole) :]] == ["truncated"] * (not ended)
    archives: list[Archive] = [_ranged(data), GzipBytes(io.BytesIO(gzip.compress(data)).read)]
    assert all(list(members(archive)) == found for archive in archives)


def test_truncated_members_and_headers_have_a_reason() -> None:
    data = tar_of(("a/1", b"x" * 600), ("a/2", b"y" * 600))
    first = Member(b"a/1", 512, 600)
    assert list(members(_ranged(data[: 1536 + 512 + 599]))) == [first, Member(b"a/2", 2048, 600, CUT)]
    missing = Member(b"@3072", 3072, 0, "truncated: the archive ends without its end mark")
    assert list(members(_ranged(data[: 1536 + 512 + 600]))) == [first, Member(b"a/2", 2048, 600), missing]
    assert list(members(_ranged(data[: 1536 + 100]))) == [
        first,
        Member(b"@1536", 1536, 0, "truncated: the archive ends inside a header"),
    ]
    long = tar_of(("b" * 300, b"x"))  # a header, the long name, the member's own header
    assert [member.reason for member in members(_ranged(long[:700]))] == ["truncated: the archive ends inside a header"]
    assert list(members(_ranged(long[:1024]))) == [Member(b"b" * 300, 1024, 0, CUT)]


def test_a_damaged_header_keeps_what_is_before_it() -> None:
    data = bytearray(tar_of(("a/1", b"x"), ("a/2", b"y"), ("a/3", b"z")))
    data[1024:1030] = b"\xff" * 6
    assert list(members(_ranged(bytes(data)))) == [
        Member(b"a/1", 512, 1),
        Member(b"@1024", 1024, 0, "damaged: no tar header here; nothing after it can be read"),
    ]


def test_links_and_devices_have_a_reason_and_folders_are_left_out() -> None:
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.addfile(_special("a", tarfile.DIRTYPE))
            tar.addfile(_special("a/link", tarfile.SYMTYPE, "x"))
            tar.addfile(_special("a/hard", tarfile.LNKTYPE, "x"))
            tar.addfile(_special("a/pipe", tarfile.FIFOTYPE))
            tar.addfile(_special("a/device", tarfile.CHRTYPE))
            tar.addfile(_special("a/odd", b"Q"))
            tar.addfile(_special("old/", tarfile.REGTYPE))
            tar.addfile(_special("a/1", tarfile.CONTTYPE))
        data = out.getvalue()
    assert {member.name: member.reason for member in members(_ranged(data))} == {
        b"a/link": "not a regular file: a link",
        b"a/hard": "not a regular file: a link",
        b"a/pipe": "not a regular file: a pipe",
        b"a/device": "not a regular file: a device",
        b"a/odd": "unsupported: a tar entry of type 'Q'",
        b"a/1": None,
    }


def test_sparse_files_have_a_reason_in_both_of_their_forms() -> None:
    old = _special("a/old", b"S")
    old.size = 512
    header = bytearray(old.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # its map continues in another block
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 256)
    pax = tarfile.TarInfo("GNUSparseFile.7/new")
    pax.size, pax.pax_headers = 3, {"GNU.sparse.major": "1", "GNU.sparse.name": "a/new"}
    with io.BytesIO() as out:
        out.write(header + bytes(512) + b"x" * 512)
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(pax, io.BytesIO(b"xyz"))
            tar.addfile(tarfile.TarInfo("a/1"))
        data = out.getvalue()
    found = {member.name: member.reason for member in members(_ranged(data))}
    assert found == {b"a/old": "unsupported: sparse", b"a/new": "unsupported: sparse", b"a/1": None}


def test_names_are_raw_bytes_and_large_sizes_are_read() -> None:
    name = os.fsdecode(b"a/\xff\n" + b"b" * 120)
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert [member.name for member in members(_ranged(tar_of((name, b""), format=format)))] == [os.fsencode(name)]
    huge = tarfile.TarInfo("a/huge")
    huge.size = 9 << 30
    for header in (huge.tobuf(tarfile.GNU_FORMAT), huge.tobuf(tarfile.PAX_FORMAT)):
        (found,) = members(_ranged(header))
        assert (found.size, found.reason) == (9 << 30, CUT)
    prefixed = tarfile.TarInfo("c" * 90 + "/" + "d" * 90)
    assert [member.name for member in members(_ranged(prefixed.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)))] == [
        b"c" * 90 + b"/" + b"d" * 90
    ]


def test_headers_that_are_far_apart_are_read_alone() -> None:
    data = tar_of(*((f"a/{index}", bytes(1 << 20)) for index in range(20)))
    read = 0

    def fetch(at: int, count: int) -> bytes:
        nonlocal read
        read += count
        return data[at : at + count]

    assert len(list(members(RangedBytes(fetch, len(data), 64 << 10)))) == 20
    assert read <= 22 * 4096 + (64 << 10)  # a block after the end mark


def test_several_gzip_streams_and_padding_are_one_archive() -> None:
    data = tar_of(("a/1", b"x" * 70_000), ("a/2", b"y"))
    packed = gzip.compress(data[:30_000]) + bytes(100) + gzip.compress(data[30_000:]) + bytes(700)
    stream = GzipBytes(io.BytesIO(packed).read)
    assert [member.name for member in members(stream)] == [b"a/1", b"a/2"]
    assert stream.read(0, len(data) + 1) == data
    assert stream.fault is None


def test_a_damaged_gzip_keeps_the_members_before_the_damage() -> None:
    packed = gzip.compress(tar_of(*((f"a/{index}", os.urandom(5000)) for index in range(20))))
    for cut in (len(packed) // 2, len(packed) - 6000):
        stream = GzipBytes(io.BytesIO(packed[:cut]).read)
        *whole, last = members(stream)
        assert len(whole) > 5
        assert all(member.reason is None for member in whole)
        assert last.reason == CUT
        assert stream.fault == "truncated: the compressed data end too early"
    stream = GzipBytes(io.BytesIO(packed[:-8] + b"\0" * 8).read)
    *whole, last = members(stream)
    assert (len(whole), last.reason) == (20, "damaged: incorrect data check")
    assert not stream.reaches(1 << 30)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("padding", [0, 5 << 20])
def test_what_follows_the_end_mark_has_a_reason(pack: Callable[[bytes], bytes], padding: int) -> None:
    first, second = tar_of(("a/1", b"x")), tar_of(("a/2", b"y"))
    before = len(first) + padding
    for data, reason in [
        (second, "unread: another archive follows the end mark of this one"),
        (b"\0" * 700 + b"junk", "unread: other data follow the end mark of the archive"),
        (bytes(3000), None),
    ]:
        whole = pack(first + bytes(padding)) + pack(data)
        archive = _ranged(whole) if pack is bytes else GzipBytes(io.BytesIO(whole).read)
        at = before + (512 if data.endswith(b"junk") else 0)
        after = [] if reason is None else [Member(b"@%d" % at, at, 0, reason)]
        assert list(members(archive)) == [Member(b"a/1", 512, 1), *after]
    # An inner archive ends at the end of its member.
    assert list(members(_ranged(first + second), end=len(first))) == [Member(b"a/1", 512, 1)]


def test_member_names_give_paths_and_folders_give_classes(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    files = [("./a/1", b"1"), ("b/c/2", b"2"), ("loose", b"3"), ("././b/3", b"4"), (os.fsdecode(b"\xff/4"), b"5")]
    place.write_bytes(tar_of(*files))
    rows = _listed(place, or_split="s", label_type="int")
    assert [(row["path"], row["or_label"], row["reason"]) for row in rows] == [
        (b"a/1", "a", None),
        (b"b/c/2", "b", None),
        (b"loose", None, "outside a class folder"),
        (b"b/3", "b", None),
        (b"\xff/4", r"\xff", None),
    ]
    assert {row["or_split"] for row in rows} == {b"s"}
    assert {row["place"] for row in rows} == {os.fsencode(place)}
    assert [row["id"] for row in rows][:2] == [image_id("d", b"s", path).bytes for path in (b"a/1", b"b/c/2")]
    assert _paths(_listed(place))[b"loose"] is None


def test_splits_are_top_folders_and_others_are_left_out(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    place.write_bytes(
        tar_of(("./train/a/1", b""), ("val/a/1", b""), ("test/a/1", b""), ("train/loose", b""), ("2", b""))
    )
    rows = _listed(place, splits=("train", "val"), label_type="int")
    assert [(row["or_split"], row["path"], row["reason"]) for row in rows] == [
        (b"train", b"a/1", None),
        (b"val", b"a/1", None),
        (b"train", b"loose", "outside a class folder"),
    ]
    with pytest.raises(SourceError, match=r"below no/ in .*x\.tar. Found: none, but 2, test, train, val\."):
        _listed(place, splits=("no",))
    place.write_bytes(place.read_bytes()[:1600])  # then the missing members may have been after the cut
    rows = _listed(place, splits=("no",))
    assert [(row["path"], row["reason"]) for row in rows] == [(b"@1536", "truncated: the archive ends inside a header")]


def test_a_root_and_nested_splits_name_folders_in_an_archive(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    files = [f"{name}/1" for name in ("outer/train/a", "outer/val/a", "outer/trainer/a", "train/a")]
    place.write_bytes(tar_of(*((name, b"") for name in files)))

    def names(root: str, *splits: str, or_split: str = "") -> set[tuple[bytes, bytes]]:
        rows = _listed(place, root=root, splits=splits, or_split=or_split)
        return {(row["or_split"], row["path"]) for row in rows}

    assert names("outer", "train", "val") == {(b"train", b"a/1"), (b"val", b"a/1")}
    assert names("", "outer/train", "train") == {(b"outer/train", b"a/1"), (b"train", b"a/1")}
    assert names("outer/train", or_split="train") == {(b"train", b"a/1")}
    assert names("outer") == {(b"", b"train/a/1"), (b"", b"val/a/1"), (b"", b"trainer/a/1")}
    with pytest.raises(
        SourceError, match=r"below outer/no/ in .*x\.tar. Found: none, but outer/train, outer/trainer, "
    ):
        names("outer", "no")


def test_names_outside_the_archive_have_a_reason(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    place.write_bytes(tar_of(("/etc/passwd", b""), ("a/../../1", b""), ("../1", b""), ("a/1..1", b""), ("a/1", b"")))
    for splits in ((), ("a",)):
        found = {row["path"]: row["reason"] for row in _listed(place, splits=splits) if row["reason"]}
        assert found == {
            b"/etc/passwd": "unsafe name: it begins at the root",
            b"a/../../1": "unsafe name: it leads out of its folder",
            b"../1": "unsafe name: it leads out of its folder",
        }


def test_the_last_member_with_a_name_wins(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    files = [(f"a/{index % 700}", bytes([index // 700]) * 3) for index in range(2500)]
    data = tar_of(*files, ("./a/5", b"last"))
    place.write_bytes(data)
    rows = _listed(place)
    assert len({row["id"] for row in rows}) == len(rows) == len(files) + 1
    taken = [row for row in rows if row["reason"] is None]
    found = {row["path"]: data[row["offset"] : row["offset"] + row["bytes"]] for row in taken}
    assert found == {**{name.encode(): content for name, content in files}, b"a/5": b"last"}
    assert len(taken) == 700
    twice = next(row for row in rows if row["path"] == b"a/5@5632")
    assert twice["reason"] == "twice: a later member has this name"


def test_classes_of_the_same_text_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "x.tar"
    place.write_bytes(tar_of((os.fsdecode(b"a\xff/1"), b""), ("a\\xff/1", b"")))
    with pytest.raises(SourceError, match="differ as text"):
        _listed(place, label_type="int")
    assert len(_listed(place)) == 2


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("x.tar", b"", "it is empty"),
        ("x.tar", b"x" * 300, "300 bytes"),
        ("x.tar", b"x" * 3000, "other data"),
        ("x.tar", gzip.compress(os.urandom(3000)), "it is compressed"),
        ("x.tar.gz", b"x" * 3000, "damaged: incorrect header check"),
        ("x.tgz", gzip.compress(b"x" * 3000), "other data"),
        ("x.tar.gz", b"", "truncated: the compressed data end too early"),
    ],
    # Ids from the random data would differ each time.
    ids=["empty", "short", "no tar", "compressed", "not compressed", "no tar in gzip", "empty gzip"],
)
def test_files_that_are_not_tars_are_refused(tmp_path: Path, name: str, data: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=rf"Wanted a tar at .*{name}\. Found: {found}\."):
        is_tar_of_tars(str(tmp_path / name))
    with pytest.raises(SourceError, match=rf"Wanted a tar at .*{name}\. Found: {found}\."):
        _listed(tmp_path / name)


def test_missing_and_irregular_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="shared file system"):
        _listed(tmp_path / "x.tar")
    os.mkfifo(tmp_path / "pipe.tar")
    for name in ("", "pipe.tar"):
        with pytest.raises(SourceError, match="a regular file"), open_archive(os.fsencode(tmp_path / name), Storage):
            pass


def test_an_empty_tar_has_no_entries(tmp_path: Path) -> None:
    for name, data in [("x.tar", tar_of()), ("x.tgz", gzip.compress(tar_of()))]:
        place = Path(_write(tmp_path / name, data))
        assert _listed(place) == []
        assert not is_tar_of_tars(str(place))
