"""Masks of photos that their EXIF orientation turns, in folders, tables and shards."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import ConflictError, OutputExistsError, SourceError
from etl.ingest import ingestion
from etl.ingest.destination import check_mask_frame, create_tables
from etl.ingest.plan import IngestPlan
from etl.pictures.plan import Recode
from etl.shards import sharding
from etl.sources.plan import SourcePlan
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import take_run
from tests.support.archives import tar
from tests.support.encoding import encoded
from tests.support.pictures import exif
from tests.support.shard_checks import checked
from tests.support.shard_jobs import plan as shard_plan
from tests.support.trees import plant

DRAWN = np.arange(192, dtype=np.uint8).reshape(12, 16)
QUARTERS = {"6": 3, "3": 2, "1": 0}
"""How often a photo of this orientation is turned by 90 degrees."""


def _is_upright(data: bytes, orientation: str) -> bool:
    with Image.open(io.BytesIO(data)) as mask:
        return np.array_equal(np.asarray(mask), np.rot90(DRAWN, QUARTERS[orientation]))


def test_masks_belong_to_photos_as_they_are_decoded_or_their_frame_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    photos = {f"{name}.jpg": encoded(Image.new("RGB", (16, 12)), "JPEG", exif=exif(int(name))) for name in QUARTERS}
    drawn = {f"{name}.bmp": encoded(Image.fromarray(DRAWN), "BMP") for name in QUARTERS}
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
    other = replace(ingest, resume=True, recode=Recode(mask_frame="upright"))
    refused = (
        r"options of the files in .*, which are --mask-frame stored\. Found: --mask-frame upright\. Set .*--overwrite"
    )
    with pytest.raises(OutputExistsError, match=refused):
        ingestion.run(spark, plan=other)
    assert sharding.run(spark, plan=shards).images == 3
    endings = {"6": "png", "3": "png", "1": "bmp"}  # what is turned is a PNG
    assert {path.name for path in (tmp_path / "folder" / "masks").iterdir()} == {f"{a}.{b}" for a, b in endings.items()}
    for one in checked(tmp_path / "shards", maxsize=60_000):
        name = str(one.metadata["path"])[0]
        assert one.data == photos[f"{name}.jpg"]
        assert _is_upright(one.members[f"seg.{endings[name]}"], name)
        assert _is_upright((tmp_path / "folder" / "masks" / f"{name}.{endings[name]}").read_bytes(), name)
    (tmp_path / "masks" / "6.bmp").unlink()
    assert ingestion.run(spark, plan=replace(other, overwrite=True)).images == 2
    assert json.loads((tmp_path / "folder" / ".ingest.json").read_text())["options"] == ["mask-frame=upright"]
    assert not (tmp_path / "folder" / "masks" / "3.png").exists()  # replaced by 3.bmp


def test_masks_in_webdataset_shards_are_turned_too(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "a.jpg": encoded(Image.new("RGB", (16, 12)), "JPEG", exif=exif(3)),
        "a.seg.png": encoded(Image.fromarray(DRAWN), "PNG"),
    }
    plant(tmp_path / "in", {"s-000000.tar": tar(files)})
    source = SourcePlan(address=str(tmp_path / "in" / "s-{000000..000000}.tar"), label_type="blob")
    plan = IngestPlan(source=source, target=str(tmp_path / "folder"))
    with pytest.raises(SourceError, match=r"^Wanted --mask-frame "):
        ingestion.run(spark, plan=plan)
    ingestion.run(spark, plan=replace(plan, recode=Recode(mask_frame="stored")))
    (mask,) = (tmp_path / "folder" / "masks").rglob("*.png")
    assert _is_upright(mask.read_bytes(), "3")


def test_a_source_keeps_its_frame_in_tables_unless_its_images_are_replaced(
    control: Control, plan_of: Callable[..., IngestPlan], tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, splits=(), label_type="blob", masks=str(tmp_path), recode=Recode(mask_frame="stored"))
    create_tables(control, plan=plan)
    for source in (plan.source_name, f"{plan.source.name}2?mask-frame=upright", f"{plan.source.name}?img-size=8"):
        take_run(
            control, table=plan.tables.metadata, kind="ingest", dataset="", source=source, ingest_id=new_ingest_id()
        )
    for frame in ("stored", None):
        check_mask_frame(control, plan=replace(plan, recode=Recode(mask_frame=frame)))
    upright = replace(plan, recode=Recode("PNG", mask_frame="upright"))
    with pytest.raises(
        ConflictError, match=r"^Wanted --mask-frame stored, .*Found: --mask-frame upright\. .*--overwrite"
    ):
        check_mask_frame(control, plan=upright)
