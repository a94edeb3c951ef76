"""Every kind of source on a real S3 server, and servers that refuse, that miss what is asked for, or that go away."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import mask, tar
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from trees import PlanOf, before_writing, by_name, picture, plan_maker

from devstack.s3 import S3
from etl.cassandra import Control
from etl.errors import SourceError
from formats.s3 import S3Access
from formats.storage import Storage
from jobs import ingest as job
from jobs.command import executor_error
from schemas import image_id

Put = Callable[[Mapping[str, bytes]], str]
"""Puts objects below a prefix of the test's own; returns its address."""

PICTURES = {f"{name}/{i} é.png": picture(i + 9 * ord(name)) for name in "ab" for i in range(3)}


def use(server: S3, monkeypatch: pytest.MonkeyPatch, *, secret: str | None = None) -> None:
    """Name a server and its keys in the environment, as users do."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or server.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)


@pytest.fixture
def put(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Put:
    use(s3, monkeypatch)
    s3.make_bucket("ingest")
    address = f"s3://ingest/{uuid.uuid4()}"
    store = Storage(address, S3Access(s3.endpoint, s3.access_key, s3.secret_key))

    def put(files: Mapping[str, bytes]) -> str:
        for name, data in files.items():
            store.write_bytes(name, data)
        return address

    return put


def test_a_tree(spark: SparkSession, control: Control, plan_of: PlanOf, put: Put) -> None:
    address = put({f"train/{path}": data for path, data in PICTURES.items()})
    plan = plan_of(address, splits=("train",))
    assert job.run(spark, plan=plan).images == 6
    rows = by_name(control, plan)
    assert {name: row["data"] for name, row in rows.items()} == {f"train/{name}": d for name, d in PICTURES.items()}
    assert {row["source"] for row in rows.values()} == {address}
    assert rows["train/a/0 é.png"]["id"] == image_id(plan.dataset, b"train", "a/0 é.png".encode())


@pytest.mark.parametrize("kind", ["tar", "tgz", "tar of tars"])
def test_archives(spark: SparkSession, control: Control, plan_of: PlanOf, put: Put, kind: str) -> None:
    inner = {f"{name}.tar": tar({p[2:]: d for p, d in PICTURES.items() if p[0] == name}) for name in "ab"}
    files = {
        "tar": {"x.tar": tar(PICTURES)},
        "tgz": {"x.tgz": tar(PICTURES, mode="w:gz")},
        "tar of tars": {"x.tar": tar(inner)},
    }[kind]
    plan = plan_of(f"{put(files)}/{next(iter(files))}", splits=(), or_split="train")
    assert job.run(spark, plan=plan).images == 6
    rows = by_name(control, plan)
    assert {name: row["data"] for name, row in rows.items()} == {f"train/{name}": d for name, d in PICTURES.items()}
    assert {row["or_label"] for row in rows.values()} == {"a", "b"}


def test_shards(spark: SparkSession, control: Control, plan_of: PlanOf, put: Put) -> None:
    shards = {f"x-{i:03}.tar": tar({"0.png": picture(i), "0.cls": b"%d" % (7 * i)}) for i in range(2)}
    plan = plan_of(f"{put(shards)}/x-{{000..001}}.tar", splits=())
    assert job.run(spark, plan=plan).images == 2
    assert {name: row["label"] for name, row in by_name(control, plan).items()} == {
        "/x-000/0.png": 0,
        "/x-001/0.png": 7,
    }


def test_a_table_of_bytes(spark: SparkSession, control: Control, plan_of: PlanOf, put: Put, tmp_path: Path) -> None:
    table = pa.table({"image": list(PICTURES.values()), "label": [4, 4, 4, 0, 0, 0]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    plan = plan_of(f"{put({'t.parquet': (tmp_path / 't.parquet').read_bytes()})}/t.parquet", splits=())
    assert job.run(spark, plan=plan).images == 6
    assert [row["data"] for _, row in sorted(by_name(control, plan).items())] == list(PICTURES.values())


def test_a_flat_prefix_with_its_labels_and_masks_there_too(
    spark: SparkSession, control: Control, plan_of: PlanOf, put: Put
) -> None:
    images = {f"images/{i}.png": picture(i) for i in range(3)}
    address = put({**images, **{f"masks/{i}.png": mask(i) for i in range(3)}, "labels.csv": b"path,label\n0.png,cat\n"})
    labelled = plan_of(f"{address}/images", splits=(), labels=f"{address}/labels.csv")
    report = job.run(spark, plan=labelled)
    assert (report.images, report.quarantined_by_reason) == (1, {"no label": 2})
    masked = plan_maker()(f"{address}/images", splits=(), label_type="blob", masks=f"{address}/masks")
    assert job.run(spark, plan=masked).images == 3
    assert {name: row["stored"] for name, row in by_name(control, masked).items()} == {
        f"/{i}.png": mask(i) for i in range(3)
    }


def test_wrong_keys_a_missing_bucket_and_a_server_that_is_down(
    spark: SparkSession, control: Control, plan_of: PlanOf, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket("ingest")

    def said(plan_address: str) -> str:
        plan = plan_of(plan_address, splits=())
        with pytest.raises(SourceError) as told:
            job.run(spark, plan=plan)
        assert control.columns(plan.tables.data) is None  # nothing was written
        (line,) = str(told.value).splitlines()
        return line

    use(s3, monkeypatch, secret="wrong")
    assert f"s3://ingest/set at {s3.endpoint}" in (line := said("s3://ingest/set"))
    assert "refuses the keys" in line
    use(s3, monkeypatch)
    assert "no-such-bucket" in (line := said("s3://no-such-bucket/set"))
    assert s3.endpoint in line
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9" in said("s3://ingest/set")


def test_a_server_that_goes_away_after_the_listing(
    spark: SparkSession, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with S3(tmp_path / "s3") as server:
        use(server, monkeypatch)
        server.make_bucket("ingest")
        store = Storage("s3://ingest/set", S3Access(server.endpoint, server.access_key, server.secret_key))
        for name, data in PICTURES.items():
            store.write_bytes(name, data)
        before_writing(monkeypatch, server.stop)
        with pytest.raises(PySparkException) as told:
            job.run(spark, plan=plan_of("s3://ingest/set", splits=()))
        assert server.endpoint in (executor_error(str(told.value)) or "")
