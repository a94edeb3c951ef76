"""After delete.py, nothing of an image is left in tables and files but what this test lists, also after kills."""

import hashlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import loader
from etl.cassandra.control import Control
from etl.catalog.events import SETTING
from etl.catalog.products import product_at, register_product
from etl.deleting.holders import OUTSIDE
from etl.errors import EtlError
from etl.labels import relabelling
from formats import open_split
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import delete, featurize, ingest, relabel, shard, split
from schemas import image_id
from tests.support import traces
from tests.support.commands import in_living_session
from tests.support.features import FUNCTIONS
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.traces import Found, Traces
from tests.support.trees import plant

NAMES = [f"people/{number}.png" for number in range(8)]
FORGOTTEN = "people/annabel-lee.png"
LABEL, GROUP = "the-label-to-forget", "the-group-to-forget"
FIRST, SECOND = texture(100, width=33), texture(101, width=33)
"""Their width is odd, so that `feature_functions.fussy` fails on them."""


LEFT_IN_TABLES = {
    ("data.id", "id"): "one read tells a deleted image from a lost one",
    ("metadata_history.id", "id"): "the record of the deletion: an ingest leaves the image out by it",
    (
        "metadata_history.sha256",
        "sha256",
    ): "whether an image that is restored has the same bytes, for splits as of then",
    ("metadata_history.or_label", "label"): "the class that an image had, if it is restored, for splits as of then",
    ("classes.name", "label"): "the classes of a dataset: numbers are never given to other names",
}
"""What docs/how-to/delete.md says is left in tables, and why."""
LEFT_IN_FILES = {
    ("split", "id"),
    ("split", "bytes"),  # as a feature, in `_features/`
    ("opened", "id"),
    ("offline", "id"),
    ("offline", "bytes"),  # as a feature
    *(("shards", kind) for kind in ("id", "path", "bytes", "label", "group")),
    *(("split-shards", kind) for kind in ("id", "path", "bytes", "label", "group")),
}
"""What stays in copies: delete.py lists them, and says what to do (`holders.OUTSIDE`)."""
NAMES_OF_CLASSES = (".json", ".html")
"""Manifests and reports, which name all classes of the dataset."""
KILLS = (
    "etl.tables.removal append_rows",  # before the record
    "etl.tables.removal remove",  # before the rows
    "etl.deleting.deletion finish_run",
)
KILLED = """
import importlib, os, signal, sys
from jobs import delete
setattr(importlib.import_module(sys.argv[1]), sys.argv[2], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
sys.exit(delete.main(sys.argv[3:]))
"""
PATIENCE_S = 240.0


@dataclass(frozen=True, kw_only=True)
class World:
    """Tables with an image to forget, and everything that can be made from them."""

    spark: SparkSession
    control: Control
    keyspace: str
    place: Path
    image: uuid.UUID

    @property
    def tables(self) -> list[str]:
        """The tables, as options."""
        return ["-d", f"{self.keyspace}.data", "-m", f"{self.keyspace}.metadata"]

    @property
    def made(self) -> Path:
        """The folder of everything that jobs made."""
        return self.place / "made"

    @property
    def traces(self) -> Traces:
        """What identifies the image."""
        both = (FIRST, SECOND)
        return {
            "id": traces.forms(self.image),
            "path": traces.forms("annabel-lee"),
            "sha256": tuple(form for data in both for form in traces.forms(hashlib.sha256(data).digest())),
            "bytes": tuple(form for data in both for form in traces.forms(data[200:232])),
            "label": traces.forms(LABEL),
            "group": traces.forms(GROUP),
        }

    def found(self) -> tuple[Found, Found]:
        """The traces in tables and in files."""
        return traces.in_tables(self.control, self.keyspace, self.traces), traces.in_files(self.made, self.traces)

    def run(self, job: Any, *options: object) -> None:
        """Run a job as a command."""
        with in_living_session():
            assert job.main([*map(str, options)]) == 0


def labels(file: Path, label: str, *, group: str = "", header: str = "path,label,person") -> Path:
    """A label file."""
    rows = [f"{name},{'ab'[number % 2]},group {number % 4}" for number, name in enumerate(NAMES)]
    file.write_text("\n".join([header, *rows, f"{FORGOTTEN},{label},{group}"]) + "\n")
    return file


