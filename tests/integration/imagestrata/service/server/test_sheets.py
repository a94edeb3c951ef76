"""Contact sheets: which images are shown; damaged ones do no harm."""

import io
import re
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.browsers import painted
from tests.support.dataset_servers import TAR, Answer, Server, ServerInThread, tar_of
from tests.support.encoding import encoded
from tests.support.pictures import exif

CELL, PITCH = 160, 164


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ServerInThread(tmp_path_factory.mktemp("service") / "root") as server:
        yield server


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A separate process, so that its memory can be measured."""
    with Server(tmp_path_factory.mktemp("service") / "measured") as server:
        assert sheet_of(server, "first", {"1.jpg": painted(1)}).status == 200
        yield server


def plain(colour: tuple[int, ...] | int | str, mode: str = "RGB", kind: str = "PNG", **options: object) -> bytes:
    """An image of one colour."""
    return encoded(Image.new(mode, (200, 120), colour), kind, **options)


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims this size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def sheet_of(server: Server, name: str, files: dict[str, bytes]) -> Answer:
    server.create(name)
    assert server.put(name, tar_of(files), kind=TAR).status == 200
    return server.ask("GET", f"/datasets/{name}/sheet")


def picture(answer: Answer) -> Image.Image:
    assert (answer.status, answer.headers["content-type"]) == (200, "image/jpeg"), answer.body
    image = Image.open(io.BytesIO(answer.body), formats=["JPEG"])
    image.load()
    return image


def test_a_sheet_shows_up_to_24_pictures_in_even_rows(server: Server) -> None:
    sizes = {1: (1, 1), 5: (5, 1), 7: (4, 2), 9: (5, 2), 13: (5, 3), 40: (6, 4)}
    for count, (columns, rows) in sizes.items():
        shown = picture(sheet_of(server, f"of-{count}", {f"{n}.jpg": painted(n) for n in range(count)}))
        assert shown.size == (columns * PITCH - 4, rows * PITCH - 4)
        cells = [
            (x * PITCH, y * PITCH, x * PITCH + CELL, y * PITCH + CELL) for y in range(rows) for x in range(columns)
        ]
        assert sum(is_painted(shown.crop(cell)) for cell in cells) == min(count, 24)


def test_a_sheet_says_which_pictures_it_shows_and_may_be_of_a_folder_or_class(server: Server) -> None:
    files = {f"{split}/{label}/{n}.jpg": painted(n) for split in ("a", "b") for label in ("cat", "dog") for n in (1, 2)}
    assert sheet_of(server, "labelled", files | {"top.jpg": painted(3), "broken.jpg": b"no"}).status == 200

    def shown(query: str) -> list[tuple[str, str | None]]:
        found = server.ask("GET", f"/datasets/labelled/sheet/pictures{query}").json
        size = picture(server.ask("GET", f"/datasets/labelled/sheet{query}")).size
        rows = -(-len(found["pictures"]) // found["columns"])
        assert size == (found["columns"] * PITCH - 4, rows * PITCH - 4)
        assert (found["cell"], found["gap"]) == (CELL, PITCH - CELL)
        return [(one["path"], one["label"]) for one in found["pictures"]]

    assert shown("")[:3] == [("a/cat/1.jpg", "cat"), ("a/dog/1.jpg", "dog"), ("b/cat/1.jpg", "cat")]
    assert ("top.jpg", None) in shown("")
    assert {path for path, _ in shown("?prefix=a/")} == {path for path in files if path.startswith("a/")}
    assert {path for path, _ in shown("?class=dog")} == {path for path in files if "/dog/" in path}
    for query in ("?class=no", "?prefix=broken"):
        assert server.ask("GET", f"/datasets/labelled/sheet{query}").status == 404
        assert server.ask("GET", f"/datasets/labelled/sheet/pictures{query}").json["pictures"] == []


def is_painted(cell: Image.Image) -> bool:
    low, high = cell.convert("L").crop((20, 20, CELL - 20, CELL - 20)).getextrema()
    return high - low > 20  # type: ignore[operator]  # of one band: two numbers


@pytest.mark.parametrize(
    ("mode", "size", "kind", "options", "status"),
    [
        ("RGB", 4000, "PNG", {}, 404),
        ("RGBA", 2700, "PNG", {}, 200),
        ("I;16", 2700, "PNG", {}, 200),
        ("RGB", 5000, "JPEG", {}, 200),
        ("RGB", 5000, "JPEG", {"progressive": True}, 404),
        ("RGB", 3000, "JPEG", {"progressive": True}, 200),
        ("RGBA", 2000, "WEBP", {"lossless": True, "method": 0}, 404),
        ("RGBA", 1100, "WEBP", {"lossless": True, "method": 0}, 200),
        ("RGBA", 1500, "TIFF", {"compression": "tiff_deflate", "tiffinfo": {278: 1500, 274: 6}}, 200),  # one strip
    ],
)
def test_large_pictures_take_little_memory(
    measured: Server, mode: str, size: int, kind: str, options: dict[str, Any], status: int
) -> None:
    made = io.BytesIO()
    Image.linear_gradient("L").resize((size, size)).convert(mode).save(made, kind, **options)
    name = f"{mode}-{size}-{kind}-{len(options)}".replace(";", "-")
    before = memory(measured)
    Path(f"/proc/{measured.process.pid}/clear_refs").write_text("5")  # reset the peak
    assert sheet_of(measured, name, {f"{n}/a.{kind}": made.getvalue() for n in range(3)}).status == status
    assert memory(measured, "VmHWM") - before < 45e6
    assert memory(measured) - before < 20e6  # it is freed


def memory(server: Server, which: str = "VmRSS") -> int:
    """The memory of a server in bytes; with ``VmHWM``, its peak."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def test_all_kinds_of_pictures_are_shown_correctly(server: Server) -> None:
    turned = io.BytesIO()
    half = Image.new("RGB", (200, 200), "red")
    half.paste("blue", (0, 0, 200, 100))
    half.save(turned, "JPEG", exif=exif(3))  # upside down
    deep = io.BytesIO()
    Image.fromarray(np.repeat(np.array([20_000, 50_000], np.uint16), 200 * 100).reshape(200, 200)).save(deep, "PNG")
    files = {
        "a/1.png": plain((0, 128, 0)),
        "b/2.webp": plain((0, 128, 0), kind="WEBP", lossless=True),
        "c/3.png": plain((0, 128, 0, 255), "RGBA"),
        "d/4.tif": plain(200, "L", "TIFF"),
        "e/5.jpg": turned.getvalue(),
        "f/6.png": deep.getvalue(),
    }
    shown = picture(sheet_of(server, "kinds", files))

    def near(cell: int, x: int, y: int, colour: tuple[int, int, int]) -> bool:
        found = shown.getpixel((cell * PITCH + x, y))
        assert isinstance(found, tuple)
        return all(abs(have - want) < 12 for have, want in zip(found, colour, strict=True))

    for cell in range(3):
        assert near(cell, 80, 80, (0, 128, 0)), cell
    assert near(3, 80, 80, (200, 200, 200))
    assert near(4, 80, 30, (254, 0, 0))
    assert near(4, 80, 130, (0, 0, 254))
    assert near(5, 80, 30, (78, 78, 78))
    assert near(5, 80, 130, (195, 195, 195))


