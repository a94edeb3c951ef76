"""An ingest into a folder: names, places of masks and arrays, and which files count as complete when it resumes."""

import asyncio
import itertools
from pathlib import Path

import pytest
from PIL import Image

from etl.ingest.writing.folder_rows import (
    FolderRows,
    FolderTarget,
    _look_for_files,
    exact_text,
    label_folder,
    with_ending,
)
from etl.ingest.writing.preparation import PreparedImage
from etl.pictures.images import Header
from etl.pictures.plan import Recode
from etl.sources.entries import Entry, entry_batches
from formats.stores.storage import Storage
from schemas.tables import LabelType
from tests.support.encoding import encoded

_PARTS = ("a", "b", ".", ".jpg", ".JPEG", ".png", ".001", ".tif")
KINDS: dict[LabelType, tuple[bytes, int | None, str]] = {
    "blob": (b"/masks/a.gif", None, "masks/train/a.gif"),
    "multi": (b"/arrays/a.npy", None, "arrays/train/a.npy"),
}


def _target(folder: Path, kind: LabelType) -> FolderTarget:
    return FolderTarget(address=str(folder), label_type=kind, by_folder=False, recode=Recode())


def _entry(place: bytes, offset: int | None) -> Entry:
    return Entry(bytes(16), b"train", b"a.jpg", None, None, b"/a.jpg", None, 5, place, offset, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_without_its_mask_or_array_is_written_again(tmp_path: Path, kind: LabelType) -> None:
    place, offset, name = KINDS[kind]
    target, entry = _target(tmp_path, kind), _entry(place, offset)
    picture = PreparedImage(b"image", bytes(32), Header("PNG", 1, 1), b"mask", None, None)
    asyncio.run(FolderRows(target, Storage(tmp_path)).accept(entry, picture, None))

    def there() -> int:
        return sum(batch.num_rows for batch in _look_for_files(entry_batches([entry]), target=target))

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {"images/train/a.jpg", name}
    assert there() == 1
    (tmp_path / name).write_bytes(b"")  # as left by a power cut
    assert there() == 0
    (tmp_path / name).unlink()
    assert there() == 0


def test_a_mask_out_of_an_archive_is_not_called_as_the_archive(tmp_path: Path) -> None:
    target, entry = _target(tmp_path, "blob"), _entry(b"/shards/a.tar", 512)
    for format, ending in (("PNG", "png"), ("TIFF", "tif")):
        name, others = target.companion(entry, encoded(Image.new("L", (2, 2)), format))
        assert name == f"masks/train/a.{ending}"
        assert {name, *others} == set(target.companions(entry))


def test_the_name_of_a_mask_fits_its_format(tmp_path: Path) -> None:
    turned, kept = (encoded(Image.new("L", (2, 2)), format) for format in ("PNG", "BMP"))
    for place, mask, name in (
        (b"/masks/a.BMP", kept, "a.BMP"), (b"/masks/a.BMP", turned, "a.png"), (b"/masks/a.seg", turned, "a.png"),
    ):  # fmt: skip
        assert _target(tmp_path, "blob").companion(_entry(place, None), mask)[0] == f"masks/train/{name}"


@pytest.mark.parametrize("is_strict", [False, True])
def test_no_two_pictures_get_the_same_name(is_strict: bool) -> None:
    names = {"".join(parts) for count in range(1, 6) for parts in itertools.product(_PARTS, repeat=count)} - {".", ".."}
    made = {name: with_ending(name, ".jpg", format="JPEG", is_strict=is_strict) for name in names}
    assert len(set(made.values())) == len(names)
    if is_strict:  # so masks can have the same names with another suffix
        assert all(name.endswith(".jpg") for name in made.values())


@pytest.mark.parametrize(
    ("name", "made", "strict"),
    [
        ("n1/a.jpg", "n1/a.jpg", "n1/a.jpg"),
        ("a.JPEG", "a.JPEG", "a.JPEG.jpg"),
        ("a.png", "a.png.jpg", "a.png.jpg"),
        ("a.png.jpg", "a.png.jpg.jpg", "a.png.jpg.jpg"),
        ("x.y/a", "x.y/a..jpg", "x.y/a..jpg"),
        ("a.b.jpg", "a.b.jpg", "a.b.jpg.jpg"),
    ],
)
def test_endings_tell_the_format(name: str, made: str, strict: str) -> None:
    assert with_ending(name, ".jpg", format="JPEG") == made
    assert with_ending(name, ".jpg", format="JPEG", is_strict=True) == strict
    assert with_ending(name, "", format="") == name


def test_text_and_folders_of_labels_can_be_undone() -> None:
    raw = [b"\xff", rb"\xff", rb"\x5cxff", rb"\x", b"\\\xff", rb"\\xff", "é".encode(), b"\xfe"]
    assert exact_text(raw[0]) == r"\xff"
    assert len({exact_text(one) for one in raw}) == len(raw)
    labels = ["a/b", "a_b", "a%2Fb", "a%252Fb", "a%b", "100%", "a//b"]
    assert label_folder("a/b") == "a%2Fb"
    assert label_folder("100%") == "100%"
    assert len({label_folder(one) for one in labels}) == len(labels)
    assert not any("/" in label_folder(one) for one in labels)
