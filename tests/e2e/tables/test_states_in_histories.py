"""The jobs of random histories, run on a real node: tables are as those of the machine that plays many more of them."""

import hashlib
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.deleting import deletion
from etl.deleting.plan import DeletePlan
from etl.errors import EtlError
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.labels import relabelling
from etl.labels.plan import RelabelPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.tables.runs import RecordedRun, expiring, recorded_runs
from etl.verify import verification
from etl.verify.model_changes import SINCE
from etl.verify.plan import VerifyPlan
from etl.verify.split_changes import changes_of
from formats import open_split
from schemas import TableName, image_id
from tests.support.features import featurize, tables_of
from tests.support.histories.generate import history
from tests.support.histories.jobs import World, id_of
from tests.support.histories.machine import (
    PATHS,
    Alone,
    Delete,
    Drop,
    Featurize,
    Ingest,
    Job,
    Machine,
    Operation,
    Put,
    Relabel,
    Repair,
    Together,
    Train,
    Wait,
)
from tests.support.killed_tasks import run_until_write
from tests.support.trees import picture

CONTENTS = "123"
_OF_HISTORY = ("or_label", "kind", "since", "until", "kept")


class RealTables:
    """The tables of a history, and the folders of its sources."""

    def __init__(self, spark: SparkSession, control: Control, *, keyspace: str, folder: Path) -> None:
        self.spark, self.control, self.keyspace, self.folder = spark, control, keyspace, folder
        self.tables = tables_of(keyspace)
        self.metadata: TableName = self.tables["metadata_table"]
        self.ids = {image_id(keyspace, b"", f"{path}.png".encode()): path for path in PATHS}

    def fill(self, sources: dict[str, dict[str, tuple[bytes, str]]]) -> None:
        """Write the files and the labels of sources."""
        for source, files in sources.items():
            shutil.rmtree(self.folder / source, ignore_errors=True)
            (self.folder / source).mkdir()
            for path, (content, _) in files.items():
                (self.folder / source / f"{path}.png").write_bytes(picture(int(content)))
            lines = ["path,label", *(f"{path}.png,{name}" for path, (_, name) in files.items())]
            (self.folder / f"{source}.csv").write_text("\n".join(lines) + "\n")

    def run(self, job: Job, *, is_killed: bool = False) -> None:
        """Run a job; one that is refused changes nothing more. Kill it with -9 before the first write of its tasks."""
        if is_killed:
            with patch("etl.workers._run", run_until_write), pytest.raises(Py4JError, match="worker exited unexpected"):
                self.run(job)
            return
        try:
            match job:
                case Ingest():
                    self._ingest(job)
                case Delete(paths):
                    self._delete(paths)
                case Featurize():
                    featurize(self.spark, self.keyspace, "size")
                case Relabel(labels):
                    self._relabel(labels)
                case Repair(source):
                    ingest = None if source is None else self._plan(source)
                    verification.run(self.spark, plan=VerifyPlan(**self.tables, repair=True, ingest=ingest))
        except EtlError as error:
            print("refused:", error)

    def _plan(self, source: str) -> IngestPlan:
        read = SourcePlan(address=str(self.folder / source), labels=str(self.folder / f"{source}.csv"))
        return IngestPlan(source=read, **self.tables)

    def _ingest(self, job: Ingest) -> None:
        names = {"resume": "resume", "overwrite": "overwrite", "prune": "prune", "restore": "restore_deleted"}
        flags: dict[str, Any] = {names[flag]: True for flag in job.flags if flag in names}
        runs = recorded_runs(self.control, self.metadata)
        known = [run for run in runs if run.kind == "ingest"]
        if "keep" in job.flags and not job.ttl and not expiring(runs):  # as in `jobs.ingest` of the machine
            flags["keep_replaced"] = True
        source = job.source
        if job.continues is not None and known:
            again = known[job.continues % len(known)]
            source, flags["ingest_id"] = Path(again.source).name, again.ingest_id
        ingestion.run(self.spark, plan=replace(self._plan(source), ttl=job.ttl, **flags))

    def _relabel(self, labels: Iterable[tuple[str, str]]) -> None:
        file = self.folder / "corrections.csv"
        file.write_text("\n".join(["path,label", *(f"{path}.png,{name}" for path, name in labels)]) + "\n")
        relabelling.run(self.spark, plan=RelabelPlan(**self.tables, labels=str(file), new_classes=True))

    def _delete(self, paths: tuple[str, ...]) -> None:
        ids = tuple(image for image, path in self.ids.items() if path in paths)
        deletion.run(self.spark, plan=DeletePlan(**self.tables, ids=ids, reason="a request"))

    def split(self) -> Path:
        """Make a split of all images."""
        splitting.run(self.spark, plan=SplitPlan(**self.tables, ratios=(1,), out=str(self.folder / "split")))
        return self.folder / "split"

    def changes(self, split: Path) -> dict[str, int]:
        """What `imagestrata lineage CHECKPOINT --since-then` says of a model of this split."""
        found = changes_of(self.spark, open_split(str(split)), has_corrections=True)
        counts = {name: sum(found.counts.get(kind, 0) for kind in kinds) for name, kinds in SINCE.items()}
        return {name: count for name, count in counts.items() if count}

    def state(self) -> dict[str, list[tuple[Any, ...]]]:
        """What the tables hold, with paths and contents for ids and digests."""
        digests = {hashlib.sha256(picture(int(content))).digest(): content for content in CONTENTS}
        return _state(self._rows, paths=self.ids, digests=digests, runs=recorded_runs(self.control, self.metadata))

    def _rows(self, table: str) -> list[dict[str, Any]]:
        name = TableName(self.keyspace, table)
        if self.control.columns(name) is None:
            return []
        return [row._asdict() for row in self.control.execute(f"SELECT * FROM {name.quoted}")]


