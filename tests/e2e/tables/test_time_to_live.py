"""Images that expire: all of their rows go, splits say when, and a run of the same source cannot forget it."""

import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra.control import Control
from etl.errors import ConflictError, TableError
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.verify.plan import VerifyPlan
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest as job
from jobs import verify as verify_job
from tests.support.features import featurize, tables_of
from tests.support.pictures import texture
from tests.support.trees import plant
from tests.support.waiting import until


def test_images_with_a_time_to_live_expire_with_all_their_rows(
    spark: SparkSession, control: Control, cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    tree = plant(tmp_path / "tree", {f"{label}/{i}.png": texture(0) for label in "ab" for i in range(4)})
    tables = tables_of(keyspace)
    plan = IngestPlan(source=SourcePlan(address=str(tree)), **tables)
    job.run(spark, plan=plan)
    assert job.run(spark, plan=plan).images == 8
    # images that were written long after their ingest began
    now = uuid.uuid1()
    ticks = now.time - 3 * 3600 * 10**7
    begun = uuid.UUID(fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000, *now.fields[3:]))
    assert job.run(spark, plan=replace(plan, ttl=7200, ingest_id=begun)).images == 8
    featurize(spark, keyspace, "brightness")
    values = control.execute(f"SELECT TTL(brightness) AS ttl FROM {keyspace}.metadata_brightness_v2")
    assert len(values) == 8
    assert all(6000 < row.ttl <= 7200 for row in values)
    started = datetime.now().astimezone()
    assert job.run(spark, plan=replace(plan, ttl=3600)).images == 8
    assert not control.execute(f"SELECT id FROM {keyspace}.metadata_brightness_v2")  # they would outlive the images
    metadata = control.execute(f"SELECT TTL(path) AS ttl FROM {keyspace}.metadata")
    data = control.execute(f"SELECT TTL(data) AS ttl FROM {keyspace}.data")
    assert all(3000 < row.ttl <= 3600 for row in [*metadata, *data])
    featurize(spark, keyspace, "brightness")
    values = control.execute(f"SELECT TTL(brightness) AS ttl FROM {keyspace}.metadata_brightness_v2")
    assert len(values) == 8
    assert all(3000 < row.ttl <= 3600 for row in values)

    with pytest.raises(
        ConflictError, match=r"run 5 had --ttl 3600, and this one has none\. Set --ttl 3600, or --ttl n"
    ):
        job.run(spark, plan=plan)
    repair = VerifyPlan(**tables, ingest=replace(plan, create=False, overwrite=True), repair=True)
    with pytest.raises(TableError, match="do not expire, for --repair"):
        verify_job.run(spark, plan=repair)

    folder, cache = str(tmp_path / "split"), str(tmp_path / "cache")
    of_them = {"ratios": (1,), "where": "`imagestrata:expires` IS NOT NULL"}
    report = splitting.run(spark, plan=SplitPlan(**tables, out=folder, metadata_out=cache, **of_them))
    expires = open_split(folder).manifest.expires
    assert expires is not None
    assert abs(datetime.fromisoformat(expires) - started - timedelta(hours=1)) < timedelta(minutes=3)
    assert any(f"8 images will expire (--ttl), the first at {expires}" in warning for warning in report.warnings)
    splitting.run(spark, plan=SplitPlan(metadata_in=cache, out=f"{folder}2", **of_them))
    assert open_split(f"{folder}2").manifest.expires == expires
    splitting.run(spark, plan=SplitPlan(**tables, as_of="5", out=f"{folder}3", **of_them))
    assert open_split(f"{folder}3").manifest.expires == expires

    job.run(spark, plan=replace(plan, ttl=1))
    tables_left = ("metadata", "data", "metadata_brightness_v2")
    until(lambda: not any(control.execute(f"SELECT id FROM {keyspace}.{name}") for name in tables_left))
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 4}
    split = loader.open_split(folder, cache=tmp_path / "opened")
    for options in ({}, {"on_missing": "skip"}):
        with (
            loader.CassandraSource(split, **where, **options) as source,
            pytest.raises(loader.MissingImageError, match=f"expire from {expires}".replace("+", r"\+")) as caught,
        ):
            list(source.epoch(0))
        assert not isinstance(caught.value, loader.DeletedImageError)
