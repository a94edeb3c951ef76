"""Image files of many kinds, each with the pixels that training must see, which are known without a decoder."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.support.encoding import encoded
from tests.support.pictures import exif

Pixels = NDArray[Any]

_WIDTH, _HEIGHT = 40, 28
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


@dataclass(frozen=True, slots=True)
class Kind:
    """An image file.

    ``upright`` and ``stored`` are the pixels to see, uint8 ``(height, width, 3)``, with and without the orientation;
    ``upright`` is None if the file must be refused. ``most`` is the largest mean difference from them: 0 for formats
    without losses.
    """

    name: str
    group: str
    data: bytes
    upright: Pixels | None
    most: float = 0.0
    stored: Pixels | None = None

    @property
    def seen(self) -> str:
        """What training sees of the file, in words."""
        words = {
            "animated": "the first frame", "pages": "the first page", "which does not exist": "the stored pixels",
            "orientation": "upright", "16 bits": "scaled to 8 bits", "up to": "scaled to 8 bits",
            "RGBA": "the colours, without alpha", "alpha": "the colours, without alpha",
            "transparent": "the colours, without alpha", "profile": "the profile is not applied",
            "gamma": "gamma is not applied", "CMYK": "converted to RGB", "YCCK": "converted to RGB",
        }  # fmt: skip
        found = dict.fromkeys(text for word, text in words.items() if word in self.name)
        if "the stored pixels" in found:
            return "the stored pixels"
        return ", ".join(found) or ("the same values in RGB" if "gray" in self.name else "the pixels")


def kinds() -> list[Kind]:
    """All kinds, in the order of the documentation."""
    return [*_jpegs(), *_pngs(), *_tiffs(), *_webps(), *_others(), *_sizes()]


def scene(width: int = _WIDTH, height: int = _HEIGHT) -> Pixels:
    """A smooth image without any symmetry, so that losses are small and each orientation shows."""
    rows, columns = np.mgrid[0:height, 0:width]
    down, across = rows / max(height - 1, 1), columns / max(width - 1, 1)
    found: Pixels = np.rint(np.stack([20 + 200 * across, 230 - 180 * down, 40 + 150 * across * down], axis=-1)).astype(
        np.uint8
    )
    return found


def gray(width: int = _WIDTH, height: int = _HEIGHT) -> Pixels:
    """The same in gray."""
    found: Pixels = scene(width, height)[..., 0] // 2 + scene(width, height)[..., 1] // 3
    return found


def as_rgb(gray: Pixels) -> Pixels:
    """Gray values in three channels."""
    return np.stack([gray] * 3, axis=-1).astype(np.uint8)


def turned(upright: Pixels, orientation: int) -> Pixels:
    """The pixels as a camera stores them for an orientation that turns them upright."""
    match orientation:
        case 2:
            return upright[:, ::-1]
        case 3:
            return upright[::-1, ::-1]
        case 4:
            return upright[::-1]
        case 5:
            return upright.transpose(1, 0, 2)
        case 6:
            return np.rot90(upright)
        case 7:
            return upright[::-1, ::-1].transpose(1, 0, 2)
        case 8:
            return np.rot90(upright, 3)
    return upright


def png(pixels: Pixels, *, bits: int = 8, colour: int, interlaced: bool = False, chunks: tuple[Any, ...] = ()) -> bytes:
    """A PNG of any colour type and depth, which Pillow cannot write. ``chunks`` are (name, bytes) before the pixels."""
    rows = pixels if pixels.ndim == 3 else pixels[..., None]
    height, width = rows.shape[:2]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    raw = b""
    for top, left, down, across in passes:
        part = rows[top::down, left::across]
        raw += b"".join(b"\0" + _packed(row, bits) for row in part if part.size)
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    body = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in body
    )


def tiff(
    pixels: Pixels,
    *,
    bits: int = 8,
    photometric: int | None = None,
    order: Literal["<", ">"] = "<",
    kind: int = 1,
    extra: bool = False,
) -> bytes:
    """An uncompressed TIFF of one strip. ``kind`` is the sample format: 1 unsigned, 2 signed, 3 float."""
    rows = pixels if pixels.ndim == 3 else pixels[..., None]
    height, width, channels = rows.shape
    data = np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder(order)).tobytes()
    photometric = (2 if channels >= 3 else 1) if photometric is None else photometric
    tags: list[tuple[int, str, tuple[int, ...]]] = [
        (256, "I", (width,)), (257, "I", (height,)), (258, "H", (bits,) * channels), (259, "H", (1,)),
        (262, "H", (photometric,)), (273, "I", (8,)), (277, "H", (channels,)), (278, "I", (height,)),
        (279, "I", (len(data),)), (284, "H", (1,)), *([(338, "H", (2,))] if extra else []),
        (339, "H", (kind,) * channels),
    ]  # fmt: skip
    body = data + b"\0" * (len(data) % 2)
    entries, after = b"", 8 + len(body) + 2 + 12 * len(tags) + 4
    more = b""
    for tag, letter, values in tags:
        packed = struct.pack(f"{order}{len(values)}{letter}", *values)
        if len(packed) > 4:
            packed, more = struct.pack(f"{order}I", after + len(more)), more + packed
        entries += struct.pack(f"{order}HHI", tag, 3 if letter == "H" else 4, len(values)) + packed.ljust(4, b"\0")
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(body))
    return start + body + struct.pack(f"{order}H", len(tags)) + entries + b"\0\0\0\0" + more


def _packed(row: Pixels, bits: int) -> bytes:
    if bits == 16:
        return bytes(row.astype(">u2").tobytes())
    if bits == 8:
        return bytes(row.astype(np.uint8).tobytes())
    values = row.reshape(-1)
    places = np.unpackbits(values.astype(np.uint8)[:, None], axis=1)[:, -bits:]
    return bytes(np.packbits(places.reshape(-1)).tobytes())


def _jpegs() -> Iterator[Kind]:
    rgb, one = scene(), gray()
    lossy = {"quality": 95, "subsampling": 0}
    yield Kind("gray", "JPEG", encoded(one, "JPEG", quality=95), as_rgb(one), 2)
    yield Kind("RGB", "JPEG", encoded(rgb, "JPEG", **lossy), rgb, 2)
    yield Kind("RGB, chroma at half size", "JPEG", encoded(rgb, "JPEG", quality=95, subsampling=2), rgb, 2)
    yield Kind("RGB, progressive", "JPEG", encoded(rgb, "JPEG", progressive=True, **lossy), rgb, 2)
    yield Kind("RGB, not as YCbCr", "JPEG", encoded(rgb, "JPEG", keep_rgb=True, **lossy), rgb, 2)
    yield Kind("RGB, with a colour profile", "JPEG", encoded(rgb, "JPEG", icc_profile=b"\0" * 128, **lossy), rgb, 2)
    ink = np.concatenate([255 - scene(), (gray() // 4)[..., None]], axis=-1)
    seen = np.rint((255 - ink[..., :3].astype(float)) * (255 - ink[..., 3:].astype(float)) / 255).astype(np.uint8)
    adobe = encoded(Image.fromarray(ink, "CMYK"), "JPEG", **lossy)
    yield Kind("CMYK of Adobe", "JPEG", adobe, seen, 2)
    plain = encoded(Image.fromarray(255 - ink, "CMYK"), "JPEG", **lossy)
    yield Kind("CMYK without Adobe's marker", "JPEG", _without_adobe(plain), seen, 2)
    ycc = np.asarray(Image.fromarray(np.ascontiguousarray(ink[..., :3])).convert("YCbCr"))
    mixed = Image.fromarray(np.concatenate([255 - ycc, ink[..., 3:]], axis=-1), "CMYK")
    yield Kind("YCCK of Adobe", "JPEG", _as_ycck(encoded(mixed, "JPEG", **lossy)), seen, 2)
    yield from _orientations("JPEG", most=2, **lossy)
    for broken in (0, 9):
        name = f"RGB, orientation {broken}, which does not exist"
        yield Kind(name, "JPEG", encoded(rgb, "JPEG", exif=exif(broken), **lossy), rgb, 2)
    for first, second in ((6, 3), (1, 6)):
        name = f"RGB, orientation {first}, then {second} in a second block"
        stored = np.ascontiguousarray(turned(rgb, first))
        data, block = encoded(stored, "JPEG", exif=exif(first), **lossy), exif(second)
        at = data.index(b"\xff\xdb")
        data = data[:at] + b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block + data[at:]
        yield Kind(name, "JPEG", data, rgb, 2, stored)


def _orientations(format: str, *, most: float = 0.0, **options: Any) -> Iterator[Kind]:
    rgb = scene()
    for orientation in range(1, 9):
        stored = np.ascontiguousarray(turned(rgb, orientation))
        notes = {"tiffinfo": {274: orientation}} if format == "TIFF" else {"exif": exif(orientation)}
        data = encoded(stored, format, **notes, **options)
        yield Kind(f"RGB, orientation {orientation}", format, data, rgb, most, stored)


def _without_adobe(jpeg: bytes) -> bytes:
    at = jpeg.index(b"\xff\xee\0\x0eAdobe")
    return jpeg[:at] + jpeg[at + 16 :]


def _as_ycck(jpeg: bytes) -> bytes:
    at = jpeg.index(b"\xff\xee\0\x0eAdobe")
    return jpeg[: at + 15] + b"\2" + jpeg[at + 16 :]


def _bits(count: int) -> str:
    return "1 bit" if count == 1 else f"{count} bits"


def _deep(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Pixels of 16 bits whose lower byte matters, and what they are in 8 bits."""
    deep = pixels.astype(np.uint16) * 250 + 77
    return deep, np.rint(deep / 257).astype(np.uint8)


