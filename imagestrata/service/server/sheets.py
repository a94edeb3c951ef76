"""Contact sheets: one JPEG with images of a version, spread over its classes.

An image is shown if its file and its decoder take at most 30 MB, so that the service stays below 100 MB: PNG, BMP and
GIF of up to 7.5 megapixels, TIFF of up to 2.5, WebP of up to 1.5. JPEG are decoded at a fraction of their size: images
with one scan of up to 178 megapixels, progressive ones of up to 10, or 5 without chroma subsampling. Files may have at
most 20 MB.
"""

import asyncio
import io
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest

from fastapi import APIRouter, Request
from PIL import Image, JpegImagePlugin, PngImagePlugin
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from formats.pictures.decoding import eight_bits, orientation_of
from formats.pictures.turning import turned
from formats.tar_index import TarIndex, TarMember
from imagestrata.service.access import READS
from imagestrata.service.conditions import Conditions, etag
from imagestrata.service.errors import NotThereError
from imagestrata.service.server import problems
from imagestrata.service.server.shapes import Label, Name, PictureShape, Prefix, SheetShape, VersionNumber
from imagestrata.service.stores.store import Store
from imagestrata.service.uploads.cards import is_picture
from schemas.datasets import DatasetVersion

JPEG = "image/jpeg"
_MOST, _COLUMNS, _CELL, _GAP = 24, 6, 160, 4
_MOST_TRIED = 4 * _MOST
_MOST_FOLDERS = 2_000
_MOST_BYTES, _MOST_HELD = 20 * 10**6, 30 * 10**6
_HELD_PER_PIXEL = {"WEBP": 20, "TIFF": 12}  # bytes per pixel while they are decoded; 4 for others
_MOST_SECONDS = 15.0  # after that, the sheet has what was decoded
_LOOKED_AT = 200  # files of a folder that are searched for images
_LOOKED_AT_ONCE = 64  # files of a folder, before its subfolders
_KEPT = 16
_BEHIND = "\U0010ffff"  # sorts after all characters of a path
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
_GROUND = (128, 136, 135)  # between the squares: a middle grey

PngImagePlugin.MAX_TEXT_MEMORY = 2 << 20  # of text in a PNG, which may be compressed a thousandfold


@dataclass(frozen=True, slots=True)
class Sheet:
    """A JPEG, and the images in it, row by row."""

    jpeg: bytes
    pictures: tuple[TarMember, ...]


