"""Contact sheets: one JPEG that shows pictures of a version, spread over its classes.

A picture is shown where its file and what its decoder holds are at most 30 MB, so that the service stays below 100 MB:
PNG, BMP and GIF of up to 7.5 megapixels, TIFF of up to 2.5, WebP of up to 1.5. JPEG are decoded at a fraction of their
size: those of one scan up to 178 megapixels, progressive ones up to 10, or 5 where no layer is coarser than the others.
Files are of at most 20 MB.
"""

import asyncio
import io
import time
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain, zip_longest

from fastapi import APIRouter, Request
from PIL import Image, ImageOps, JpegImagePlugin, PngImagePlugin
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from formats.tar_index import TarIndex, TarMember
from schemas.datasets import DatasetVersion
from service import problems
from service.cards import is_picture
from service.conditions import Conditions, etag
from service.errors import NotThereError
from service.guard import Guard
from service.shapes import Name, VersionNumber
from service.stores import Store

JPEG = "image/jpeg"
_MOST, _COLUMNS, _CELL, _GAP = 24, 6, 160, 4
_MOST_TRIED = 4 * _MOST
_MOST_FOLDERS = 2_000
_MOST_BYTES, _MOST_HELD = 20 * 10**6, 30 * 10**6
_HELD_PER_PIXEL = {"WEBP": 20, "TIFF": 12}  # while they are decoded; 4 for others
_MOST_SECONDS = 15.0  # then it shows what it has
_LOOKED_AT = 200  # files of a folder, among which its pictures are sought
_KEPT = 16
_BEHIND = "\U0010ffff"  # stands behind all that a path can go on with
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
_GROUND = (128, 136, 135)  # between the squares: neither light nor dark

PngImagePlugin.MAX_TEXT_MEMORY = 2 << 20  # of texts in a PNG, which may be packed a thousandfold


class Sheets:
    """Makes sheets of a store's versions, one at a time; the last ones are kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()  # who waits takes none of the threads
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()

    async def sheet(self, name: str, version: DatasetVersion) -> bytes:
        """A version's sheet, as JPEG. Raises `NotThereError` where no picture can be shown."""
        async with self._turn:
            key = f"{version.kind} {version.sha256}"
            if key not in self._kept:
                self._kept[key] = await run_in_threadpool(self._made, name, version)
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            found = self._kept[key]
        if found is None:
            raise NotThereError(f"Wanted pictures of {name!r}. Found: none that can be shown, in {version.number}")
        return found

    def _made(self, name: str, version: DatasetVersion) -> bytes | None:
        blob = self._store.blob(name, version)
        try:
            cells: list[Image.Image] = []
            until = time.monotonic() + _MOST_SECONDS
            for member in self._chosen(name, version):
                if member.bytes <= _MOST_BYTES and (cell := _cell(blob.read(member.start, member.bytes))) is not None:
                    cells.append(cell)
                if len(cells) == _MOST or time.monotonic() > until:
                    break
        finally:
            blob.close()
        return _joined(cells) if cells else None

    def _chosen(self, name: str, version: DatasetVersion) -> list[TarMember]:
        if version.kind == "file":
            one = TarMember(version.filename, 0, version.bytes, version.sha256)
            return [one] if is_picture(one.path) else []
        with TarIndex(self._store.index(name, version)) as index:
            return spread(index)