def test_broken_and_huge_pictures_are_left_out(server: Server) -> None:
    files = {
        "a/broken.jpg": painted(1)[:300],
        "a/text.png": b"this is text",
        "a/bomb.png": bomb(40_000, 40_000),
        "a/wide.png": bomb(8_000, 7_000),
        "a/huge.bmp": b"BM" + bytes(20_000_001),
        "a/empty.gif": b"",
        "b/vector.svg": b"<svg/>",
    }
    answer = sheet_of(server, "none", files)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert "none that can be shown" in answer.json["detail"]
    assert picture(sheet_of(server, "one", {**files, "a/z.jpg": painted(1)})).size == (CELL, CELL)


def test_a_dataset_without_pictures_has_no_sheet(server: Server) -> None:
    server.create("empty")
    assert server.ask("GET", "/datasets/empty/sheet").status == 404
    assert server.ask("GET", "/datasets/no-such/sheet").status == 404
    assert sheet_of(server, "texts", {"a.txt": b"a"}).status == 404
    assert server.put("empty", b"a,b", filename="a.csv").status == 200
    assert server.ask("GET", "/datasets/empty/sheet").status == 404
    assert server.put("empty", painted(1), filename="a.JPG").status == 200
    assert picture(server.ask("GET", "/datasets/empty/sheet")).size == (CELL, CELL)
    assert server.ask("GET", "/datasets/empty/sheet?version=1").status == 404


def test_a_sheet_that_has_not_changed_is_not_sent_again(server: Server) -> None:
    first = sheet_of(server, "kept", {"a/1.jpg": painted(1)})
    path = "/datasets/kept/sheet"
    assert server.ask("GET", path).body == first.body
    again = server.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert server.put("kept", tar_of({"a/1.jpg": painted(2)}), kind=TAR).status == 200
    other = server.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert other.status == 200
    assert other.body != first.body
    assert server.ask("GET", f"{path}?version=1").headers["etag"] == first.headers["etag"]


def test_concurrent_requests_each_get_their_own_sheet(server: Server) -> None:
    names = [f"at-once-{number}" for number in range(30)]  # more than are cached
    for number, name in enumerate(names):
        server.create(name)
        assert server.put(name, tar_of({"1.jpg": painted(number)}), kind=TAR).status == 200
    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda name: server.ask("GET", f"/datasets/{name}/sheet"), names * 3))
    assert [answer.status for answer in found] == [200] * 90
    assert len({answer.body for answer in found}) > 20
    assert [one.body for one in found[:30]] == [one.body for one in found[60:]]
