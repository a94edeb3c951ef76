"""One dataset in several forms: the options on the how-to pages give the same ids."""

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl.sources.listing import list_source
from etl.sources.plan import SourcePlan
from jobs import ingest, shard
from tests.support.archives import tar
from tests.support.trees import plant

_HOW_TO = Path(__file__).parents[4] / "docs" / "how-to"
_PAGES = "".join((_HOW_TO / name).read_text(encoding="utf-8") for name in ("ingest.md", "s3-shards.md"))
_TABLES = "--data-table imagenet.data --metadata-table imagenet.metadata"


def _shown(start: str) -> list[str]:
    """The arguments of the pages' commands that begin like this."""
    return [shlex.split(found)[1:] for found in re.findall(rf"`({re.escape(start)}[^`]*)`", _PAGES)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """ImageNet as distributed and unpacked, in place of the pages' ``/data``."""
    files = {f"n{name}/n{name}_{i}.JPEG": b"x" for name in range(3) for i in range(2)}
    plant(tmp_path / "imagenet", {f"{split}/{name}": b"x" for split in ("train", "val") for name in files})
    inner = {f"n{name}.tar": tar({f"n{name}_{i}.JPEG": b"x" for i in range(2)}) for name in range(3)}
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(tar(inner))
    outer = {f"ILSVRC/Data/CLS-LOC/train/{name}": data for name, data in files.items()}
    (tmp_path / "imagenet_object_localization_patched2019.tar.gz").write_bytes(tar(outer, mode="w:gz"))
    return tmp_path


def _ids(spark: SparkSession, source: SourcePlan | None, dataset: str) -> dict[bytes, str]:
    """The class of each training image by id."""
    assert source is not None
    entries = list_source(spark, source, dataset=dataset).listing.entries
    return {bytes(row.id): row.or_label for row in entries.where("or_split = 'train'").collect()}


def test_a_tar_of_tars_and_its_tree_get_the_same_ids_with_the_options_of_the_pages(
    spark: SparkSession, data: Path
) -> None:
    found = {}
    for start in ("/data/imagenet ", "/data/ILSVRC2012_img_train.tar", "/data/imagenet_object_localization"):
        for job, parse in (("ingest.py", ingest.parse_args), ("shard.py", shard.parse_args)):
            for arguments in _shown(f"{job} {start}"):
                if "--split" in arguments:
                    continue
                there = [one.replace("/data/", f"{data}/", 1) for one in arguments]
                plan, _ = parse([*there, *(_TABLES.split() if job == "ingest.py" else ["--dataset", "imagenet"])])
                found[job, *arguments] = _ids(spark, plan.source, plan.dataset)
    assert {(job, source) for job, source, *_ in found} >= {
        ("ingest.py", "/data/imagenet"),
        ("ingest.py", "/data/ILSVRC2012_img_train.tar"),
        ("ingest.py", "/data/imagenet_object_localization_patched2019.tar.gz"),
        ("shard.py", "/data/imagenet"),
        ("shard.py", "/data/ILSVRC2012_img_train.tar"),
    }
    first = found.pop(next(iter(found)))
    assert len(first) == 6
    assert {command: ids for command, ids in found.items() if ids != first} == {}