def add_sheet_routes(routes: APIRouter, store: Store, guard: Guard) -> None:
    """Add the addresses of sheets to those of datasets."""
    sheets = Sheets(store)

    @routes.get(
        "/{name}/sheet",
        dependencies=[guard.reads],
        response_class=Response,
        responses=problems.told(404, 412)
        | {
            200: {"content": {JPEG: {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "Who asks has it already"},
        },
    )
    async def get_sheet(request: Request, name: Name, version: VersionNumber = None) -> Response:
        """One JPEG of up to 24 of a dataset's pictures, spread over its classes."""
        found = await run_in_threadpool(store.version, name, version)
        tag = etag(found.sha256, "sheet")
        told = {"etag": tag, "cache-control": "no-cache", "vary": "Authorization", "x-content-type-options": "nosniff"}
        if Conditions.of(request.headers).is_unchanged(tag):
            return Response(status_code=304, headers=told)
        return Response(await sheets.sheet(name, found), media_type=JPEG, headers=told)


def spread(index: TarIndex) -> list[TarMember]:
    """Pictures to try, best first: the first one of each folder, then the second ones, and so on."""
    folders = list(_folders(index))
    step = max(1.0, len(folders) / _MOST)
    shown = [folders[int(place * step)] for place in range(min(_MOST, len(folders)))]
    rounds = zip_longest(*(_pictures(index, folder) for folder in shown))
    return [member for member in chain.from_iterable(rounds) if member is not None][:_MOST_TRIED]


def _folders(index: TarIndex) -> Iterator[str]:
    """The folders that have files; each is found by one look, however many files it has, except what lies in none."""
    after, is_root_told = "", False
    for _ in range(_MOST_FOLDERS):
        page = index.page(after=after, limit=1)
        if not page:
            return
        folder, slash, _ = page[0].path.rpartition("/")
        if slash or not is_root_told:
            yield folder
        is_root_told = is_root_told or not slash
        after = f"{folder}/{_BEHIND}" if slash else page[0].path


def _pictures(index: TarIndex, folder: str) -> list[TarMember]:
    """A folder's first pictures."""
    page = index.page(after=f"{folder}/" if folder else "", limit=_LOOKED_AT)
    return [file for file in page if file.path.rpartition("/")[0] == folder and is_picture(file.path)]


def _cell(data: bytes) -> Image.Image | None:
    """A picture as a square; None for what is none, or too large."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            held = len(data) + _coefficients(opened, data)
            opened.draft("RGB", (2 * _CELL, 2 * _CELL))
            if held + opened.width * opened.height * _HELD_PER_PIXEL.get(opened.format or "", 4) > _MOST_HELD:
                return None
            square = _square(opened)
        image = _eight_bits(ImageOps.exif_transpose(square)).convert("RGB")
        is_small = image.width < _CELL // 2
        return image.resize((_CELL, _CELL), Image.Resampling.NEAREST if is_small else Image.Resampling.LANCZOS)
    except Exception:  # whatever a decoder raises for bytes that are no picture
        return None


def _coefficients(image: Image.Image, data: bytes) -> int:
    """Bytes of a JPEG that its decoder holds at full size: all of it, unless one scan has all of its layers."""
    if not isinstance(image, JpegImagePlugin.JpegImageFile):
        return 0
    if "progressive" not in image.info and _layers_of_first_scan(data) == image.layers:
        return 0
    fine = max(high for _, high, _, _ in image.layer) * max(wide for _, _, wide, _ in image.layer)
    samples = sum(high * wide for _, high, wide, _ in image.layer) / fine
    return int(2 * samples * image.width * image.height)


def _layers_of_first_scan(data: bytes) -> int:
    place = 2
    while data[place : place + 2] != b"\xff\xda":
        if data[place] != 0xFF:
            raise ValueError("Wanted a marker")
        place += 1 if data[place + 1] == 0xFF else 2 + int.from_bytes(data[place + 2 : place + 4])
    return data[place + 4]


def _square(image: Image.Image) -> Image.Image:
    """The middle of a picture, at most three times as wide as it is shown, without a copy at full size."""
    image.load()  # TIFF are turned by it
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    is_copied = image.mode in ("LA", "RGBA")  # by all but this
    how = Image.Resampling.NEAREST if is_copied else Image.Resampling.BOX
    width = min(side, 3 * _CELL)
    return image.resize((width, width), how, (left, top, left + side, top + side))


def _eight_bits(image: Image.Image) -> Image.Image:
    """Deep greys as 8 bits, from the darkest to the brightest; others as they are."""
    if not image.mode.startswith(("I", "F")):
        return image
    grey = image.convert("F")
    low, high = (float(end) for end in grey.getextrema())  # type: ignore[arg-type]  # of one band: two numbers
    return grey.point(lambda value: value * (255 / (high - low or 1)) - low * 255 / (high - low or 1)).convert("L")


def _joined(cells: list[Image.Image]) -> bytes:
    """Squares in rows, as JPEG; the rows are as even as they can be, the last one may be short."""
    rows = -(-len(cells) // _COLUMNS)
    columns = -(-len(cells) // rows)
    pitch = _CELL + _GAP
    sheet = Image.new("RGB", (columns * pitch - _GAP, rows * pitch - _GAP), _GROUND)
    for place, cell in enumerate(cells):
        sheet.paste(cell, (place % columns * pitch, place // columns * pitch))
    made = io.BytesIO()
    sheet.save(made, "JPEG", quality=85)
    return made.getvalue()
