"""File names in a target folder: no two images share one."""

import itertools

import pytest

from etl.ingest.writing.folder_rows import exact_text, label_folder, with_ending

_PARTS = ("a", "b", ".", ".jpg", ".JPEG", ".png", ".001", ".tif")


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
