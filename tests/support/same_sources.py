"""The pictures, label files and archives of `same_results`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.support.archives import mask, tar
from tests.support.encoding import encoded, npy
from tests.support.trees import plant

CLASSES = {"ant": 24, "bee é": 14, 'c" d,e': 9}
KINDS = {"bmp": "BMP", "jpg": "JPEG", "png": "PNG"}
LABELS = {
    "first.csv": "path,label\nant/1.jpg,bee é\nant/2.png,ant\nval/ant/4.jpg,bee é\n",
    "second.csv": "path,label\nant/1.jpg,ant\nbee é/2.png,cat\n",
    "wrong.csv": "path,label\nant/absent.png,ant\n",
}
FUNCTIONS = '''"""Feature functions of a user."""

import numpy as np


def redness(image: np.ndarray) -> float:
    return float(image[..., 0].mean())


def moments(images: list[np.ndarray]) -> list[np.ndarray]:
    return [np.concatenate([image.mean((0, 1)), image.std((0, 1))]).astype(np.float32) for image in images]


def broken(image: bytes) -> dict[str, int | str]:
    if len(image) % 5 == 1:
        raise ValueError("such a size")
    return {"bytes": len(image), "kind": image[:2].hex()}
'''


def make_sources(work: Path) -> None:
    """Write them all below a folder."""
    _make_trees(work)
    images = {f"{number}.png": _picture(2000 + number) for number in range(16)}
    masks = {name: mask(number, size=_size(number)) for number, name in enumerate(images)}
    arrays = {
        f"{number}.npy": npy(np.array([number % kind == 0 for kind in (2, 3, 5)], np.uint8)) for number in range(16)
    }
    plant(work / "images", images)
    plant(work / "masks", masks)
    plant(work / "multi", images | arrays)
    lines = ["path,label,patient", *(f"{number}.png,{'ab'[number % 3 > 0]},p{number // 3}" for number in range(16))]
    files = {"labels.csv": "\n".join(lines), "same_functions.py": FUNCTIONS, "model.pt": "weights", **LABELS}
    plant(work, {name: text.encode() for name, text in files.items()})
    struct = pa.array([{"bytes": data, "path": name} for name, data in images.items()])
    kinds = [f"kind {number % 3}" for number in range(16)]
    pq.write_table(pa.table({"image": struct, "label": kinds}), work / "images.parquet")


def change_pictures(work: Path) -> None:
    """Change, add and remove files of the tree. Some new ones are no pictures."""
    new = {"train/ant/2.png": 1, "val/ant/8.png": 2, "train/dog/1.png": 3, "train/dog/2.png": 4}
    plant(work / "tree", {path: _picture(7000 + number) for path, number in new.items()})
    plant(work / "tree", {"train/dog/broken.png": b"no picture", "val/ant/empty.jpg": b"", "train/ant/a.txt": b"?"})
    for path in ("train/ant/5.png", "train/ant/7.jpg", "val/bee é/4.jpg"):
        (work / "tree" / path).unlink()


def _make_trees(work: Path) -> None:
    tree: dict[str, bytes] = {}
    flat: dict[str, bytes] = {}
    for order, (name, count) in enumerate(CLASSES.items()):
        for number in range(count):
            suffix = list(KINDS)[number % 3]
            path = f"{('val', 'train')[number % 4 > 0]}/{name}/{number}.{suffix}"
            tree[path] = _picture(100 * order + number, KINDS[suffix])
        flat |= {f"{name}/{number}.png": _picture(1000 + 10 * order + number) for number in range(8)}
    inner = {
        f"{name}.tar": tar({path.partition("/")[2]: data for path, data in flat.items() if path.startswith(name)})
        for name in CLASSES
    }
    plant(work / "tree", tree)
    plant(work / "flat", flat)
    plant(work, {"flat.tar": tar(flat), "outer.tar": tar(inner)})


def _picture(number: int, kind: str = "PNG") -> bytes:
    """A small picture, no two alike."""
    pixels = np.random.default_rng(number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels).resize(_size(number)), kind)


def _size(number: int) -> tuple[int, int]:
    return 14 + number % 8, 12 + number % 5
