"""Which files are images, and the reasons why others are not."""

import contextlib
import random
import threading
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from etl.pictures.headers import look
from etl.pictures.images import Header, RejectedError, Room, disagrees, open_picture, read_header
from etl.pictures.plan import Check
from formats.pictures.orientation import exif_orientation
from tests.support.encoding import encoded
from tests.support.picture_kinds import kinds
from tests.support.pictures import exif
from tests.support.waiting import until


def _picture(kind: str, *, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    noise = random.Random(7).randbytes(size[0] * size[1] * len(mode))
    return encoded(Image.frombytes(mode, size, noise), kind, **options)


PICTURES = {
    "JPEG": _picture("JPEG"),
    "PNG": _picture("PNG"),
    "TIFF": _picture("TIFF"),
    "BMP": _picture("BMP"),
    "WEBP": _picture("WEBP", lossless=True),
    "JPEG2000": _picture("JPEG2000"),
    "PNM": _picture("PPM"),
}


def _reason(data: bytes) -> str:
    with pytest.raises(RejectedError) as caught:
        read_header(data)
    return str(caught.value)


@pytest.mark.parametrize("name", PICTURES)
def test_whole_pictures_are_accepted_with_format_and_size(name: str) -> None:
    header = read_header(PICTURES[name])
    assert (header.format, header.width, header.height) == (name, 40, 30)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_cut_off_pictures_are_rejected_as_truncated(name: str, share: float) -> None:
    data = PICTURES[name]
    reason = _reason(data[: int(share * len(data))])
    assert reason.startswith(("truncated: ", "damaged: ")), reason


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_other_colour_modes_are_accepted(mode: str) -> None:
    kind = "PNG" if mode == "RGBA" else "JPEG"
    assert read_header(_picture(kind, mode=mode)).format == kind


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"hello\n", "not an image"),
        (b"\0" * 4096, "not an image"),
        (b"\xff\xd8\xff\xe0", "damaged: it starts like an image, but its header cannot be read"),
        (_picture("GIF", mode="L"), "unsupported format GIF"),
        (_picture("ICO"), "unsupported format ICO"),
    ],
)
def test_reasons_say_what_is_wrong(data: bytes, reason: str) -> None:
    assert _reason(data) == reason


def test_forty_megapixels_are_accepted_and_decompression_bombs_are_not() -> None:
    assert read_header(encoded(Image.new("L", (8000, 5000)))).width == 8000
    bomb = bytearray(PICTURES["BMP"])
    bomb[18:26] = (100_000).to_bytes(4, "little") * 2
    assert _reason(bytes(bomb)).startswith("too many pixels")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"exif": exif(6)}, {"icc_profile": b"x" * 3000}])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_usual_jpegs_are_read_without_the_decoder(mode: str, options: dict[str, Any]) -> None:
    data = _picture("JPEG", mode=mode, **options)
    found = look(data)
    assert found
    assert found[:4] == ("JPEG", 40, 30, 6 if "exif" in options else 1)
    assert found.end == len(data)
    assert look(data + b"\0\0") == found


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
def test_usual_pngs_are_read_without_the_decoder(mode: str) -> None:
    assert (look(encoded(Image.new(mode, (40, 30)), exif=exif(3))) or ())[:4] == ("PNG", 40, 30, 3)


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": exif(8)}, {"lossless": True, "exif": exif(8)}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_usual_webps_are_read_without_the_decoder(mode: str, options: dict[str, Any]) -> None:
    found = look(_picture("WEBP", mode=mode, **options))
    assert (found or ())[:4] == ("WEBP", 40, 30, 8 if "exif" in options else 1)