def _scenes() -> tuple[Pixels, Pixels, Pixels, Pixels, Pixels, Pixels]:
    """The scene in colour and in gray: of 8 bits, of 16, and the latter as training sees it."""
    rgb, one = scene(), gray()
    return rgb, *_deep(rgb), one, *_deep(one)


def _black_and_white(one: Pixels) -> tuple[Image.Image, Pixels]:
    """A gray picture in 1 bit, and as training sees it."""
    two = Image.fromarray(one).convert("1", dither=Image.Dither.NONE)
    return two, as_rgb(np.asarray(two.convert("L")))


def _pngs() -> Iterator[Kind]:
    rgb, deep_rgb, eight_rgb, one, deep_one, eight_one = _scenes()
    alpha = (255 - np.indices(one.shape).sum(0) * 3).astype(np.uint8)
    deep_alpha = alpha.astype(np.uint16) * 257
    for bits in (1, 2, 4):
        top = (1 << bits) - 1
        few = one >> (8 - bits)
        yield Kind(f"gray, {_bits(bits)}", "PNG", png(few, bits=bits, colour=0), as_rgb(few * (255 // top)))
    yield Kind("gray", "PNG", png(one, colour=0), as_rgb(one))
    yield Kind("gray, 16 bits", "PNG", png(deep_one, bits=16, colour=0), as_rgb(eight_one))
    yield Kind("gray, a transparent value", "PNG", png(one, colour=0, chunks=((b"tRNS", b"\0\x64"),)), as_rgb(one))
    yield Kind("RGB", "PNG", png(rgb, colour=2), rgb)
    yield Kind("RGB, 16 bits", "PNG", png(deep_rgb, bits=16, colour=2), eight_rgb)
    chunks = ((b"tRNS", struct.pack(">HHH", *rgb[0, 0])),)
    yield Kind("RGB, a transparent colour", "PNG", png(rgb, colour=2, chunks=chunks), rgb)
    yield Kind("RGB, with gamma", "PNG", png(rgb, colour=2, chunks=((b"gAMA", struct.pack(">I", 100_000)),)), rgb)
    yield Kind("gray, alpha", "PNG", png(np.dstack([one, alpha]), colour=4), as_rgb(one))
    both = np.dstack([deep_one, deep_alpha])
    yield Kind("gray, alpha, 16 bits", "PNG", png(both, bits=16, colour=4), as_rgb(eight_one))
    yield Kind("RGBA", "PNG", png(np.dstack([rgb, alpha]), colour=6), rgb)
    yield Kind("RGBA, 16 bits", "PNG", png(np.dstack([deep_rgb, deep_alpha]), bits=16, colour=6), eight_rgb)
    for bits in (1, 2, 4, 8):
        palette = scene(1 << bits, 1)[0]
        chunks = ((b"PLTE", palette.tobytes()),)
        places = one >> (8 - bits)
        yield Kind(f"palette, {_bits(bits)}", "PNG", png(places, bits=bits, colour=3, chunks=chunks), palette[places])
        if bits in (4, 8):
            see_through = (*chunks, (b"tRNS", bytes(range(1 << bits))))
            name = f"palette, {_bits(bits)}, transparent"
            yield Kind(name, "PNG", png(places, bits=bits, colour=3, chunks=see_through), palette[places])
    yield Kind("gray, interlaced", "PNG", png(one, colour=0, interlaced=True), as_rgb(one))
    yield Kind("RGB, interlaced", "PNG", png(rgb, colour=2, interlaced=True), rgb)
    data = png(deep_rgb, bits=16, colour=2, interlaced=True)
    yield Kind("RGB, 16 bits, interlaced", "PNG", data, eight_rgb)
    data = png(both, bits=16, colour=4, interlaced=True)
    yield Kind("gray, alpha, 16 bits, interlaced", "PNG", data, as_rgb(eight_one))
    yield from _orientations("PNG")
    stored = np.ascontiguousarray(turned(deep_rgb, 6))
    data = png(stored, bits=16, colour=2, chunks=((b"eXIf", exif(6).removeprefix(b"Exif\0\0")),))
    yield Kind("RGB, 16 bits, orientation 6", "PNG", data, eight_rgb, 0.0, turned(eight_rgb, 6))
    stored = np.ascontiguousarray(turned(rgb, 6))
    data = png(stored, colour=2, chunks=((b"eXIf", exif(6)),))
    yield Kind("RGB, orientation 6, with JPEG's prefix", "PNG", data, rgb, 0.0, stored)
    other = Image.fromarray(255 - rgb)
    yield Kind("RGB, animated", "PNG", encoded(rgb, "PNG", save_all=True, append_images=[other]), rgb)
    data = encoded(rgb, "PNG", save_all=True, default_image=True, append_images=[other])
    yield Kind("RGB, beside an animation", "PNG", data, rgb)


def _tiffs() -> Iterator[Kind]:
    rgb, deep_rgb, eight_rgb, one, deep_one, eight_one = _scenes()
    alpha = np.full(one.shape, 100, np.uint8)
    two, black = _black_and_white(one)
    yield Kind("gray, 1 bit", "TIFF", encoded(two, "TIFF"), black)
    yield Kind("gray, 1 bit, as a fax", "TIFF", encoded(two, "TIFF", compression="group4"), black)
    yield Kind("gray", "TIFF", encoded(one, "TIFF"), as_rgb(one))
    yield Kind("gray, white is 0", "TIFF", tiff(255 - one, photometric=0), as_rgb(one))
    yield Kind("gray, 16 bits", "TIFF", tiff(deep_one, bits=16), as_rgb(eight_one))
    yield Kind("gray, 16 bits, big endian", "TIFF", tiff(deep_one, bits=16, order=">"), as_rgb(eight_one))
    yield Kind("RGB", "TIFF", encoded(rgb, "TIFF"), rgb)
    yield Kind("RGB, LZW", "TIFF", encoded(rgb, "TIFF", compression="tiff_lzw"), rgb)
    yield Kind("RGB, JPEG inside", "TIFF", encoded(rgb, "TIFF", compression="jpeg", quality=95), rgb, 2)
    yield Kind("RGB, 16 bits", "TIFF", tiff(deep_rgb, bits=16), eight_rgb)
    yield Kind("RGB, 16 bits, big endian", "TIFF", tiff(deep_rgb, bits=16, order=">"), eight_rgb)
    yield Kind("RGBA", "TIFF", tiff(np.dstack([rgb, alpha]), extra=True), rgb)
    deep = np.dstack([deep_rgb, alpha.astype(np.uint16) * 257])
    yield Kind("RGBA, 16 bits", "TIFF", tiff(deep, bits=16, extra=True), eight_rgb)
    palette = Image.fromarray(rgb).quantize(32)
    yield Kind("palette", "TIFF", encoded(palette, "TIFF"), np.asarray(palette.convert("RGB")))
    ink = np.concatenate([255 - scene(), (gray() // 4)[..., None]], axis=-1)
    seen = np.rint((255 - ink[..., :3].astype(float)) * (255 - ink[..., 3:].astype(float)) / 255).astype(np.uint8)
    yield Kind("CMYK", "TIFF", encoded(Image.fromarray(ink, "CMYK"), "TIFF"), seen, 1)
    pages = encoded(rgb, "TIFF", save_all=True, append_images=[Image.fromarray(255 - rgb[:9])])
    yield Kind("RGB, several pages", "TIFF", pages, rgb)
    yield from _orientations("TIFF")
    yield Kind("gray, 32 bits", "TIFF", tiff(deep_one.astype(np.uint32), bits=32), None)
    yield Kind("gray, 32 bits, signed", "TIFF", tiff(deep_one.astype(np.int32), bits=32, kind=2), None)
    yield Kind("gray, 16 bits, signed", "TIFF", tiff(one.astype(np.int16), bits=16, kind=2), None)
    yield Kind("gray, float", "TIFF", tiff(one.astype(np.float32) / 255, bits=32, kind=3), None)
    yield Kind("RGB, float", "TIFF", tiff(rgb.astype(np.float32) / 255, bits=32, kind=3), None)


def _webps() -> Iterator[Kind]:
    rgb = scene()
    alpha = np.full(rgb.shape[:2], 100, np.uint8)
    other = Image.fromarray(255 - rgb)
    lossless: dict[str, Any] = {"lossless": True, "exact": True}
    yield Kind("lossy", "WEBP", encoded(rgb, "WEBP", quality=95), rgb, 2)
    yield Kind("lossless", "WEBP", encoded(rgb, "WEBP", **lossless), rgb)
    yield Kind("lossless, alpha", "WEBP", encoded(np.dstack([rgb, alpha]), "WEBP", **lossless), rgb)
    yield Kind("lossy, alpha", "WEBP", encoded(np.dstack([rgb, alpha]), "WEBP", quality=95), rgb, 2)
    yield Kind("animated", "WEBP", encoded(rgb, "WEBP", save_all=True, append_images=[other], **lossless), rgb)
    stored = np.ascontiguousarray(turned(rgb, 6))
    data = encoded(
        stored, "WEBP", save_all=True, append_images=[other.rotate(90, expand=True)], exif=exif(6), **lossless
    )
    yield Kind("animated, orientation 6", "WEBP", data, rgb, 0.0, stored)
    yield from _orientations("WEBP", **lossless)


def _others() -> Iterator[Kind]:
    rgb, deep_rgb, eight_rgb, one, deep_one, eight_one = _scenes()
    alpha = np.full(one.shape, 100, np.uint8)
    two, black = _black_and_white(one)
    palette = Image.fromarray(rgb).quantize(32)
    few = np.asarray(palette.convert("RGB"))
    size = b"%d %d" % (one.shape[1], one.shape[0])
    yield Kind("RGB", "BMP", encoded(rgb, "BMP"), rgb)
    yield Kind("gray", "BMP", encoded(one, "BMP"), as_rgb(one))
    yield Kind("palette", "BMP", encoded(palette, "BMP"), few)
    yield Kind("1 bit", "BMP", encoded(two, "BMP"), black)
    yield Kind("RGBA", "BMP", encoded(np.dstack([rgb, alpha]), "BMP"), rgb)
    yield Kind("gray", "JPEG 2000", encoded(one, "JPEG2000"), as_rgb(one))
    yield Kind("RGB", "JPEG 2000", encoded(rgb, "JPEG2000"), rgb)
    yield Kind("RGB, a codestream", "JPEG 2000", encoded(rgb, "JPEG2000", no_jp2=True), rgb)
    yield Kind("RGBA", "JPEG 2000", encoded(np.dstack([rgb, alpha]), "JPEG2000"), rgb)
    yield Kind(
        "gray, alpha", "JPEG 2000", encoded(Image.fromarray(np.dstack([one, alpha]), "LA"), "JPEG2000"), as_rgb(one)
    )
    yield Kind("gray, 16 bits", "JPEG 2000", encoded(deep_one, "JPEG2000"), as_rgb(eight_one))
    yield Kind("lossy", "JPEG 2000", encoded(rgb, "JPEG2000", irreversible=True, quality_layers=[4]), rgb, 2)
    text = b" ".join(b"%d" % value for value in one.ravel())
    yield Kind("gray", "PNM", b"P5 %s 255\n" % size + one.tobytes(), as_rgb(one))
    yield Kind("gray, as text", "PNM", b"P2\n# a comment\n%s 255\n" % size + text, as_rgb(one))
    yield Kind("gray, up to 100", "PNM", b"P5 %s 100\n" % size + (one // 3).tobytes(), as_rgb(_scaled(one // 3, 100)))
    yield Kind("gray, 16 bits", "PNM", b"P5 %s 65535\n" % size + deep_one.astype(">u2").tobytes(), as_rgb(eight_one))
    ten = deep_one >> 6
    yield Kind(
        "gray, up to 1023", "PNM", b"P5 %s 1023\n" % size + ten.astype(">u2").tobytes(), as_rgb(_scaled(ten, 1023))
    )
    yield Kind("RGB", "PNM", b"P6 %s 255\n" % size + rgb.tobytes(), rgb)
    yield Kind("RGB, 16 bits", "PNM", b"P6 %s 65535\n" % size + deep_rgb.astype(">u2").tobytes(), eight_rgb)
    yield Kind("1 bit", "PNM", encoded(two, "PPM"), black)
    yield Kind("float", "PNM", b"Pf %s -1.0\n" % size + (one.astype("<f4") / 255).tobytes(), None)
    yield Kind("palette", "GIF", encoded(palette, "GIF"), few)
    frames = encoded(palette, "GIF", save_all=True, append_images=[palette.rotate(180)])
    yield Kind("animated", "GIF", frames, few)
    yield Kind("a transparent colour", "GIF", encoded(palette, "GIF", transparency=3), few)


def _scaled(values: Pixels, most: int) -> Pixels:
    return np.rint(values / most * 255).astype(np.uint8)


def _sizes() -> Iterator[Kind]:
    for width, height in ((1, 1), (1, 3000), (3000, 1)):
        rgb = scene(width, height)
        yield Kind(f"{width} x {height}", "PNG", png(rgb, colour=2), rgb)
        yield Kind(f"{width} x {height}", "JPEG", encoded(rgb, "JPEG", quality=95, subsampling=0), rgb, 2)