def build(world: World) -> None:
    """An image with earlier bytes and labels, quarantined files and values; then all that jobs make of tables."""
    place, made, tables = world.place, world.made, world.tables
    made.mkdir()
    world.spark.conf.set(SETTING, f"file:{made}/events.json")
    pictures = {name: texture(number) for number, name in enumerate(NAMES)}
    options = [place / "tree", "--path-column", "path", "--label-column", "label", "--group-column", "person", *tables]
    for data, label in ((FIRST, "a"), (SECOND, "a"), (SECOND, LABEL), (b"damaged", LABEL)):
        plant(place / "tree", {**pictures, FORGOTTEN: data})
        file = labels(place / "labels.csv", label, group=GROUP)
        world.run(ingest, *options, "--labels", file, "--keep-replaced")
    own = ",".join(f"{name}={FUNCTIONS}:{name}" for name in ("signature", "fussy"))
    world.run(featurize, *tables, "--features", f"brightness,{own}")
    world.run(
        featurize,
        *tables,
        "--features",
        f"moments={FUNCTIONS}:moments",
        "--vector-index",
    )
    for label in ("b", "a"):
        world.run(relabel, labels(place / f"other_{label}.csv", label), *tables)
    with pytest.MonkeyPatch.context() as patch, in_living_session():  # it leaves a table of labels that no view has
        patch.setattr(relabelling, "register_view", lambda *_, **__: (_ for _ in ()).throw(EtlError("killed")))
        assert relabel.main([str(place / "other_b.csv"), *tables, "--view", "killed"]) == 1
    features = ["--features", "brightness,moments,signature", "--metadata-ofn", made / "cache"]
    world.run(split, *tables, "-o", made / "split", "-r", "1,1", "--group-column", "group_id", *features)
    world.run(featurize, *tables, "--features", "brightness,signature", "--offline", made / "offline")
    world.run(shard, *tables, "--out", made / "shards")
    opened = open_split(str(made / "split"))
    (index,) = (part.index for part in opened.manifest.splits if opened.find(part.index, world.image.bytes))
    world.run(shard, "--split", made / "split", "--index", index, "--out", made / "split-shards")


def train(world: World, cassandra: Cassandra) -> None:
    """Open the split and read its features, which fills the loader's cache, and record a model."""
    parts = [loader.open_split(world.made / "split", index=index, cache=world.made / "opened") for index in (0, 1)]
    for part in parts:
        where = {"hosts": cassandra.hosts, "port": cassandra.port}
        with loader.CassandraSource(part, batch_size=2, features=["brightness", "moments"], **where) as source:
            assert sum(len(batch.ids) for batch in source.epoch(0)) == len(part.ids)
    (world.made / "model.pt").write_bytes(b"weights")
    loader.record_model(world.made / "model.pt", training=parts[0], validation=parts[1])
    product = product_at(str(world.made / "model.pt"))
    assert product is not None
    register_product(world.control, product)


@pytest.fixture(scope="module")
def world(spark: SparkSession, cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The tables and everything that was made from them, before the image is deleted."""
    keyspace = fresh_name("forget")
    image = image_id(keyspace, b"", FORGOTTEN.encode())
    with Control.from_spark(spark) as control:
        place = tmp_path_factory.mktemp("world")
        made = World(spark=spark, control=control, keyspace=keyspace, place=place, image=image)
        try:
            build(made)
            train(made, cassandra)
            yield made
        finally:
            spark.conf.unset(SETTING)


def killed(world: World, cassandra: Cassandra, before: str, *options: object) -> None:
    """Run delete.py in a process that is killed where it would call this function."""
    conf = f"--conf spark.cassandra.connection.port={cassandra.port} --conf spark.ui.enabled=false pyspark-shell"
    command = [sys.executable, "-c", KILLED, *before.split(), *map(str, options)]
    with (world.place / "killed.log").open("w+b") as log:
        job = subprocess.Popen(
            command, env={**os.environ, "PYSPARK_SUBMIT_ARGS": conf}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = job.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
        log.seek(0)
        assert code == -signal.SIGKILL, log.read().decode()[-4000:]


def test_nothing_of_a_deleted_image_is_left_but_what_is_listed_also_after_kills(
    world: World, cassandra: Cassandra, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, files = world.found()
    assert {kind for _, kind in tables} == {kind for _, kind in files} == world.traces.keys()
    assert {name.partition(".")[0] for name, _ in tables} >= {
        "quarantine",
        "data_history",
        "metadata_killed",
        "metadata_moments_v1_index",
    }
    options = [*world.tables, "--id", world.image, "--reason", "request 17", "--count", "1"]
    world.run(delete, *options, "--plan")
    told = capsys.readouterr().out
    for place, what in OUTSIDE.items():
        assert f"not removed: {place} ({what})" in told
    assert f"{world.made}/shards@v1: may have images" in told
    assert f"{world.made}/split-shards@v1: 1 image" in told
    assert world.found() == (tables, files)

    for before in KILLS:
        killed(world, cassandra, before, *options)
    world.run(delete, *options, "--cache", world.made / "cache")
    tables, files = world.found()
    assert tables == LEFT_IN_TABLES.keys()
    kept = {(place.split("/")[0], kind) for place, kind in files if not place.endswith(NAMES_OF_CLASSES)}
    assert kept == LEFT_IN_FILES
    assert {kind for place, kind in files if place.endswith(NAMES_OF_CLASSES)} == {"label"}