@pytest.mark.parametrize("name", ["PNG", "WEBP"])
def test_an_animation_is_read_as_its_first_frame(name: str) -> None:
    first, second = (Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    assert read_header(encoded(first, name, save_all=True, append_images=[second])) == Header(name, 40, 30)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


@pytest.mark.parametrize(
    "data",
    [
        PICTURES["PNG"].replace(b"IDAT", b"IDAX"),
        PICTURES["PNG"][:33] + _chunk(b"ABCD", b"") + PICTURES["PNG"][33:],
        PICTURES["JPEG"].replace(b"\xff\xc4", b"\xff\xcc"),
        PICTURES["JPEG"].replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c"),
        PICTURES["WEBP"].replace(b"VP8L", b"VP8Z"),
    ],
)
def test_unusual_files_are_left_to_the_decoder(data: bytes) -> None:
    assert look(data) is None


@pytest.mark.parametrize(
    "broken", [b"", b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", exif(6)[:-8], b"junk", exif(9), exif(0)]
)
def test_broken_exif_is_ignored(broken: bytes) -> None:
    assert exif_orientation(broken) == 1
    if len(broken) > 6:
        assert read_header(_picture("JPEG", exif=broken)) == Header("JPEG", 40, 30)


@pytest.mark.parametrize("name", PICTURES)
def test_a_full_check_decodes(name: str) -> None:
    data = PICTURES[name]
    assert read_header(data, check="full") == read_header(data)
    with pytest.raises(RejectedError, match=r"truncated: |damaged: "):
        read_header(data[: len(data) // 2] + (b"" if name == "JPEG" else data[-12:]), check="full")


def test_a_full_check_finds_damage_after_the_header() -> None:
    data = PICTURES["PNG"]
    middle = data.index(b"IDAT") + 100
    damaged = data[:middle] + b"\xaa" * 20 + data[middle + 20 :]
    assert read_header(damaged).format == "PNG"
    with pytest.raises(RejectedError, match=r"^(damaged|truncated): "):
        read_header(damaged, check="full")


@pytest.mark.parametrize("check", ["header", "full"])
def test_a_check_accepts_what_training_sees(check: Check) -> None:
    for kind in kinds():
        if kind.upright is not None and kind.group != "GIF":
            assert read_header(kind.data, check=check).format == kind.group.replace(" ", "")
        elif kind.upright is None:
            with pytest.raises(RejectedError, match=r"^(unsupported|damaged|not an image)"):
                read_header(kind.data, check=check)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (PICTURES["JPEG"][:700], Header("JPEG", 40, 30)),
        (_picture("GIF", mode="L"), Header("GIF", 40, 30)),
        (b"hello\n", Header("", None, None)),
        (b"\xff\xd8\xff\xe0", Header("", None, None)),
    ],
)
def test_without_a_check_everything_is_accepted(data: bytes, header: Header) -> None:
    assert read_header(data, check="none") == header


@pytest.mark.parametrize("check", ["header", "full", "none"])
def test_empty_data_are_rejected_by_every_check(check: Check) -> None:
    with pytest.raises(RejectedError, match=r"^empty$"):
        read_header(b"", check=check)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_bombs_are_rejected_by_their_header(name: str) -> None:
    bomb = bytearray(PICTURES[name])
    if name == "JPEG":
        at = bomb.index(b"\xff\xc0") + 5
        bomb[at : at + 4] = b"\xff\xff\xff\xff"
    elif name == "PNG":
        bomb[16:24] = (100_000).to_bytes(4, "big") * 2
        bomb[29:33] = zlib.crc32(bomb[12:29]).to_bytes(4, "big")
    else:
        bomb[21:25] = b"\xff\xff\xff\x0f"
    assert _reason(bytes(bomb)).startswith("too many pixels: ")


def test_a_full_check_accepts_forty_megapixels() -> None:
    assert read_header(encoded(Image.new("L", (8000, 5000)), compress_level=1), check="full").height == 5000


def test_room_admits_pictures_that_fit_and_a_large_one_alone() -> None:
    room, small, large = Room(100), Image.new("L", (5, 8)), Image.new("L", (50, 50))
    order: list[str] = []

    def hold(name: str, image: Image.Image) -> None:
        with room(image):
            order.append(name)

    with room(small), room(small):
        waiting = threading.Thread(target=hold, args=("large", large))
        waiting.start()
        until(room._turn.locked)
        assert not order
        behind = threading.Thread(target=hold, args=("small", small))
        behind.start()
    waiting.join(10)
    behind.join(10)
    assert order == ["large", "small"]


@pytest.mark.parametrize(
    ("path", "format", "verdict"),
    [
        (b"a/b.jpg", "JPEG", False),
        (b"a/b.JPEG", "PNG", True),
        (b"b.png", "JPEG", True),
        (b"b.gif", "PNG", True),
        (b"b.\xff", "PNG", False),
        (b"b", "PNG", False),
        (b"png", "JPEG", False),
        (b"b.jpg", "", False),
        (b"b.tif", "TIFF", False),
        (b"a.png/b", "JPEG", False),
    ],
)
def test_extension_and_content_may_disagree(path: bytes, format: str, verdict: bool) -> None:
    assert disagrees(path, format) is verdict


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(PICTURES)), changes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=8))))
def test_damaged_data_never_raise_other_errors(name: str, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(PICTURES[name])
    for at, new in changes:
        data[at : at + len(new)] = new
    checks: list[Check] = ["header", "full"]
    for check in checks:
        with contextlib.suppress(RejectedError):
            assert read_header(bytes(data), check=check).format in PICTURES
    if data:
        read_header(bytes(data), check="none")
    if found := look(bytes(data)):
        with contextlib.suppress(RejectedError), open_picture(bytes(data)) as image:
            assert image.size == (found.width, found.height)