def _state(
    rows_of: Callable[[str], Iterable[Mapping[str, Any]]],
    *,
    paths: Mapping[uuid.UUID, str],
    digests: Mapping[bytes, str],
    runs: Sequence[RecordedRun],
) -> dict[str, list[tuple[Any, ...]]]:
    """What tables hold: the rows of each, and the runs."""

    def image(row: Mapping[str, Any]) -> tuple[str, str | None]:
        return paths[row["id"]], None if row["sha256"] is None else digests[bytes(row["sha256"])]

    metadata, history = list(rows_of("metadata")), rows_of("metadata_history")
    ingests = {run.ingest_id: run.sequence for run in reversed(runs)}
    values = [row for view in ("size_v1", "f_v1") for row in rows_of(f"metadata_{view}")]
    found = {
        "images": [(*image(row), row["or_label"], row["since"], ingests[row["ingest_id"]]) for row in metadata],
        "data": [(paths[row["id"]], digests.get(_digest(row["data"]))) for row in rows_of("data")],
        "history": [(*image(row), *(row[name] for name in _OF_HISTORY)) for row in history],
        "kept": [(paths[row["id"]], digests[_digest(row["data"])]) for row in rows_of("data_history")],
        "values": [(*image(row), row["sequence"]) for row in values],
        "labels": [(paths[row["id"]], *_corrections(row, digests)) for row in rows_of("metadata_label")],
        "runs": [(run.sequence, run.kind, run.state) for run in runs],
    }
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def _corrections(row: Mapping[str, Any], digests: Mapping[bytes, str]) -> list[tuple[str, Any]]:
    """What versions say of an image: whether there is a label, and the bytes that it is for."""
    return sorted(
        (name, digests[bytes(value)] if isinstance(value, bytes) else name)
        for name, value in row.items()
        if name.startswith(("run_", "sha256_")) and value is not None
    )


