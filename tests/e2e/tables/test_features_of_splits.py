"""Features beside splits, in the loader, offline and online: the same values everywhere, by image."""

import io
import json
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import loader
from etl.cassandra.control import Control
from etl.cassandra.registry import FEATURE_EXPORT, FEATURE_SERVICE, Entry, entries, register
from etl.errors import OutputExistsError, TableError
from etl.features import historical_features, online_features
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import SplitManifest, TableName, image_id
from schemas.features import parse_feature
from schemas.offline import OfflineManifest
from tests.support.encoding import encoded
from tests.support.features import FUNCTIONS, featurize, ingest, tables_of
from tests.support.pictures import texture
from tests.support.trees import picture, plant

SEEDS = range(12)
VIEWS = ("sharpness", "size", "entropy", "moments", "about", "kinds", "raises")
VERSIONS = {"sharpness": 2, "entropy": 2}
FIELDS = ("sharpness", "size_width", "entropy", "moments", "about_bytes", "kinds_flag", "kinds_ratio")


def test_features_of_a_split_reach_the_loader(
    spark: SparkSession, control: Control, cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    ingest(spark, plant(tmp_path / "tree", {f"{seed % 2}/{seed}.png": picture(seed) for seed in SEEDS}), keyspace)
    own = [f"{name}={FUNCTIONS}:{name}" for name in VIEWS[3:]]
    featurize(spark, keyspace, *VIEWS[:3], *own)

    def split(name: str, *views: str, **options: Any) -> Path:
        plan = SplitPlan(
            **tables_of(keyspace), out=str(tmp_path / name), features=tuple(map(parse_feature, views)), **options
        )
        splitting.run(spark, plan=plan)
        return tmp_path / name

    _check_retrieval(spark, control, keyspace, tmp_path / "offline")
    folder = split("split", *VIEWS[:6])
    stored: dict[UUID, dict[str, Any]] = {}
    for view in VIEWS[:6]:
        values = f"{keyspace}.metadata_{view}_v{VERSIONS.get(view, 1)}"
        for row in control.execute(f"SELECT * FROM {values} PER PARTITION LIMIT 1"):
            stored.setdefault(row.id, {}).update(row._asdict())
    where: dict[str, Any] = {"hosts": cassandra.hosts, "port": cassandra.port}
    for index in (0, 1):
        opened = loader.open_split(folder, index=index, cache=tmp_path / "cache")
        with loader.CassandraSource(opened, batch_size=3, features=FIELDS, **where) as source:
            for batch in source.epoch(0):
                for place, one in enumerate(batch.ids):
                    wanted = stored[UUID(bytes=one.tobytes())]
                    for name, values in batch.features.items():
                        value = wanted[name]
                        expected = np.frombuffer(value, "<f4") if isinstance(value, bytes) else value
                        np.testing.assert_array_equal(values[place], values.dtype.type(expected))
        with loader.ImageDataset(opened, features=["moments", "kinds_flag"], **where) as images:
            _, label, moments, flag = images[1]
            wanted = stored[UUID(bytes=opened.ids[1].tobytes())]
            assert (label, moments.numpy().tobytes(), bool(flag)) == (
                images.targets[1], wanted["moments"], wanted["kinds_flag"],
            )  # fmt: skip
        texts = pd.read_parquet(folder / "_features" / "about@v1" / f"split={index}").set_index("position")
        for position, one in enumerate(opened.ids):
            assert texts.loc[position, "about_kind"] == stored[UUID(bytes=one.tobytes())]["about_kind"]
    # A service stands for its views.
    document = json.dumps({"format": 1, "views": ["moments@v1", "size@v1"]})
    register(control, Entry(kind=FEATURE_SERVICE, name="sorting", version=1, document=document), keyspace=keyspace)
    of_service = split("service", "service:sorting", "entropy")
    opened = loader.open_split(of_service, index=0, cache=tmp_path / "cache")
    with loader.CassandraSource(opened, batch_size=12, features=["service:sorting"], **where) as source:
        (batch,) = source.epoch(0)
    assert set(batch.features) == {"moments", "size_width", "size_height"}
    assert batch.features["size_width"].tolist() == [
        stored[UUID(bytes=one.tobytes())]["size_width"] for one in batch.ids
    ]
    assert SplitManifest.from_json((of_service / "_manifest.json").read_text(), place="here").services == {
        "sorting@v1": ("moments@v1", "size@v1")
    }
    of_then = split("then", "service:sorting", as_of="1", skip_replaced=True)  # without the image that was replaced
    manifest = open_split(of_then).manifest
    assert (manifest.as_of, manifest.services) == (1, {"sorting@v1": ("moments@v1", "size@v1")})
    found: dict[UUID, int] = {}
    for index in (0, 1):
        opened_then = loader.open_split(of_then, index=index, cache=tmp_path / "cache")
        sizes = pd.read_parquet(of_then / "_features" / "size@v1" / f"split={index}").set_index("position")
        found |= {UUID(bytes=one.tobytes()): sizes.loc[i, "size_width"] for i, one in enumerate(opened_then.ids)}
    assert len(found) == len(SEEDS) - 1
    assert all(width == stored[one]["size_width"] for one, width in found.items())
    names = [UUID(bytes=opened.ids[0].tobytes())]
    (row,) = online_features(control, names, metadata=TableName(keyspace, "metadata"), views=["service:sorting"])
    assert row["size_width"] == stored[names[0]]["size_width"]
    # Readers of the folder do not see them.
    assert set(pd.read_parquet(folder).columns) == {"id", "label", "position", "xxhash64", "split"}
    assert pyarrow.dataset.dataset(folder, partitioning="hive").count_rows() == len(SEEDS)
    assert all(file.parent.parent == folder for file in folder.glob("*/*.parquet"))

    # Values that an image lacks.
    with pytest.raises(TableError, match=r"Wanted raises \(raises@v1\) .* Found: 1 images .* --where 'raises IS"):
        split("lacking", "raises")
    assert not (tmp_path / "lacking").exists()
    whole = split("whole", "raises", where="raises IS NOT NULL")
    assert sum(len(loader.open_split(whole, index=i, cache=tmp_path / "cache")) for i in (0, 1)) == 11

    # A split that replaces another one replaces its features.
    again = split("split", "entropy", overwrite=True, folds=2, metadata_out=str(tmp_path / "metadata"))
    assert [path.name for path in (again / "_features").iterdir() if any(path.rglob("*.parquet"))] == ["entropy@v2"]
    for index in range(4):
        opened = loader.open_split(again, index=index, cache=tmp_path / "cache")
        with loader.CassandraSource(opened, batch_size=12, features=["entropy"], **where) as source:
            (batch,) = source.epoch(0)
            names = [UUID(bytes=one.tobytes()) for one in batch.ids]
            assert batch.features["entropy"].tolist() == [stored[one]["entropy"] for one in names]


def _check_retrieval(spark: SparkSession, control: Control, keyspace: str, folder: Path) -> None:
    """Offline and online have the same values of all types, byte for byte, and none of other bytes than images have."""
    tree = folder.parent / "tree"
    metadata = TableName(keyspace, "metadata")
    names = [image_id(keyspace, b"", f"{seed % 2}/{seed}.png".encode()) for seed in SEEDS]
    report = featurize(spark, keyspace, *VIEWS, offline=str(folder))
    assert report.stored == {f"{view}@v{VERSIONS.get(view, 1)}": len(SEEDS) for view in VIEWS}
    assert f"moments@v1: 12 rows in {folder}/moments@v1" in str(report)
    (registered,) = entries(control, keyspace=keyspace, kind=FEATURE_EXPORT)
    assert (registered.name, json.loads(registered.document)["features"]) == (str(folder), sorted(report.stored))
    with pytest.raises(OutputExistsError, match="--overwrite"):
        featurize(spark, keyspace, "size", offline=str(folder))
    online = {row.pop("id"): row for row in online_features(control, names, metadata=metadata, views=VIEWS)}
    manifest = OfflineManifest.from_json((folder / "_features.json").read_text(), place="here")
    offline: dict[UUID, dict[str, Any]] = {}
    for view in manifest.views:
        for file in view.files:
            for row in pq.read_table(folder / file.path).to_pylist():
                assert (row.pop("sequence"), row.pop("event_timestamp") < row.pop("created_timestamp")) == (1, True)
                offline.setdefault(UUID(bytes=row.pop("id")), {}).update(row)
    kinds = {name: kind for view in manifest.views for name, kind in view.fields.items()}
    assert {*kinds.values()} == {"float", "int", "float[6]", "bigint", "text", "boolean", "double", "blob"}
    assert online.keys() == offline.keys() == {*names}
    for one, values in online.items():
        assert values.keys() == offline[one].keys() == kinds.keys()
        for name, value in values.items():
            stored = value.tobytes() if isinstance(value, np.ndarray) else value
            assert (stored, type(stored)) == (offline[one][name], type(offline[one][name])), name
    assert [one for one, values in online.items() if values["raises"] is None] == [names[1]]

    # Other bytes: there is no value for them until it is computed. Then the values of before are known as of before.
    plant(tree, {"0/0.png": picture(200)})
    ingest(spark, tree, keyspace)
    unknown, changed, other = uuid4(), names[0], names[2]
    now = online_features(control, [unknown, changed, other], metadata=metadata, views=["size"])
    assert [row["size_width"] for row in now] == [None, None, online[other]["size_width"]]
    everything = featurize(spark, keyspace, *VIEWS, offline=str(folder), overwrite=True)
    assert everything.stored == report.stored
    (after,) = online_features(control, [changed], metadata=metadata, views=["kinds@v1", "moments"])
    assert after["moments"].tobytes() != online[changed]["moments"].tobytes()
    requests = spark.createDataFrame(
        pd.DataFrame({"id": [str(changed).upper(), str(changed), str(other), str(unknown)], "sequence": [2, 3, 3, 3]})
    )
    joined = historical_features(spark, requests, metadata=metadata, views=["moments", "kinds@v1"])
    rows = {(row["id"], row["sequence"]): (row["moments"], row["kinds_ratio"]) for row in joined.collect()}

    def known(values: Any) -> tuple[bytes, float]:
        return values["moments"].tobytes(), values["kinds_ratio"]

    assert rows == {
        (str(changed), 2): known(online[changed]),
        (str(changed), 3): known(after),
        (str(other), 3): known(online[other]),
        (str(unknown), 3): (None, None),
    }
    # Bytes that were never computed have no value, neither that of the bytes before nor that of those after.
    plant(tree, {"0/0.png": picture(201)})
    ingest(spark, tree, keyspace)
    frame = pd.DataFrame({"id": [changed] * 3, "sequence": [1, 3, 5]})
    of_runs = historical_features(spark, frame, metadata=metadata, views=["moments"]).collect()
    wanted = {1: online[changed]["moments"].tobytes(), 3: after["moments"].tobytes(), 5: None}
    assert {row["sequence"]: row["moments"] for row in of_runs} == wanted
    # Then, the values of run 3's bytes were not computed yet.
    runs = control.execute(f"SELECT sequence, clock FROM {keyspace}.ingests WHERE table_name = 'metadata'")
    (clock,) = [run.clock for run in runs if run.sequence == 3]
    at = pd.DataFrame(
        {"id": [changed.hex.upper()], "at": pd.to_datetime([clock], unit="us")}
    )  # in UTC, without saying so
    for name, value in (("bytes", wanted[3]), ("computed", None)):
        (row,) = historical_features(spark, at, metadata=metadata, views=["moments"], known=name).collect()
        assert (row["id"], row["moments"]) == (str(changed), value)
    no_ids = pd.DataFrame({"id": ["0abc", "no id"], "sequence": [1, 1]})
    found = historical_features(spark, no_ids, metadata=metadata, views=["moments"]).collect()
    assert sorted((row["id"], row["moments"]) for row in found) == [("0abc", None), ("no id", None)]
    plant(tree, {"0/0.png": picture(200)})  # for the tests that follow
    ingest(spark, tree, keyspace)
    packed = F.unhex(F.replace("id", F.lit("-"), F.lit("")))
    by_time = requests.select(packed.alias("id"), F.lit(datetime(2000, 1, 1)).alias("at"))
    early = historical_features(spark, by_time, metadata=metadata, views=["size"])
    assert {row["size_width"] for row in early.collect()} == {None}
    for wrong, message in (
        (requests.drop("sequence"), r"Found: id string"),
        (requests.withColumn("at", F.lit("2026-01-01")), r"Found: at string"),
        (requests.withColumn("moments", F.lit(1)), r"without the column moments"),
    ):
        with pytest.raises(TableError, match=message):
            historical_features(spark, wrong, metadata=metadata, views=["moments"])
    with pytest.raises(TableError, match=r"at least one request\. Found: an empty table"):
        historical_features(spark, pd.DataFrame({"id": [], "sequence": []}), metadata=metadata, views=["moments"])
    with pytest.raises(TableError, match=r"at \(timestamp\), for known='computed'"):
        historical_features(spark, requests, metadata=metadata, views=["moments"], known="computed")


def test_images_that_look_alike_stay_together_whenever_they_were_ingested(
    spark: SparkSession, keyspace: str, tmp_path: Path
) -> None:
    def smaller(data: bytes) -> bytes:
        with Image.open(io.BytesIO(data)) as image:
            return encoded(image.resize((128, 128)), "JPEG", quality=95)

    def split(**options: Any) -> list[set[bytes]]:
        plan = SplitPlan(**tables_of(keyspace), out=str(tmp_path / "split"), group_column="phash", overwrite=True)
        splitting.run(spark, plan=replace(plan, ratios=(Fraction(1), Fraction(1)), **options))
        return [
            {bytes(row["id"]) for row in spark.read.parquet(f"{tmp_path}/split/split={i}").collect()} for i in (0, 1)
        ]

    originals = {f"a/{seed}.png": texture(seed) for seed in range(8)}
    ingest(spark, plant(tmp_path / "one", originals), keyspace)
    with pytest.raises(TableError, match="Wanted the column phash in the metadata"):
        split()
    featurize(spark, keyspace, "phash")
    copies = {f"b/{seed}.jpg": smaller(texture(seed)) for seed in range(6)}
    ingest(spark, plant(tmp_path / "two", copies), keyspace)
    with pytest.raises(TableError, match=r"Found: 6 images without phash@v2\. Compute them: .* --features phash@v2"):
        split()
    featurize(spark, keyspace, "phash")
    cache = str(tmp_path / "metadata")
    for options in ({"metadata_out": cache}, {"metadata_in": cache}):
        first, second = split(**options)
        assert len(first | second) == 14
        for seed in range(6):
            pair = {image_id(keyspace, b"", name.encode()).bytes for name in (f"a/{seed}.png", f"b/{seed}.jpg")}
            assert pair <= first or pair <= second
