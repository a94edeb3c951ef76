"""Small data in the forms that the documentation has in `/data`."""

import csv
import io
import json
import random
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

from schemas import Columns
from tests.support.archives import tar
from tests.support.encoding import encoded, npy
from tests.support.pictures import execute, exif, write_table
from tests.support.trees import plant

FLOWERS = ("daisy", "dandelion", "rose", "sunflower", "tulip")
WNIDS = ("n01440764", "n01443537", "n01484850")
_COLOURS = ((200, 60, 50), (60, 190, 70), (60, 80, 210), (210, 200, 60), (170, 80, 190))


def photograph(number: int, kind: int, *, form: str = "JPEG") -> bytes:
    """An image of 72 x 64 pixels with a disc in the colour of its class. Each number gives other bytes."""
    chance = random.Random(number)
    image = Image.new("RGB", (72, 64), tuple(chance.randrange(80, 130) for _ in "rgb"))
    left, top = chance.randrange(2, 20), chance.randrange(2, 16)
    ImageDraw.Draw(image).ellipse((left, top, left + 34, top + 34), fill=_COLOURS[kind % len(_COLOURS)])
    image.putpixel((0, 0), (number % 256, number // 256 % 256, kind))
    return encoded(image, form, quality=92)


def photographs(files: Mapping[str, tuple[int, int]]) -> dict[str, bytes]:
    """Images by path, each made from a number and a class."""
    return {path: photograph(number, kind) for path, (number, kind) in files.items()}


def table(header: list[str], rows: Iterable[Iterable[str]]) -> bytes:
    """A CSV file."""
    file = io.StringIO()
    csv.writer(file).writerows([header, *rows])
    return file.getvalue().encode()


def write_documented_data(root: Path) -> Path:
    """Write all data below a folder; return the folder."""
    flowers = {
        f"{name}/{n:03}.jpg": (5000 + 100 * kind + n, kind) for kind, name in enumerate(FLOWERS) for n in range(40)
    }
    plant(root / "flowers", photographs(flowers))
    _write_imagenet(root)
    _write_scans(root)
    _write_segmentation(root)
    _write_corel(root)
    _write_shards(root)
    _write_parquet(root)
    return root


def _write_imagenet(root: Path) -> None:
    """The same 48 and 12 images as class folders, as a tar of tars, as a flat tar, and in Kaggle's archive."""
    train = photographs(
        {f"{wnid}/{wnid}_{n}.JPEG": (100 * kind + n, kind) for kind, wnid in enumerate(WNIDS) for n in range(16)}
    )
    val = photographs({f"ILSVRC2012_val_{n + 1:08}.JPEG": (1000 + n, n % 3) for n in range(12)})
    classes = {name: WNIDS[n % 3] for n, name in enumerate(val)}
    sides = {f"train/{path}": data for path, data in train.items()}
    sides |= {f"val/{classes[name]}/{name}": data for name, data in val.items()}
    for folder in ("imagenet", "imagenette"):
        plant(root / folder, sides)
    inner: dict[str, dict[str, bytes]] = {f"{wnid}.tar": {} for wnid in WNIDS}
    for path, data in train.items():
        wnid, _, name = path.partition("/")
        inner[f"{wnid}.tar"][name] = data
    large = {f"imagenet21k_resized/imagenet21k_{path}": data for path, data in sides.items()}
    kaggle = {f"ILSVRC/Data/CLS-LOC/train/{path}": data for path, data in train.items()}
    kaggle |= {f"ILSVRC/Data/CLS-LOC/val/{name}": data for name, data in val.items()}
    solution = [(Path(name).stem, f"{wnid} 1 1 9 9") for name, wnid in classes.items()]
    files = {
        "ILSVRC2012_img_train.tar": tar({name: tar(files) for name, files in inner.items()}),
        "ILSVRC2012_img_val.tar": tar(val),
        "imagenet_object_localization_patched2019.tar.gz": tar(kaggle, mode="w:gz"),
        "imagenet21k_resized.tar.gz": tar(large, mode="w:gz"),
        "val_wnids.csv": table(["path", "label"], classes.items()),
        "LOC_val_solution.csv": table(["ImageId", "PredictionString"], solution),
        "ILSVRC2012_validation_ground_truth.txt": "".join(f"{n % 3 + 1}\n" for n in range(12)).encode(),
    }
    plant(root, files)


def _write_scans(root: Path) -> None:
    """60 scans of 15 patients in two hospitals."""
    rows = [
        (f"{n // 4:02}/scan{n:03}.png", ("clear", "opacity")[n % 5 == 0], f"patient{n // 4:02}", f"site{n // 4 % 2}")
        for n in range(60)
    ]
    images = {
        name: photograph(3000 + n, int(finding == "opacity"), form="PNG") for n, (name, finding, *_) in enumerate(rows)
    }
    plant(root / "scans", images)
    plant(root, {"scans.csv": table(["file", "finding", "patient", "site"], rows)})


def _write_segmentation(root: Path) -> None:
    images, masks = {}, {}
    for split, count in (("training", 48), ("validation", 12)):
        for n in range(count):
            kind, name = n % 3, f"{split}/ADE_{split}_{n:08}"
            images[f"{name}.jpg"] = photograph(4000 + n, kind)
            mask = Image.new("L", (72, 64), 0)
            ImageDraw.Draw(mask).ellipse((10, 10, 44, 44), fill=kind + 1)
            masks[f"{name}.png"] = encoded(mask, "PNG")
    name = "training/ADE_training_00000000"
    images[f"{name}.jpg"], masks[f"{name}.png"] = _lying(images[f"{name}.jpg"]), _lying(masks[f"{name}.png"])
    plant(root / "ade" / "images", images)
    plant(root / "ade" / "annotations", masks)


def _lying(data: bytes) -> bytes:
    """A photo as a phone stores it, and a mask that was drawn on these pixels."""
    with Image.open(io.BytesIO(data)) as image:
        form, stored = image.format or "", image.transpose(Image.Transpose.ROTATE_90)
        options = {"exif": exif(6)} if form == "JPEG" else {}
        return encoded(stored, form, quality=92, **options)


def _write_corel(root: Path) -> None:
    files: dict[str, bytes] = {}
    for n in range(60):
        labels = np.array([n % 3 == kind or n % 7 == kind for kind in range(5)], np.uint8)
        files |= {f"{n // 10}/{n:04}.jpg": photograph(6000 + n, n % 3), f"{n // 10}/{n:04}.npy": npy(labels)}
    plant(root / "corel", files)


def _write_shards(root: Path) -> None:
    for shard in range(3):
        files: dict[str, bytes] = {}
        for n in range(shard * 20, shard * 20 + 20):
            note = json.dumps({"caption": f"picture {n}"}).encode()
            picture = photograph(7000 + n, n % 4)
            files |= {f"{n:06}.jpg": picture, f"{n:06}.cls": str(n % 4).encode(), f"{n:06}.json": note}
        plant(root / "shards", {f"train-{shard:06}.tar": tar(files)})


def _write_parquet(root: Path) -> None:
    """Tables as `datasets` exports them: an image is a struct of bytes and path, a class is a number."""
    folder = root / "hf" / "data"
    folder.mkdir(parents=True)
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    for file in range(2):
        numbers = range(file * 30, file * 30 + 30)
        images = [{"bytes": photograph(8000 + n, n % 2), "path": None} for n in numbers]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        made = pa.table({"image": pa.array(images, kind), "label": pa.array([n % 2 for n in numbers], pa.int64())})
        made = made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(made, folder / f"train-{file:05}-of-00002.parquet")


def write_plugin_tables(*, port: int) -> None:
    """Create and fill two tables as the examples of DALI's Cassandra plug-in do."""
    ids = [uuid.UUID(int=n) for n in range(60)]
    labels = {one: n % 3 for n, one in enumerate(ids)}
    inserts = [
        "INSERT INTO patches.metadata (patch_id, label, or_label, or_split) "
        f"VALUES ({one}, {label}, '{WNIDS[label]}', 'train')"
        for one, label in labels.items()
    ]
    where: dict[str, Any] = {"hosts": ["127.0.0.1"], "port": port}
    columns = Columns(id="patch_id", label="label", data="data")
    rows = {one: photograph(9000 + n, n % 3) for n, one in enumerate(ids)}
    write_table("patches.data", rows, columns=columns, labels=labels, **where)
    metadata = "patches.metadata (patch_id uuid PRIMARY KEY, label int, or_label text, or_split text)"
    execute(f"CREATE TABLE IF NOT EXISTS {metadata}", *inserts, **where)
