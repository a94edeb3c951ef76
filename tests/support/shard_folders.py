"""Folders of shards for tests: datasets of torch's kind, uploaded; and what is wrong with some of them."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from formats.shard_folder import manifest_of, publish
from formats.shards import ShardWriter, shard_name
from formats.storage import Storage
from loader.shards import Client, Shards, open_shards, upload_cv_dataset
from tests.support.pictures import SHADES, texture

CLASSES = 5


class Pictures:
    """So many noisy pictures of some kilobytes, whose upper left corner tells their class."""

    classes = tuple(f"class {label}" for label in range(CLASSES))

    def __init__(self, count: int, *, side: int = 48) -> None:
        self._count, self._side = count, side

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[Any, int]:
        image = Image.open(io.BytesIO(texture(number, width=self._side, height=self._side)))
        image.paste((SHADES * (number % CLASSES),) * 3, (0, 0, 16, 16))
        return image, number % CLASSES


def upload(client: Client, bucket: str, folder: str, *, count: int = 100, **options: Any) -> Shards:
    """Shards of a few pictures each."""
    options = {"maxsize": 60_000, "workers": 2, "image_format": "png", "progress": False, **options}
    return upload_cv_dataset(Pictures(count), client=client, bucket=bucket, base_folder=folder, **options)


def filler(folder: Path, sizes: Sequence[int], *, together: int) -> Shards:
    """Shards of ``together`` samples each, of one piece, with so many bytes that are no pictures in each sample."""
    storage, shards = Storage(folder), []
    for number, start in enumerate(range(0, len(sizes), together)):
        with storage.create(shard_name("filler00", number, 1)) as write:
            writer = ShardWriter(write)
            for place in range(start, min(start + together, len(sizes))):
                writer.add(f"{place:09}", {"bin": place.to_bytes(4, "big") * (sizes[place] // 4 + 1)})
            shards.append(writer.end(shard_name("filler00", number, 1)))
    facts: dict[str, Any] = {"class_names": {}, "counts": {}, "seed": 0, "source": "", "source_fingerprint": ""}
    publish(storage, manifest_of(shards, label_type="none", options={}, **facts), tag="filler00", before=None)
    return open_shards(str(folder))


def first_shard(root: Path) -> Path:
    """The first shard of a local folder."""
    return min(root.glob("*.tar"))


def samples_in(root: Path) -> dict[str, dict[str, bytes]]:
    """All files of all shards of a local folder, by key and extension, as tar reads them."""
    found: dict[str, dict[str, bytes]] = {}
    for shard in sorted(root.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                key, _, extension = member.name.partition(".")
                file = tar.extractfile(member)
                assert file is not None
                found.setdefault(key, {})[extension] = file.read()
    return found
