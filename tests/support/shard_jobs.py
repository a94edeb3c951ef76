"""Runs jobs that make shards of a small tree, and returns their errors."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import etl.shards.sharding as job
from etl.errors import EtlError
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from jobs.messages import executor_error
from tests.support.pictures import texture
from tests.support.trees import plant

MAXSIZE = 1_000_000
"""For the plans here: five of the images here."""
CLASSES = ("ant", "bee é", 'c" d,e')
PICTURES = {
    f"{name}/{number} ü.png": texture(100 * rank + number, width=20 + number, height=24 + rank)
    for rank, name in enumerate(CLASSES)
    for number in range(14)
}
"""Small images by path, in folders of these classes."""
_OF_SOURCE = ("layout", "label_type", "masks", "arrays", "read")


def twenty_pictures(root: Path) -> Path:
    """Class folders of 20 images of about 190 kB."""
    return plant(root, {f"{'ab'[i % 2]}/{i}.png": texture(i, width=250, height=250) for i in range(20)})


def plan(source: Path | str | None, out: Path | str, **options: Any) -> ShardPlan:
    """A plan of shards of five such images each; options that say how to read the source go there."""
    of_source = {name: options.pop(name) for name in _OF_SOURCE if name in options}
    whole = None if source is None else SourcePlan(address=str(source), **of_source)
    return ShardPlan(source=whole, out=str(out), **{"maxsize": MAXSIZE, **options})


def said(spark: SparkSession, wanted: ShardPlan, kind: type[Exception] = EtlError) -> str:
    """The one-line error of a run that must fail."""
    with pytest.raises((kind, PySparkException)) as raised:
        job.run(spark, plan=wanted)
    message = str(raised.value)
    if not isinstance(raised.value, kind):
        found = executor_error(message)
        assert found is not None, message
        message = found
    (line,) = message.splitlines()
    assert "Wanted" in line
    assert "Found: " in line
    return line
