"""Listing shards: a sample is one image with its label and companions; other files are listed with a reason."""

import gzip
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from etl.errors import SourceError
from etl.sources import webdataset
from etl.sources.plan import SourcePlan
from etl.sources.tar_members import CUT
from etl.sources.webdataset import expand
from formats.stores.storage import Storage
from schemas import image_id
from schemas.tables import LabelType
from tests.support.archives import tar_of


def _listed(place: Path, *, label_type: LabelType = "int") -> list[dict[str, Any]]:
    """The entries that the task finds in a shard."""
    plan = SourcePlan(address="s3://b/*.tar", or_split="train", label_type=label_type)
    found = webdataset._list_batches([os.fsencode(place)], plan=plan, dataset="d")
    return [row for batch in found for row in batch.to_pylist() if row["id"]]  # others count what is not taken


def _shard(folder: Path, *files: tuple[str, bytes], name: str = "s-0.tar") -> Path:
    place = folder / name
    place.write_bytes(tar_of(*files))
    return place


def _seen(rows: list[dict[str, Any]]) -> list[tuple[bytes, str | None, str | None]]:
    return [(row["path"], row["or_label"], row["reason"]) for row in rows]


def test_a_sample_is_an_image_with_its_label(tmp_path: Path) -> None:
    place = _shard(
        tmp_path,
        ("./a/1.JPG", b"one"),
        ("./a/1.cls", b" 7\n"),
        ("a/2.json", b'{"label": 1}'),
        ("a/2.img.png", b"two"),
        ("a/2.cls.txt", b"cat"),
        ("3.webp", b"three"),
        ("3.txt", b"a caption"),
    )
    rows, data = _listed(place), place.read_bytes()
    assert _seen(rows) == [
        (b"s-0/a/1.JPG", "7", None),
        (b"s-0/a/2.img.png", "cat", None),
        (b"s-0/3.webp", None, None),
    ]
    assert [data[row["offset"] : row["offset"] + row["bytes"]] for row in rows] == [b"one", b"two", b"three"]
    assert {(row["place"], row["or_split"]) for row in rows} == {(os.fsencode(place), b"train")}
    assert rows[0]["id"] == image_id("d", b"train", b"s-0/a/1.JPG").bytes
    packed = tmp_path / "s-0.tgz"
    packed.write_bytes(gzip.compress(data))
    assert [{**row, "place": b""} for row in _listed(packed)] == [{**row, "place": b""} for row in rows]


@pytest.mark.parametrize(
    ("name", "body", "label"),
    [
        ("cls", b"", None),
        ("CLS", b"dog", "dog"),
        ("json", b'{"cls": "cat", "width": 3}', "cat"),
        ("json", b'{"cls": 1, "label": 0}', "0"),
        ("json", b'{"label": null, "cls": 5}', "5"),
        ("json", b'{"label": [1, 2], "cls": 3}', "3"),
        ("json", b"[1]", None),
        ("json", b"{broken", None),
        ("json", b"[" * 100_000, None),
        ("json", b"9" * 5000, None),
        ("json", b"\xff\xfe\xfd", None),
        ("cls", b"1" * (2 << 20), None),
        ("other.json", b'{"label": 1}', None),
    ],
)
def test_labels_are_text_or_missing(tmp_path: Path, name: str, body: bytes, label: str | None) -> None:
    assert _seen(_listed(_shard(tmp_path, ("1.jpg", b"x"), (f"1.{name}", body)))) == [(b"s-0/1.jpg", label, None)]


def test_labels_that_cannot_be_read_have_a_reason(tmp_path: Path) -> None:
    for body in (b'{"label": [1, 2]}', b'{"label": "\\ud800"}'):
        (row,) = _listed(_shard(tmp_path, ("1.jpg", b"x"), ("1.json", body)))
        assert (row["or_label"], row["reason"].partition(":")[0]) == (None, "unreadable label")
    place = _shard(tmp_path, ("1.jpg", b"x"), ("1.cls", b"caf\xe9"))
    assert _seen(_listed(place)) == [(b"s-0/1.jpg", None, r"unreadable label: b'caf\xe9', which is not UTF-8")]
    assert [row["reason"] for row in _listed(place, label_type="none")] == [None]  # labels of images are not used


