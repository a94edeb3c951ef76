"""The bytes of shards: readable for tar and DALI, cut exactly, and the same everywhere."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import ShardError
from formats.shards.layout import BLOCK, END, ShardWriter, cut, header, index_name, keys, sample_bytes, shard_name
from formats.shards.sample_metadata import facts_text, id_in, integer_in
from formats.stores.storage import Storage
from schemas.shards import PIECE_BYTES
from tests.support.pictures import picture
from tests.support.shard_checks import assert_streamed


def shard(samples: list[tuple[str, dict[str, bytes]]]) -> tuple[bytes, ShardWriter]:
    """A whole shard, and its writer."""
    file = io.BytesIO()
    writer = ShardWriter(lambda *parts: file.writelines(parts))
    for key, members in samples:
        writer.add(key, members)
    row = writer.end("a.tar")
    data = file.getvalue()
    assert (row.samples, row.bytes, row.sha256) == (len(samples), len(data), hashlib.sha256(data).hexdigest())
    assert writer.bytes == len(data)
    return data, writer


SAMPLES = [
    (key, {"png": picture(label), "cls": str(label).encode(), "json": json.dumps({"label": label}).encode()})
    for key, label in zip(keys(0, 5, 5), [3, 1, 4, 1, 5], strict=True)
]


def test_tar_lists_what_was_written(tmp_path: Path) -> None:
    data, _ = shard(SAMPLES)
    (tmp_path / "shard.tar").write_bytes(data)
    listed = subprocess.run(["tar", "-tvf", "shard.tar"], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert names == [f"{key}.{extension}" for key, members in SAMPLES for extension in members]
    assert all(line.startswith("-rw-r--r-- 0/0 ") and "1970-01-01" in line for line in listed.stdout.splitlines())
    assert listed.stderr == ""


@given(st.binary(max_size=2000), st.integers(0, 3))
def test_headers_match_those_of_the_standard_library(data: bytes, number: int) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo(f"{number:09}.jpg")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    assert header(f"{number:09}.jpg", len(data)) == file.getvalue()[:BLOCK]
    written, _ = shard([(f"{number:09}", {"jpg": data})])
    assert file.getvalue().startswith(written)
    assert len(written) == sample_bytes([len(data)]) + len(END)


def test_the_index_matches_the_one_of_the_dali_tool(tmp_path: Path) -> None:
    data, writer = shard(SAMPLES)
    (tmp_path / "shard.tar").write_bytes(data)
    tool = [sys.executable, "-m", "wds2idx", "shard.tar", "theirs.idx"]
    subprocess.run(tool, cwd=tmp_path, capture_output=True, check=True)
    assert writer.index == (tmp_path / "theirs.idx").read_text()


def test_dali_reads_shards(tmp_path: Path) -> None:
    from nvidia.dali import fn, pipeline_def

    data, writer = shard(SAMPLES)
    (tmp_path / "shard.tar").write_bytes(data)
    (tmp_path / "shard.idx").write_text(writer.index)

    @pipeline_def(batch_size=5, num_threads=1, device_id=None)
    def pipeline() -> object:
        where = {"paths": [str(tmp_path / "shard.tar")], "index_paths": [str(tmp_path / "shard.idx")]}
        return tuple(fn.readers.webdataset(**where, ext=["png", "cls"], missing_component_behavior="error"))

    made = pipeline()
    made.build()
    images, labels = made.run()
    found = [(images.at(n).tobytes(), labels.at(n).tobytes()) for n in range(5)]
    assert found == [(members["png"], members["cls"]) for _, members in SAMPLES]


@given(
    st.lists(st.integers(1, 30), max_size=60),
    st.integers(30, 80),
    st.integers(1, 9),
)
def test_shards_are_full_to_within_a_sample(blocks: list[int], most: int, maxcount: int) -> None:
    sizes, maxsize = BLOCK * np.array(blocks, dtype=np.int64), BLOCK * most + len(END)
    cuts = cut(sizes, maxsize=maxsize, maxcount=maxcount).tolist()
    assert (cuts[0], cuts[-1]) == (0, len(blocks))
    for start, end in pairwise(cuts):
        assert 0 < end - start <= maxcount
        assert sizes[start:end].sum() + len(END) <= maxsize
        if end < len(blocks):
            assert end - start == maxcount or sizes[start : end + 1].sum() + len(END) > maxsize


def test_samples_of_one_rank_stay_together() -> None:
    sizes, order = np.full(5, BLOCK), np.array([1, 2, 2, 2, 3])
    assert cut(sizes, maxsize=3 * BLOCK + len(END), maxcount=9, order=order).tolist() == [0, 1, 4, 5]
    with pytest.raises(ShardError, match="images of equal rank in one shard"):
        cut(sizes, maxsize=2 * BLOCK + len(END), maxcount=9, order=order)


def test_pieces_end_at_sample_boundaries_and_can_be_read_alone() -> None:
    given: list[bytes] = []
    writer = ShardWriter(lambda *parts: given.append(b"".join(parts)))
    for key in keys(0, 9, 9):
        writer.add(key, {"jpg": bytes(2_000_000), "cls": b"1"})
    row = writer.end("a.tar")
    assert [piece.samples for piece in row.pieces] == [3, 3, 3]
    assert all(piece.bytes >= PIECE_BYTES for piece in row.pieces)
    for piece, data in zip(row.pieces, given, strict=True):
        assert (piece.bytes, piece.xxh3) == (len(data), xxhash.xxh3_128_hexdigest(data))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            assert len(tar.getnames()) == 2 * piece.samples


def test_invalid_samples_are_refused() -> None:
    writer = ShardWriter(lambda *parts: None)
    for key, members, message in [
        ("a.b", {"jpg": b""}, r"a key of up to 80 letters.* Found: 'a\.b'"),
        ("ä", {"jpg": b""}, "Found: 'ä'"),
        ("a", {"JPG": b""}, "lower-case letters and digits. Found: 'JPG' of a"),
        ("a", {"cls": b"1", "a/b": b""}, "Found: 'a/b' of a"),
        ("a", {}, "Wanted files of sample a. Found: none"),
    ]:
        with pytest.raises(ShardError, match=message):
            writer.add(key, members)
    assert writer.bytes == len(END)  # not even half of one
    with pytest.raises(ShardError, match=r"1 sample or more\. Found: --maxcount 0"):
        cut(np.array([512]), maxsize=2000, maxcount=0)
    with pytest.raises(ShardError, match=r"below 8 GiB.* Found: a\.jpg, 8589934592"):
        header("a.jpg", 8 << 30)
    with pytest.raises(ShardError, match=r"a shard of 2,000 bytes\. Found: number 1 of 1,536 bytes"):
        cut(np.array([512, 1536]), maxsize=2000, maxcount=10)


def test_class_numbers_are_digits() -> None:
    assert [integer_in(text) for text in (b"12", b" 7\n", b"-1", b"007")] == [12, 7, -1, 7]
    for text in (b"1_0", b"0x1", b"1.0", b"", b"1 0", "١".encode(), b"1\0"):
        with pytest.raises(ValueError, match="Wanted a whole number"):
            integer_in(text)


def test_shard_names_have_the_same_width() -> None:
    assert [shard_name("ab", number, 3) for number in (0, 2)] == ["ab-000000.tar", "ab-000002.tar"]
    assert shard_name("ab", 0, 1_000_001) == "ab-0000000.tar"
    assert index_name("ab-000002.tar") == "ab-000002.idx"
    assert keys(8, 2, 10) == ["000000008", "000000009"]
    assert keys(0, 1, 10**9 + 1) == ["0000000000"]


def test_sample_metadata_have_a_fixed_order_with_the_id_first() -> None:
    number = bytes(range(16))
    text = facts_text(number, "a/ä", split="train", name="", group="g", label=0)
    known = '"path":"a/\\u00e4","split":"train","class":"","group":"g","label":0'
    assert text.decode() == f'{{"id":"00010203-0405-0607-0809-0a0b0c0d0e0f",{known}}}'
    assert facts_text(number, "", label=None) == b'{"id":"00010203-0405-0607-0809-0a0b0c0d0e0f","path":""}'
    others = json.dumps({"path": "x", "id": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, indent=1).encode()
    assert id_in(text) == id_in(others) == number
    for damaged in (b"", b"[]", b"{}", b'{"id":"x"}', b'{"id":5}'):
        with pytest.raises((ValueError, KeyError, TypeError)):
            id_in(damaged)


def test_no_shard_is_held_in_memory(tmp_path: Path) -> None:
    assert_streamed(Storage(tmp_path))