def _digest(data: bytes | None) -> bytes:
    return hashlib.sha256(data or b"").digest()


def machine_state(world: World) -> dict[str, list[tuple[Any, ...]]]:
    def rows_of(table: str) -> Iterable[Mapping[str, Any]]:
        return world.store.rows(f"k.{table}") if f"k.{table}" in world.store.tables else ()

    digests = {hashlib.sha256(content.encode()).digest(): content for content in CONTENTS}
    runs = recorded_runs(world.control, world.tables.metadata)
    return _state(rows_of, paths={id_of(path): path for path in PATHS}, digests=digests, runs=runs)


def sequential(number: int) -> list[Operation]:
    """A history without kills, time, groups and vectors, with one job at a time. It begins with an ingest, and ingests
    have images.
    """
    found: list[Operation] = []
    has_tables = False
    sources: dict[str, set[str]] = {"one": set(), "two": set()}
    for operation in history(number):
        match operation:
            case Put(source, path):
                sources[source].add(path)
            case Drop(source, path):
                sources[source].discard(path)
        jobs = [operation.first, operation.second] if isinstance(operation, Together) else [operation]
        for one in jobs:
            if not isinstance(one, Alone):
                found += [] if isinstance(one, Train | Wait) else [one]
                continue
            match one.job:
                case Featurize():
                    one = Alone(Featurize())
                case Ingest(flags=flags):
                    one = Alone(one.job._replace(flags=tuple(flag for flag in flags if flag != "groups")))
            source = getattr(one.job, "source", None)
            has_images = source is None or bool(sources[source])
            if has_images and (has_tables or isinstance(one.job, Ingest)):
                found.append(one._replace(kill=None))
                has_tables = True
    return found


# It has two sources, images that expire, deletions, a repair, and corrected labels. Each job takes some seconds.
RANDOM = 130


@pytest.mark.slow
def test_tables_are_as_those_of_the_machine(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("etl.ingest.stale_rows", "etl.deleting.deletion"):
        monkeypatch.setattr(f"{module}.UNCONFIRMED_SHARE", 1)
    machine, real = Machine(World()), RealTables(spark, control, keyspace=keyspace, folder=tmp_path)
    for operation in sequential(RANDOM):
        machine.play([operation])
        if isinstance(operation, Alone):
            real.fill(machine.world.sources)
            real.run(operation.job)
            assert real.state() == machine_state(machine.world), operation


# Each job with a kill is killed at the first write of its tasks: before that, it has recorded what it will do.
KILLED: list[Operation] = [
    Put("one", "p", "1", "a"),
    Put("one", "q", "1", "a"),
    Alone(Ingest("one")),
    Alone(Featurize()),
    Train(has_view=False),
    Alone(Relabel((("q", "a"),))),
    Alone(Delete(("p",)), kill=3),
    Put("one", "q", "2", "b"),
    Alone(Ingest("one", ("overwrite", "keep"))),
    Alone(Repair(None)),
    Alone(Featurize(), kill=2),
    Alone(Ingest("one", ("restore",)), kill=2),
    Alone(Delete(("p",))),
]


def test_tables_after_kills_and_the_lineage_of_a_model_are_as_those_of_the_machine(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.deleting.deletion.UNCONFIRMED_SHARE", 1)
    machine, real = Machine(World()), RealTables(spark, control, keyspace=keyspace, folder=tmp_path)
    split = None
    for operation in KILLED:
        machine.play([operation])
        if isinstance(operation, Train):
            split = real.split()
        if isinstance(operation, Alone):
            real.fill(machine.world.sources)
            real.run(operation.job, is_killed=operation.kill is not None)
            assert real.state() == machine_state(machine.world), operation
        if isinstance(operation, Alone) and isinstance(operation.job, Delete) and split is not None:
            kinds = machine.world.read().changes(machine.trained[0][0]).values()
            assert real.changes(split) == Counter(kind for of_image in kinds for kind in of_image), operation