def test_arrays_and_masks_belong_to_their_image(tmp_path: Path) -> None:
    place = _shard(
        tmp_path,
        ("1.seg.png", b"mask 1"),
        ("1.jpg", b"x"),
        ("2.jpg", b"x"),
        ("2.left.mask.PNG", b"mask 2"),
        ("3.jpg", b"x"),
        ("3.npy", b"array 3"),
        ("4.seg.png", b"mask 4"),
        ("4.png", b"x"),
        ("4.npy", b"array 4"),
    )
    data = place.read_bytes()
    found = {
        row["path"]: data[row["label_offset"] : row["label_offset"] + row["label_bytes"]]
        for row in _listed(place, label_type="multi")
        if row["reason"] is None and row["label_place"] == os.fsencode(place)
    }
    assert found == {
        b"s-0/1.jpg": b"mask 1",
        b"s-0/2.jpg": b"mask 2",
        b"s-0/3.jpg": b"array 3",
        b"s-0/4.png": b"array 4",
    }
    (preferred,) = [row for row in _listed(place, label_type="blob") if row["path"] == b"s-0/4.png"]
    assert data[preferred["label_offset"] :].startswith(b"mask 4")


def test_files_without_a_sample_have_a_reason(tmp_path: Path) -> None:
    place = tmp_path / "s-0.tar"
    with tarfile.open(place, "w") as tar:
        for name in ["1.cls", "1.json", "2.jpg", "2.png", "2.cls", "../3.jpg", "README", "._4.jpg", "4.jpg", "__x__"]:
            tar.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("4.png")
        link.type = tarfile.SYMTYPE
        tar.addfile(link)
    assert _seen(_listed(place)) == [
        (b"s-0/1.cls", None, "no image in the sample"),
        (b"s-0/2.jpg", None, None),
        (b"s-0/2.png", None, "second image of a sample"),
        (b"s-0/../3.jpg", None, "unsafe name: it leads out of its folder"),
        (b"s-0/README", None, "no image in the sample"),
        (b"s-0/4.png", None, "not a regular file: a link"),
        (b"s-0/4.jpg", None, None),
    ]


def test_a_truncated_shard_keeps_its_whole_samples(tmp_path: Path) -> None:
    place = _shard(tmp_path, ("1.jpg", b"x"), ("1.cls", b"1"), ("2.jpg", b"x"), ("2.cls", b"1" * 20), ("3.jpg", b"x"))
    data = place.read_bytes()
    place.write_bytes(data[: 3 * 1024 + 512 + 10])
    cut = "truncated: the archive ends inside its sample"
    assert _seen(_listed(place)) == [(b"s-0/1.jpg", "1", None), (b"s-0/2.jpg", None, cut)]
    place.write_bytes(data[: 4 * 1024 + 512])
    assert _seen(_listed(place))[1:] == [(b"s-0/2.jpg", "1" * 20, None), (b"s-0/3.jpg", None, CUT)]
    place.write_bytes(data[: 2 * 1024 + 100])
    assert _seen(_listed(place)) == [
        (b"s-0/1.jpg", "1", None),
        (b"s-0/@2048", None, "truncated: the archive ends inside a header"),
    ]


def test_of_members_with_the_same_name_the_last_counts_and_the_others_have_a_reason(tmp_path: Path) -> None:
    sample = [("1.jpg", b"old"), ("1.cls", b"3")]
    for files in (
        [*sample, ("1.jpg", b"new"), ("1.cls", b"4")],
        [*sample, ("2.jpg", b"x"), ("1.jpg", b""), ("1.cls", b"4")],
    ):
        found = {path: (label, reason) for path, label, reason in _seen(_listed(_shard(tmp_path, *files)))}
        assert found[b"s-0/1.jpg"] == ("4", None)
        assert found[b"s-0/1.jpg@512"][1] == "twice: a later member has this name"


