"""The options for re-encoding images."""

from typing import Any

import pytest

from etl.pictures.plan import TARGETS, Recode, extension


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "GIF"}, "Wanted an image format of UNCHANGED, JPEG, PNG, TIFF, WEBP. Found: 'GIF'"),
        ({"format": "JPEG", "size": 0}, "Wanted an image size from 1 to 65500 pixels. Found: 0"),
        ({"format": "WEBP", "size": 16_384}, "Wanted an image size from 1 to 16383 pixels. Found: 16384"),
        ({"format": "JPEG", "quality": 101}, "Wanted a quality from 1 to 100. Found: 101"),
        ({"format": "PNG", "quality": 50}, "Wanted a quality with JPEG or WEBP. Found: the image format PNG."),
        ({"quality": 50}, "Wanted a quality with JPEG or WEBP. Found: the image format UNCHANGED."),
        ({"format": "PNG", "crop": True}, "Wanted an image size with crop. Found: none."),
        ({"format": "PNG", "enlarge": True}, "Wanted an image size with enlarge. Found: none."),
        ({"size": 256}, "Wanted an image format, such as JPEG, to change the size of images."),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="Wanted") as caught:
        Recode(**options)
    assert str(caught.value).startswith(words)


def test_options_are_described_as_text() -> None:
    assert str(Recode()) == ""
    assert str(Recode("PNG")) == "img-format=PNG"
    assert str(Recode("JPEG")) == str(Recode("JPEG", quality=90)) == "img-format=JPEG&quality=90"
    assert str(Recode("WEBP", 256, True, 80, True)) == "img-format=WEBP&img-size=256&crop&enlarge&quality=80"


def test_extensions_follow_the_format() -> None:
    assert [extension(format) for format in TARGETS] == ["", ".jpg", ".png", ".tif", ".webp"]
