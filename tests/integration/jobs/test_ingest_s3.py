"""Ingests from a real S3 server, and from servers that refuse or lack what is requested."""

from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import SourceError
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from jobs import ingest as job
from schemas import image_id
from tests.support.archives import mask, tar
from tests.support.s3_access import use
from tests.support.trees import PlanOf, by_name, picture, quarantine

Put = Callable[[Mapping[str, bytes]], str]
"""Uploads objects below a separate prefix for each test; returns its address."""


@pytest.fixture
def put(s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch) -> Put:
    use(s3, monkeypatch)
    s3.make_bucket(keyspace)
    address = f"s3://{keyspace}/some/where"
    store = Storage(address, S3Access(s3.endpoint, s3.access_key, s3.secret_key))

    def put(files: Mapping[str, bytes]) -> str:
        for name, data in files.items():
            store.write_bytes(name, data)
        return address

    return put


def test_a_flat_prefix_is_ingested_with_a_label_file(
    spark: SparkSession, control: Control, plan_of: PlanOf, put: Put
) -> None:
    images = {f"images/{name} é.png": picture(i) for i, name in enumerate("abcd")}
    labels = ["file,class,patient", "a é.png,cat,p1", "b é.png,ant,p1", "c é.png,ant,", "c é.png,bee,", "z.png,cat,p9"]
    address = put({**images, "labels.csv": "\n".join(labels).encode()})
    columns = {"path_column": "file", "label_column": "class", "group_column": "patient"}
    plan = plan_of(f"{address}/images", splits=(), labels=f"{address}/labels.csv", **columns)
    report = job.run(spark, plan=plan)
    rows = by_name(control, plan)
    found = {name: (row["label"], row["or_label"], row["group_id"], row["data"]) for name, row in rows.items()}
    assert found == {
        "/a é.png": (1, "cat", "p1", images["images/a é.png"]),
        "/b é.png": (0, "ant", "p1", images["images/b é.png"]),
    }
    assert {row["source"] for row in rows.values()} == {f"{address}/images"}
    assert rows["/a é.png"]["id"] == image_id(plan.dataset, b"", "a é.png".encode())
    assert quarantine(control, report) == {
        "c é.png": ("list", "two labels: ant and bee in labels.csv"),
        "d é.png": ("list", "no label: not in labels.csv"),
    }
    assert report.unmatched == ["1 rows of labels.csv match no image: z.png"]


def test_images_are_ingested_with_masks_from_another_prefix(
    spark: SparkSession, control: Control, plan_of: PlanOf, put: Put
) -> None:
    images = {f"images/training/{i}.jpg": picture(i, kind="JPEG") for i in range(4)}
    masks = {f"masks/training/{i}.png": mask(i) for i in (0, 1, 7)}
    address = put({**images, **masks, "masks/training/3.png": mask(3, size=(9, 9))})
    plan = plan_of(f"{address}/images", splits=("training",), label_type="blob", masks=f"{address}/masks")
    report = job.run(spark, plan=plan)
    rows = by_name(control, plan)
    assert {name: row["stored"] for name, row in rows.items()} == {
        "training/0.jpg": masks["masks/training/0.png"],
        "training/1.jpg": masks["masks/training/1.png"],
    }
    assert {row["label"] for row in rows.values()} == {None}
    assert quarantine(control, report) == {
        "training/2.jpg": ("list", "no mask: no file of the same name"),
        "training/3.jpg": ("read", "mask of another size: 9x9 instead of 16x12"),
    }
    assert report.unmatched == ["1 masks match no image: training/7.png"]


def test_a_compressed_tar_is_ingested_as_one_stream(
    spark: SparkSession, control: Control, plan_of: PlanOf, put: Put
) -> None:
    files = {f"{split}/{name}/{i} é.png": picture(i) for split in ("train", "val") for name in "ab" for i in range(3)}
    address = put({"all.tgz": tar({**files, "train/../x.png": picture(9), "readme": b"x"}, mode="w:gz")})
    plan = plan_of(f"{address}/all.tgz")
    report = job.run(spark, plan=plan)
    assert report.images_by_split == {"train": 6, "val": 6}
    assert {name: row["data"] for name, row in by_name(control, plan).items()} == files
    assert report.quarantined_by_reason.keys() <= {"unsafe name"}


def test_wrong_keys_missing_buckets_and_unreachable_servers_are_reported(
    spark: SparkSession, control: Control, plan_of: PlanOf, s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket(keyspace)

    def said(plan_address: str) -> str:
        plan = plan_of(plan_address, splits=())
        with pytest.raises(SourceError) as caught:
            job.run(spark, plan=plan)
        assert control.columns(plan.tables.data) is None  # nothing was written
        (line,) = str(caught.value).splitlines()
        return line

    use(s3, monkeypatch, secret="wrong")
    assert f"s3://{keyspace}/set at {s3.endpoint}" in (line := said(f"s3://{keyspace}/set"))
    assert "the keys are rejected" in line
    use(s3, monkeypatch)
    assert "no-such-bucket" in (line := said("s3://no-such-bucket/set"))
    assert s3.endpoint in line
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9" in said(f"s3://{keyspace}/set")