class Sheets:
    """Makes contact sheets, one at a time, and caches the latest ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()  # waiting requests take no thread
        self._kept: OrderedDict[tuple[str, ...], Sheet | None] = OrderedDict()

    async def find(self, name: str, version: DatasetVersion, *, prefix: str, label: str | None) -> Sheet | None:
        """Make the sheet of a version, a folder or a class; None if no image can be shown. Raises `NotThereError`."""
        async with self._turn:
            key = (version.kind, version.sha256, prefix, *([] if label is None else [label]))
            if key not in self._kept:
                self._kept[key] = await run_in_threadpool(self._made, name, version, prefix, label)
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _made(self, name: str, version: DatasetVersion, prefix: str, label: str | None) -> Sheet | None:
        blob = self._store.blob(name, version)
        try:
            cells: list[Image.Image] = []
            shown: list[TarMember] = []
            until = time.monotonic() + _MOST_SECONDS
            for member in self._chosen(name, version, prefix, label):
                if member.bytes <= _MOST_BYTES and (cell := preview(blob.read(member.start, member.bytes))) is not None:
                    cells.append(cell)
                    shown.append(member)
                if len(cells) == _MOST or time.monotonic() > until:
                    break
        finally:
            blob.close()
        return Sheet(_joined(cells), tuple(shown)) if cells else None

    def _chosen(self, name: str, version: DatasetVersion, prefix: str, label: str | None) -> list[TarMember]:
        if version.kind == "file":
            one = TarMember(version.filename, 0, version.bytes, version.sha256)
            return [one] if is_picture(one.path) and not prefix and label is None else []
        with TarIndex(self._store.index(name, version)) as index:
            if label is None:
                return spread(index, prefix)
            page = index.page(prefix=prefix, label=label, limit=_LOOKED_AT)
            return [file for file in page if is_picture(file.path)][:_MOST_TRIED]


def add_sheet_routes(routes: APIRouter, store: Store) -> None:
    """Add the routes of contact sheets."""
    sheets = Sheets(store)

    @routes.get(
        "/{name}/sheet",
        dependencies=[READS],
        response_class=Response,
        responses=problems.responses(404, 412)
        | {
            200: {"content": {JPEG: {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "Not modified"},
        },
    )
    async def get_sheet(
        request: Request, name: Name, version: VersionNumber = None, prefix: Prefix = "", label: Label = None
    ) -> Response:
        """Get a JPEG with up to 24 images, spread over the classes of the dataset, a folder or a class."""
        found = await run_in_threadpool(store.version, name, version)
        tag = etag(found.sha256, "sheet")
        told = {"etag": tag, "cache-control": "no-cache", "vary": "Authorization", "x-content-type-options": "nosniff"}
        if Conditions.of(request.headers).is_unchanged(tag):
            return Response(status_code=304, headers=told)
        made = await sheets.find(name, found, prefix=prefix, label=label)
        if made is None:
            raise NotThereError(f"Wanted images of {name!r}. Found: none that can be shown in version {found.number}")
        return Response(made.jpeg, media_type=JPEG, headers=told)

    @routes.get("/{name}/sheet/pictures", dependencies=[READS], responses=problems.responses(404))
    async def list_pictures(
        name: Name, version: VersionNumber = None, prefix: Prefix = "", label: Label = None
    ) -> SheetShape:
        """List the images of a sheet, row by row, with their classes. The list is empty without a sheet."""
        found = await run_in_threadpool(store.version, name, version)
        made = await sheets.find(name, found, prefix=prefix, label=label)
        shown = () if made is None else made.pictures
        pictures = [PictureShape(path=one.path, bytes=one.bytes, label=_label(one.path)) for one in shown]
        return SheetShape(columns=_columns(len(pictures)), cell=_CELL, gap=_GAP, pictures=pictures)


def _label(path: str) -> str | None:
    return path.rpartition("/")[0].rpartition("/")[2] or None


def spread(index: TarIndex, prefix: str = "") -> list[TarMember]:
    """Yield images to try: the first of each folder, then the second of each, and so on."""
    runs = list(_runs(index, prefix))
    step = max(1.0, len(runs) / _MOST)
    shown = [runs[int(number * step)] for number in range(min(_MOST, len(runs)))]
    rounds = zip_longest(*(_pictures(index, after, prefix) for after in shown))
    return [member for member in chain.from_iterable(rounds) if member is not None][:_MOST_TRIED]


def _runs(index: TarIndex, prefix: str) -> Iterator[str]:
    """Find runs of files in the same folder, and yield the path before each run. A run that fits into one page of the
    index is left out if it has no image. A longer run skips the rest of its folder; files at the top are never skipped.
    """
    after = ""
    for _ in range(_MOST_FOLDERS):
        page = index.page(after=after, prefix=prefix, limit=_LOOKED_AT_ONCE)
        if not page:
            return
        run = _first_run(page)
        is_whole = len(run) < len(page)
        if not is_whole or any(is_picture(file.path) for file in run):
            yield after
        folder = _folder(run[-1])
        after = run[-1].path if is_whole or not folder else f"{folder}/{_BEHIND}"


def _pictures(index: TarIndex, after: str, prefix: str) -> list[TarMember]:
    """The first images of a run."""
    page = index.page(after=after, prefix=prefix, limit=_LOOKED_AT)
    return [file for file in _first_run(page) if is_picture(file.path)]


def _first_run(page: list[TarMember]) -> list[TarMember]:
    return list(takewhile(lambda file: _folder(file) == _folder(page[0]), page))


def _folder(file: TarMember) -> str:
    return file.path.rpartition("/")[0]


def preview(data: bytes) -> Image.Image | None:
    """Decode an image as a square; None if it is too large or not an image."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            held = len(data) + _coefficients(opened, data)
            opened.draft("RGB", (2 * _CELL, 2 * _CELL))
            if held + opened.width * opened.height * _HELD_PER_PIXEL.get(opened.format or "", 4) > _MOST_HELD:
                return None
            image = turned(eight_bits(_square(opened), file=opened), orientation_of(opened))
        is_small = image.width < _CELL // 2
        return image.resize((_CELL, _CELL), Image.Resampling.NEAREST if is_small else Image.Resampling.LANCZOS)
    except Exception:  # decoders raise many errors for damaged files
        return None


def _coefficients(image: Image.Image, data: bytes) -> int:
    """The bytes that the decoder of a JPEG holds at full size; 0 if one scan has all components."""
    if not isinstance(image, JpegImagePlugin.JpegImageFile):
        return 0
    if "progressive" not in image.info and _layers_of_first_scan(data) == image.layers:
        return 0
    fine = max(high for _, high, _, _ in image.layer) * max(wide for _, _, wide, _ in image.layer)
    samples = sum(high * wide for _, high, wide, _ in image.layer) / fine
    return int(2 * samples * image.width * image.height)


def _layers_of_first_scan(data: bytes) -> int:
    offset = 2
    while data[offset : offset + 2] != b"\xff\xda":
        if data[offset] != 0xFF:
            raise ValueError("Wanted a marker")
        offset += 1 if data[offset + 1] == 0xFF else 2 + int.from_bytes(data[offset + 2 : offset + 4])
    return data[offset + 4]


def _square(image: Image.Image) -> Image.Image:
    """Crop the middle square of an image and scale it down, without a copy at full size."""
    image.load()  # rotates TIFF itself
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    is_copied = image.mode in ("LA", "RGBA")  # all other decoders ignore it
    how = Image.Resampling.NEAREST if is_copied else Image.Resampling.BOX
    width = min(side, 3 * _CELL)
    return image.resize((width, width), how, (left, top, left + side, top + side))


def _columns(count: int) -> int:
    """The number of squares in a row, so that rows are as even as possible."""
    return -(-count // -(-count // _COLUMNS)) if count else 0


def _joined(cells: list[Image.Image]) -> bytes:
    """Join squares to rows, as JPEG. The last row may be shorter."""
    columns = _columns(len(cells))
    rows = -(-len(cells) // columns)
    pitch = _CELL + _GAP
    sheet = Image.new("RGB", (columns * pitch - _GAP, rows * pitch - _GAP), _GROUND)
    for number, cell in enumerate(cells):
        sheet.paste(cell, (number % columns * pitch, number // columns * pitch))
    made = io.BytesIO()
    sheet.save(made, "JPEG", quality=85)
    return made.getvalue()