def test_a_shard_with_another_one_behind_it_has_a_reason(tmp_path: Path) -> None:
    place = _shard(tmp_path, ("1.jpg", b"x"), ("1.cls", b"3"))
    size = place.stat().st_size
    place.write_bytes(2 * place.read_bytes())
    after = (b"s-0/@%d" % size, None, "unread: another archive follows the end mark of this one")
    assert _seen(_listed(place)) == [(b"s-0/1.jpg", "3", None), after]
    place.write_bytes(place.read_bytes()[: 4 * 512])
    assert _seen(_listed(place))[1][2] == "truncated: the archive ends without its end mark"


def test_a_shard_that_is_not_a_tar_has_a_reason(tmp_path: Path) -> None:
    for name, data in [("s-0.tar", b""), ("s-0.tgz", b"x" * 600)]:
        (tmp_path / name).write_bytes(data)
        ((path, _, reason),) = _seen(_listed(tmp_path / name))
        assert path == b"s-0/@0"
        assert reason is not None
        assert reason.startswith("not a tar: ")


def test_braces_globs_and_folders_expand(tmp_path: Path) -> None:
    assert expand("/d/x-{008..011}.tar") == [f"/d/x-{number:03}.tar" for number in range(8, 12)]
    assert expand("s3://b/{train,val}/{0..1}.tar") == [
        f"s3://b/{split}/{number}.tar" for split in ("train", "val") for number in (0, 1)
    ]
    names = ["b.tar", "a.TAR", "c.tgz", "d.tar.gz", "no.txt"]
    for name in names:
        (tmp_path / name).touch()
    assert expand(str(tmp_path)) == [str(tmp_path / name) for name in ["a.TAR", "b.tar", "c.tgz", "d.tar.gz"]]
    assert expand(f"{tmp_path}/*.tar") == [str(tmp_path / "b.tar")]
    assert expand(f"{tmp_path}/{{b.tar,c.tgz}}") == [str(tmp_path / "b.tar"), str(tmp_path / "c.tgz")]
    assert expand(str(tmp_path / "b.tar")) == [str(tmp_path / "b.tar")]
    literal = tmp_path / "x[1].tar"
    literal.touch()
    assert expand(str(literal)) == [str(literal)]
    odd = tmp_path / "[a]{b,c}*"
    odd.mkdir()
    (odd / "x-0.tar").touch()
    wanted = [str(odd / "x-0.tar")]
    assert [expand(f"{odd}{rest}") for rest in ("", "/*.tar", "/x-{0..0}.tar", "/x-[0].tar")] == 4 * [wanted]
    for pattern in (f"{tmp_path}/no*.tar", f"{tmp_path}/none"):
        (tmp_path / "none").mkdir(exist_ok=True)
        with pytest.raises(SourceError, match=r"Wanted shards .* Found: none"):
            expand(pattern)
    for pattern in ("{5..1}.tar", "{0..9999999999}.tar", "{0..9999}{0..9999}.tar"):
        with pytest.raises(SourceError, match="Wanted"):
            expand(pattern)


def test_remote_folders_and_globs_expand() -> None:
    storage = Storage("memory://shards")
    for name in ["b.tar", "a.tar", "no.txt"]:
        with storage.filesystem.open(storage.path(f"x/{name}"), "wb") as file:
            file.write(tar_of())
    with storage.filesystem.open(storage.path("y/x[1].tar"), "wb") as file:
        file.write(tar_of())
    assert expand("memory://shards/y/x[1].tar") == ["memory://shards/y/x[1].tar"]
    wanted = ["memory://shards/x/a.tar", "memory://shards/x/b.tar"]
    assert expand("memory://shards/x") == wanted
    assert expand("memory://shards/x/") == wanted
    assert expand("memory://shards/x/?.tar") == wanted
    assert expand("memory://shards/x/{a,b}.tar") == wanted
    with pytest.raises(SourceError, match="Found: none"):
        expand("memory://shards/nothing")
