"""An ingest into a folder: the places of masks and arrays, and which files count as complete when it resumes."""

import asyncio
from pathlib import Path

import pytest
from PIL import Image

from etl.ingest.writing.folder_rows import FolderRows, FolderTarget, _look_for_files
from etl.ingest.writing.preparation import PreparedImage
from etl.pictures.images import Header
from etl.pictures.plan import Recode
from etl.sources.entries import Entry, entry_batches
from formats.stores.storage import Storage
from schemas.tables import LabelType
from tests.support.picture_kinds import saved

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
        name, others = target.companion(entry, saved(Image.new("L", (2, 2)), format))
        assert name == f"masks/train/a.{ending}"
        assert {name, *others} == set(target.companions(entry))


def test_the_name_of_a_mask_fits_its_format(tmp_path: Path) -> None:
    turned, kept = (saved(Image.new("L", (2, 2)), format) for format in ("PNG", "BMP"))
    for place, mask, name in (
        (b"/masks/a.BMP", kept, "a.BMP"), (b"/masks/a.BMP", turned, "a.png"), (b"/masks/a.seg", turned, "a.png"),
    ):  # fmt: skip
        assert _target(tmp_path, "blob").companion(_entry(place, None), mask)[0] == f"masks/train/{name}"
