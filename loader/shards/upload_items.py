"""The items of a dataset in the form of shards, and the work of an upload's processes."""

import operator
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from formats import FormatsError
from formats.shards.layout import ShardWriter, index_name, keys, piece_digest, sample_bytes
from formats.shards.sample_metadata import class_text, facts_text
from loader.errors import ShardError
from loader.s3.client import Client, told
from loader.shards.upload_pictures import encoded, one_line, picture_of
from schemas import image_id
from schemas.shards import Shard

_FOLDERS = "torchvision.datasets.folder"
_PICTURES = {
    ".jpg": "jpg",
    ".jpeg": "jpg",
    ".png": "png",
    ".webp": "webp",
    ".bmp": "bmp",
    ".tif": "tif",
    ".tiff": "tif",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One item as it is stored: its file, class number, name and extension."""

    label: int
    name: str
    path: str
    extension: str


@dataclass(frozen=True)
class Job:
    """The settings of an upload's processes; ``ds`` is None if its items are sent to them."""

    ds: Any
    client: Client
    bucket: str
    folder: str
    spool: Path
    image_format: str
    quality: int
    dataset: str
    names: tuple[str, ...] = ()

    def made(self, number: int) -> Item:
        """An item of a dataset with a length, encoded into the spool unless it is a file. Raises `ShardError`."""
        if (file := _file_of(self.ds, number)) is not None:
            return self.item(number, _class_of(file[1], number), _PICTURES[_suffix(file[0])])
        try:
            found = self.ds[number]
        except Exception as error:  # whatever the user's dataset does
            raise ShardError(f"Wanted item {number} of the dataset. Found: {one_line(error)}") from error
        return self.spooled(number, *pair_of(found, number))

    def spooled(self, number: int, picture: Any, label: int) -> Item:
        """One item, encoded into the spool. Raises `ShardError`."""
        extension, data = encoded(picture, number, image_format=self.image_format, quality=self.quality)
        item = self.item(number, label, extension)
        with open(item.path, "wb") as target:
            target.write(data)
        return item

    def item(self, number: int, label: int, extension: str) -> Item:
        """An item that was made before, by its class number and its extension."""
        if (file := _file_of(self.ds, number)) is not None:
            return Item(label, _relative(self.ds, file[0]), file[0], extension)
        return Item(label, f"{number:012}", str(self.spool / f"{number:012}"), extension)

    def one(self, item: Item) -> bytes:
        """An item's id, 16 bytes."""
        return image_id(self.dataset, b"", os.fsencode(item.name)).bytes

    def facts(self, item: Item) -> bytes:
        """The text of the sample's ``.json``."""
        name = self.names[item.label] if item.label < len(self.names) else None
        return facts_text(self.one(item), item.name, name=name, label=item.label)


class Measures(NamedTuple):
    """What is known of some items: ids of 16 bytes, labels, extensions, and sizes in a shard."""

    ids: list[bytes]
    labels: list[int]
    extensions: list[str]
    sizes: list[int]
    # Distinguishes them from others of the same sizes: a digest of encoded images, or of the times of files.
    contents: str


_job: Job | None = None


def know(job: Job | None) -> None:
    """Set the job of this process; None for no job."""
    global _job
    _job = job


def begin(job: Job) -> None:
    """In a new process: set the job, and end when the parent ends."""
    know(job)
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def measured(numbers: range) -> Measures:
    """In a process: what is known of items of a dataset with a length; encodes them."""
    assert _job is not None
    return _measures(map(_job.made, numbers), first=numbers.start)


def measured_items(first: int, items: list[tuple[Any, int]]) -> Measures:
    """In a process: the same for items from `pair_of`; ``first`` is the number of the first one."""
    assert _job is not None
    return _measures((_job.spooled(number, *item) for number, item in enumerate(items, first)), first=first)


def _measures(items: Iterable[Item], *, first: int) -> Measures:
    assert _job is not None
    found, told = Measures([], [], [], [], ""), []
    for number, item in enumerate(items, first):
        try:
            looks = os.stat(item.path)
            is_ours = item.path.startswith(str(_job.spool))
            told.append(piece_digest(Path(item.path).read_bytes()) if is_ours else str(looks.st_mtime_ns))
        except OSError as error:
            raise ShardError(f"Wanted item {number} of the dataset. Found: {one_line(error)}") from error
        found.ids.append(_job.one(item))
        found.labels.append(item.label)
        found.extensions.append(item.extension)
        found.sizes.append(sample_bytes([looks.st_size, len(class_text(item.label)), len(_job.facts(item))]))
    return found._replace(contents=piece_digest("".join(told).encode()))


def written(name: str, first: int, total: int, items: list[tuple[int, int, str]]) -> Shard:
    """In a process: write the shard of these items, (number, label, extension) each, with the keys from ``first`` of
    ``total`` on.
    """
    assert _job is not None
    storage = _job.client.storage(_job.bucket, _job.folder)
    try:
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for key, (number, label, extension) in zip(keys(first, len(items), total), items, strict=True):
                item = _job.item(number, label, extension)
                files = {item.extension: Path(item.path).read_bytes(), "cls": class_text(label)}
                writer.add(key, {**files, "json": _job.facts(item)})
            shard = writer.end(name)
        storage.write_bytes(index_name(name), writer.index.encode(), durable=True)
    except FormatsError as error:
        raise told(error) from None
    except OSError as error:
        raise ShardError(f"Wanted to write {name} into {storage.address}. Found: {one_line(error)}") from error
    return shard


def class_names(ds: Any) -> list[str]:
    """The names of a dataset's classes, if it has them."""
    names = getattr(ds, "classes", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else []


def pair_of(found: Any, number: int) -> tuple[Any, int]:
    """An item of a dataset as an image, as `picture_of` returns it, and a class number. Raises `ShardError`."""
    try:
        if isinstance(found, (str, bytes, dict)):
            raise TypeError
        image, label = found
    except (TypeError, ValueError):
        raise ShardError(
            f"Wanted item {number} of the dataset as (image, class number). Found: {type(found).__name__}"
        ) from None
    return picture_of(image, number), _class_of(label, number)


def _file_of(ds: Any, number: int) -> tuple[str, Any] | None:
    """The file of an item and its label, if a dataset gives files unchanged, as an ImageFolder without transforms
    does.
    """
    if any(getattr(ds, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return None
    samples = getattr(ds, "samples", None)
    # Only torchvision's own reading of items is known to give the image of the file.
    reads = (getattr(type(ds), "__getitem__", None), getattr(ds, "loader", None))
    if not isinstance(samples, list) or any(getattr(one, "__module__", "") != _FOLDERS for one in reads):
        return None
    found = samples[number]
    is_file = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str)
    return (found[0], found[1]) if is_file and _suffix(found[0]) in _PICTURES else None


def _relative(ds: Any, path: str) -> str:
    root = getattr(ds, "root", None)
    return os.path.relpath(path, root) if isinstance(root, (str, os.PathLike)) else path


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _class_of(label: Any, number: int) -> int:
    try:
        if isinstance(label, bool):
            raise TypeError
        found = operator.index(label)
        if not 0 <= found < 1 << 31:
            raise TypeError
    except TypeError:
        raise ShardError(
            f"Wanted a class number, 0 or more, as the label of item {number} of the dataset. Found: {label!r}"
        ) from None
    return found
