"""Masks of photos that their EXIF orientation turns, in folders, tables and shards."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.pictures.plan import Recode
from etl.shards import sharding
from etl.sources.plan import SourcePlan
from tests.support.archives import tar
from tests.support.pictures import exif
from tests.support.shard_checks import checked
from tests.support.shard_jobs import plan as shard_plan
from tests.support.trees import plant

DRAWN = np.arange(192, dtype=np.uint8).reshape(12, 16)
QUARTERS = {"6": 3, "3": 2, "1": 0}
"""How often a photo of this orientation is turned by 90 degrees."""


def _saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def _is_upright(data: bytes, orientation: str) -> bool:
    with Image.open(io.BytesIO(data)) as mask:
        return np.array_equal(np.asarray(mask), np.rot90(DRAWN, QUARTERS[orientation]))


def test_masks_belong_to_photos_as_they_are_decoded_or_their_frame_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    photos = {f"{name}.jpg": _saved(Image.new("RGB", (16, 12)), "JPEG", exif=exif(int(name))) for name in QUARTERS}
    drawn = {f"{name}.png": _saved(Image.fromarray(DRAWN), "PNG") for name in QUARTERS}
    beside: dict[str, Any] = {"label_type": "blob", "masks": str(plant(tmp_path / "masks", drawn))}
    images = plant(tmp_path / "images", photos)
    ingest = IngestPlan(source=SourcePlan(address=str(images), **beside), target=str(tmp_path / "folder"))
    shards = shard_plan(images, tmp_path / "shards", maxsize=60_000, **beside)
    asked = r"^Wanted --mask-frame .* 1 images .* such as 3\.jpg\. Of other masks, .* 1 are stored and 0 upright\. "
    with pytest.raises(SourceError, match=asked):  # only the size of the first shows what it was drawn on
        ingestion.run(spark, plan=ingest)
    with pytest.raises(SourceError, match=asked):
        sharding.run(spark, plan=shards)
    assert not (tmp_path / "folder").exists()
    assert not (tmp_path / "shards").exists()
    recode = Recode(mask_frame="stored")
    ingest, shards = replace(ingest, recode=recode), replace(shards, recode=recode)
    assert ingestion.run(spark, plan=ingest).notes == {"with a mask turned upright": 2}
    assert ingestion.run(spark, plan=replace(ingest, resume=True)).already_there == 3
    assert sharding.run(spark, plan=shards).images == 3
    for one in checked(tmp_path / "shards", maxsize=60_000):
        name = str(one.metadata["path"])[0]
        assert one.data == photos[f"{name}.jpg"]
        assert _is_upright(one.members["seg.png"], name)
        assert _is_upright((tmp_path / "folder" / "masks" / f"{name}.png").read_bytes(), name)


def test_masks_in_webdataset_shards_are_turned_too(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "a.jpg": _saved(Image.new("RGB", (16, 12)), "JPEG", exif=exif(3)),
        "a.seg.png": _saved(Image.fromarray(DRAWN), "PNG"),
    }
    plant(tmp_path / "in", {"s-000000.tar": tar(files)})
    source = SourcePlan(address=str(tmp_path / "in" / "s-{000000..000000}.tar"), label_type="blob")
    plan = IngestPlan(source=source, target=str(tmp_path / "folder"))
    with pytest.raises(SourceError, match=r"^Wanted --mask-frame "):
        ingestion.run(spark, plan=plan)
    ingestion.run(spark, plan=replace(plan, recode=Recode(mask_frame="stored")))
    (mask,) = (tmp_path / "folder" / "masks").rglob("*.png")
    assert _is_upright(mask.read_bytes(), "3")
