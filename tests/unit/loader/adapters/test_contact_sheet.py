"""Contact sheets: each image is in its place, and unreadable ones are marked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import loader
from loader.adapters.contact_sheet import MOST
from loader.shards import make_client
from tests.support.encoding import encoded, npy
from tests.support.pictures import SHADES, picture
from tests.support.shard_folders import upload
from tests.support.split_folders import image_ids, packed, write_split_folder

CELL, PITCH, LEFT = 128, 136, 8
ALARM = (190, 30, 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    """Images of the shade of their class, and a file that is not an image."""
    root = tmp_path_factory.mktemp("tree")
    for number in range(12):
        path = root / f"c{number % 3}" / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"none" if number == 11 else picture(1 + number % 3, width=CELL, height=CELL))
    return loader.open_folder(root)


def batch(images: list[bytes], **fields: Any) -> loader.Batch:
    count = len(images)
    labels = np.arange(0 if "label_blobs" in fields else count, dtype=np.int32)
    others = {"ids": packed(image_ids(count)), "positions": np.arange(count), "epoch": 0, "step": 0, "labels": labels}
    return loader.Batch(images, **(others | fields))


def middle(sheet: Image.Image, column: int, row: int, *, height: int = CELL + 2 + 30 + 8, below: int = 0) -> Any:
    """The colour at the centre of a cell."""
    return sheet.getpixel((LEFT + column * PITCH + CELL // 2, LEFT + row * height + below + CELL // 2))


def test_pictures_are_row_by_row_in_the_order_of_their_positions(folder: loader.Folder) -> None:
    assert folder.labels is not None
    broken = folder.paths.index(b"c2/11.png")
    sheet = folder.show()
    assert sheet.width == LEFT + 5 * PITCH  # 12 images in rows of 5
    for position in set(range(12)) - {broken}:
        shade = SHADES * (1 + int(folder.labels[position]))
        assert middle(sheet, position % 5, position // 5) == (shade,) * 3
    wanted = [position for position in (9, 2, 7) if position != broken] * 2
    chosen = folder.show(wanted)
    columns = (chosen.width - LEFT) // PITCH
    shades = [SHADES * (1 + int(folder.labels[position])) for position in wanted]
    assert [middle(chosen, one % columns, one // columns)[0] for one in range(len(wanted))] == shades


def test_an_image_that_is_no_picture_says_so(folder: loader.Folder) -> None:
    broken = folder.paths.index(b"c2/11.png")
    sheet = folder.show([broken, (broken + 1) % 12])
    assert sheet.getpixel((LEFT, LEFT)) == ALARM
    assert sheet.getpixel((LEFT + PITCH, LEFT)) != ALARM


def test_masks_are_below_their_images_with_a_colour_for_each_number() -> None:
    numbers = np.zeros((CELL, CELL), dtype=np.uint8)
    numbers[:, CELL // 4 :], numbers[:, 3 * CELL // 4 :] = 1, 2
    coloured = np.full((CELL, CELL, 3), (10, 200, 30), dtype=np.uint8)
    shown = batch([picture(2)] * 3, label_blobs=[encoded(numbers), encoded(coloured), b"no mask"]).show()
    row = [shown.getpixel((LEFT + x, LEFT + CELL + 2 + CELL // 2)) for x in (CELL // 8, CELL // 2, 7 * CELL // 8)]
    assert row[0] == (0, 0, 0)
    assert len(set(row)) == 3
    assert middle(shown, 1, 0, below=CELL + 2) == (10, 200, 30)
    assert shown.getpixel((LEFT + 2 * PITCH, LEFT + CELL + 2)) == ALARM


def captions(sheet: Image.Image) -> list[bytes]:
    """The pixels of each caption of one row."""
    top = LEFT + CELL + 2
    columns = (sheet.width - LEFT) // PITCH
    return [
        sheet.crop((LEFT + one * PITCH, top, LEFT + one * PITCH + CELL, top + 15)).tobytes() for one in range(columns)
    ]


def test_captions_name_classes_in_letters_that_the_font_has() -> None:
    three = batch([picture(1)] * 3, labels=np.array([0, 1, 2], np.int32))
    named = captions(three.show(class_names={0: "Übel", 1: "Ubel", 2: "猫"}))
    assert named[0] == named[1] != named[2]
    assert named[2] == captions(three.show())[2]  # the number, as for a class without a name
    long = captions(three.show(class_names={0: "a" * 100, 1: "a" * 200, 2: "b" * 100}))
    assert long[0] == long[1] != long[2]


def test_label_arrays_are_written_out() -> None:
    arrays = [npy([1, 0]), npy([1.0, 0.0]), npy([0, 1])]
    first, same, other = captions(batch([picture(1)] * 3, label_blobs=arrays).show())
    assert first == same != other
    damaged = captions(batch([picture(1)], label_blobs=[b"\x93NUMPY and nothing"]).show())
    assert damaged[0] != first


def test_shards_are_shown_without_choosing_positions(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    shards = upload(make_client(str(tmp_path)), "bucket", "shards", count=10, workers=0)
    assert shards.show(2).width == LEFT + 2 * PITCH
    with pytest.raises(loader.OptionError, match="shards have no positions to choose by"):
        shards.show([1])
    with pytest.raises(loader.OptionError, match="Wanted no hosts"):
        shards.show(hosts="db")


def test_impossible_choices_are_refused(folder: loader.Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formats.local_node.PLACE", tmp_path / "node.json")
    for which, found in ((0, "0"), (MOST + 1, "65"), ([0] * 65, "65"), ([12], "12"), ([-1], "-1"), ([], "0")):
        with pytest.raises(loader.OptionError, match=f"Found: {found}$"):
            folder.show(which)
    split = loader.open_split(write_split_folder(tmp_path, [(image_ids(3), [0, 1, 2])]), cache=tmp_path / "cache")
    with pytest.raises(loader.OptionError, match="No Cassandra is configured"):
        split.show()
    with pytest.raises(loader.OptionError, match="Found: none"):
        batch([]).show()


def test_a_batch_takes_the_count_first_as_a_split_does(folder: loader.Folder) -> None:
    assert batch([picture(1)] * 4).show(3).width == folder.show(3).width == LEFT + 3 * PITCH
    for count in ("3", None, {0: "cat"}, 2.5):
        with pytest.raises(loader.OptionError, match="Wanted the number of pictures as a whole number from 1 to 64"):
            batch([picture(1)]).show(count)  # type: ignore[arg-type]
    for which in ("3", None, 2.5):
        with pytest.raises(loader.OptionError, match="Wanted the number of pictures as a whole number from 1 to 64"):
            folder.show(which)  # type: ignore[arg-type]
    with pytest.raises(loader.OptionError, match=r"Wanted class_names as a mapping, such as .* Found: \['cat'\]"):
        batch([picture(1)]).show(class_names=["cat"])  # type: ignore[arg-type]
