"""Folders of shards for tests, uploaded from torch datasets, some of them damaged."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from formats.shards.folder import manifest_of, publish
from formats.shards.layout import ShardWriter, index_name, shard_name
from formats.stores.storage import Storage
from loader.shards import Client, Shards, open_shards, upload_cv_dataset
from tests.support.pictures import SHADES, texture

CLASSES = 5


class Pictures:
    """A dataset of noisy images of some kilobytes, whose upper left corner encodes their class."""

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
    """Shards of a few images each."""
    options = {"maxsize": 60_000, "workers": 2, "image_format": "png", "progress": False, **options}
    return upload_cv_dataset(Pictures(count), client=client, bucket=bucket, base_folder=folder, **options)


def filler(folder: Path, sizes: Sequence[int], *, together: int) -> Shards:
    """Shards of ``together`` samples each, in one piece, with this many bytes that are not an image per sample."""
    samples = [{"bin": place.to_bytes(4, "big") * (size // 4 + 1)} for place, size in enumerate(sizes)]
    return shards_of(folder, samples, together=together)


def shards_of(
    folder: Path, samples: Sequence[Mapping[str, bytes]], *, together: int = 100, label_type: str = "none", of: str = ""
) -> Shards:
    """Shards of ``together`` samples each, in one piece, with these files by extension; ``of`` is the fingerprint of
    their split.
    """
    storage, shards = Storage(folder), []
    for number, start in enumerate(range(0, len(samples), together)):
        name = shard_name("filler00", number, 1)
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for place in range(start, min(start + together, len(samples))):
                writer.add(f"{place:09}", samples[place])
            shards.append(writer.end(name))
        storage.write_bytes(index_name(name), writer.index.encode())
    about: dict[str, Any] = {"class_names": {}, "counts": {}, "seed": 0, "source": "", "source_fingerprint": of}
    publish(storage, manifest_of(shards, label_type=label_type, options={}, **about), tag="filler00", before=None)
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
