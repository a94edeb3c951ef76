"""The items of a dataset as they are stored in shards; what the processes of an upload do with them."""

import io
import operator
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loader._errors import ShardError
from loader._s3_client import Client, told
from schemas import image_id
from schemas.shards import Shard

_FOLDERS = "torchvision.datasets.folder"
_KEPT = {
    "jpg": ("RGB", "L"),
    "png": ("RGB", "L", "1", "P", "LA", "RGBA", "I", "I;16"),
    "webp": ("RGB", "RGBA"),
}
_CONVERTED = ("1", "L", "P", "CMYK", "YCbCr", "LAB", "HSV", "RGBX")
FORMATS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
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
    """One item as it is stored: where its file is, and what is known of it."""

    label: int
    name: str
    path: str
    extension: str


@dataclass(frozen=True)
class Job:
    """What the processes of an upload know from their start."""

    ds: Any
    client: Client
    bucket: str
    folder: str
    spool: Path
    image_format: str
    quality: int
    dataset: str

    def made(self, number: int) -> Item:
        """One item, encoded into the spool unless it is a file already. Raises `ShardError`."""
        if (file := _file_of(self.ds, number)) is not None:
            return self.item(number, _class_of(file[1], number))
        try:
            found = self.ds[number]
        except Exception as error:  # whatever the user's dataset does
            raise ShardError(f"Wanted item {number} of the dataset. Found: {one_line(error)}") from error
        try:
            image, label = found
        except (TypeError, ValueError):
            raise ShardError(
                f"Wanted item {number} of the dataset as (picture, class number). Found: {type(found).__name__}"
            ) from None
        if not hasattr(image, "convert") or not hasattr(image, "save"):
            raise ShardError(
                f"Wanted a picture of PIL in item {number} of the dataset. Found: {type(image).__name__}. "
                "Leave the dataset's transform out: it is for reading."
            )
        item = self.item(number, _class_of(label, number))
        with open(item.path, "wb") as target:
            target.write(self._encoded(image, number))
        return item

    def item(self, number: int, label: int) -> Item:
        """An item that was made before, by its class number."""
        if (file := _file_of(self.ds, number)) is not None:
            return Item(label, _relative(self.ds, file[0]), file[0], _PICTURES[_suffix(file[0])])
        return Item(label, f"{number:012}", str(self.spool / f"{number:012}"), self.image_format)

    def one(self, item: Item) -> bytes:
        """An item's id, 16 bytes."""
        return image_id(self.dataset, b"", os.fsencode(item.name)).bytes

    def facts(self, item: Item, names: Sequence[str]) -> bytes:
        """What stands in the sample's ``.json``."""
        from formats.facts import facts_text

        name = names[item.label] if item.label < len(names) else None
        return facts_text(self.one(item), item.name, name=name, label=item.label)

    def _encoded(self, image: Any, number: int) -> bytes:
        file = io.BytesIO()
        options = {} if self.image_format == "png" else {"quality": self.quality}
        try:
            has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
            if image.mode not in _KEPT[self.image_format]:
                if image.mode not in _CONVERTED or has_alpha:
                    raise ShardError(
                        f"Wanted item {number} of the dataset as a picture that {self.image_format} holds. Found: "
                        f"mode {image.mode}{' with transparency' if has_alpha else ''}. Take image_format='png', or "
                        "convert it in the dataset."
                    )
                image = image.convert("RGB")
            image.save(file, FORMATS[self.image_format], **options)
        except ShardError:
            raise
        except Exception as error:  # Pillow raises many kinds for what it cannot encode
            raise ShardError(f"Wanted to encode item {number} of the dataset. Found: {one_line(error)}") from error
        return file.getvalue()


_job: Job | None = None


def begin(job: Job) -> None:
    """In a process: know the job from now on."""
    global _job
    _job = job
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    """End this process when the one that began it has gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def measured(numbers: range) -> tuple[bytes, list[int], list[int], str]:
    """In a process: ids (16 bytes each), labels and sizes in a shard of items, which are encoded on the way.

    And what tells their contents from others of the same sizes: a digest, of files as they are of their times.
    """
    from formats.facts import class_text
    from formats.shards import piece_digest, sample_bytes

    assert _job is not None
    ids, labels, sizes, told = [], [], [], []
    names = class_names(_job.ds)
    for number in numbers:
        item = _job.made(number)
        try:
            looks = os.stat(item.path)
            is_ours = item.path.startswith(str(_job.spool))
            told.append(piece_digest(Path(item.path).read_bytes()) if is_ours else str(looks.st_mtime_ns))
        except OSError as error:
            raise ShardError(f"Wanted item {number} of the dataset. Found: {one_line(error)}") from error
        ids.append(_job.one(item))
        labels.append(item.label)
        sizes.append(sample_bytes([looks.st_size, len(class_text(item.label)), len(_job.facts(item, names))]))
    return b"".join(ids), labels, sizes, piece_digest("".join(told).encode())


def written(name: str, first: int, total: int, items: list[tuple[int, int]]) -> Shard:
    """In a process: write the shard of these items, (number, label) each; ``first`` of ``total`` keys is its first."""
    from formats import FormatsError
    from formats.facts import class_text
    from formats.shards import ShardWriter, index_name, keys

    assert _job is not None
    storage, names = _job.client.storage(_job.bucket, _job.folder), class_names(_job.ds)
    try:
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for key, (number, label) in zip(keys(first, len(items), total), items, strict=True):
                item = _job.item(number, label)
                files = {item.extension: Path(item.path).read_bytes(), "cls": class_text(label)}
                writer.add(key, {**files, "json": _job.facts(item, names)})
            shard = writer.end(name)
        storage.write_bytes(index_name(name), writer.index.encode())
    except FormatsError as error:
        raise told(error) from None
    except OSError as error:
        raise ShardError(f"Wanted to write {name} into {storage.address}. Found: {one_line(error)}") from error
    return shard


def class_names(ds: Any) -> list[str]:
    """The names of a dataset's classes, if it tells them."""
    names = getattr(ds, "classes", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else []


def one_line(error: BaseException) -> str:
    """Another's error for the end of a message of ours."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _file_of(ds: Any, number: int) -> tuple[str, Any] | None:
    """The file of an item and its label, where a dataset of files gives them as they are: an ImageFolder's."""
    if any(getattr(ds, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return None
    samples = getattr(ds, "samples", None)
    # Only torchvision's own way to read items is known to give the file's picture.
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
