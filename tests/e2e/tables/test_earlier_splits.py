"""Splits and shards of tables as they were after an earlier run, and what has changed of splits since."""

import json
import shutil
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import loader
from etl.cassandra.control import Control
from etl.catalog.lineage import Tracer
from etl.deleting import deletion
from etl.deleting.plan import DeletePlan
from etl.errors import TableError
from etl.features import historical_features
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.labels.plan import RelabelPlan
from etl.shards import sharding
from etl.shards.plan import ShardPlan
from etl.sources.plan import SourcePlan
from etl.splits import splitting
from etl.splits.plan import SplitPlan
from etl.splits.report import SplitReport
from etl.tables.earlier import EarlierMetadata
from etl.tables.runs import recorded_runs
from etl.verify import split_changes
from formats import open_split
from imagestrata.cli import main
from jobs import relabel, split
from schemas import TableName, image_id
from schemas.features import ViewName
from tests.support.commands import in_living_session
from tests.support.features import tables_of
from tests.support.trees import picture, plant

FIRST = {"a": "cat", "b": "cat", "c": "dog", "d": "dog", "e": "dog"}


class Table:
    """A table that runs change, and its splits."""

    def __init__(self, spark: SparkSession, control: Control, keyspace: str, folder: Path) -> None:
        self.spark, self.control, self.keyspace, self.folder = spark, control, keyspace, folder
        self.metadata = TableName(keyspace, "metadata")
        self.tree, self.labels = folder / "tree", folder / "labels.csv"

    def ingest(self, labels: dict[str, str], **files: int) -> int:
        plant(self.tree, {f"{name}.png": picture(content) for name, content in files.items()})
        self.labels.write_text("path,label\n" + "".join(f"{name}.png,{label}\n" for name, label in labels.items()))
        source = SourcePlan(address=str(self.tree), labels=str(self.labels))
        ingestion.run(self.spark, plan=IngestPlan(source=source, overwrite=True, **tables_of(self.keyspace)))
        return recorded_runs(self.control, TableName(self.keyspace, "metadata"))[0].sequence

    def split(self, name: str, as_of: str | None, **options: Any) -> SplitReport:
        tables = {} if "metadata_in" in options else tables_of(self.keyspace)
        plan = SplitPlan(**tables, out=str(self.folder / name), ratios=(Fraction(1),), as_of=as_of, **options)
        return splitting.run(self.spark, plan=plan)

    def whole(self, spark: SparkSession, name: str) -> loader.Split:
        """A split of all images, which is registered."""
        plan = SplitPlan(**tables_of(self.keyspace), out=str(self.folder / name), ratios=(Fraction(1),))
        split.run(spark, plan=plan)
        return loader.open_split(self.folder / name, index=0, cache=self.folder / "cache")

    def relabel(self, **labels: str) -> None:
        file = self.folder / "corrections.csv"
        file.write_text("path,label\n" + "".join(f"{name}.png,{label}\n" for name, label in labels.items()))
        relabel.run(self.spark, plan=RelabelPlan(labels=str(file), **tables_of(self.keyspace)))

    def labels_in(self, name: str) -> tuple[dict[str, str], int | None]:
        """The class of each image in a split, and its run."""
        found = open_split(self.folder / name)
        rows = found.rows(0, cache=self.folder / "cache")
        ids = {self.id(one): one for one in "abcdef"}
        names = found.manifest.class_names
        labels = {ids[bytes(image)]: names[label] for image, label in zip(rows.ids, rows.labels, strict=True)}
        return dict(sorted(labels.items())), found.manifest.as_of

    def id(self, name: str) -> bytes:
        return image_id(self.keyspace, b"", f"{name}.png".encode()).bytes

    def changes(self, name: str) -> dict[str, list[str]]:
        found = split_changes.run(self.spark, address=str(self.folder / name))
        ids = {self.id(one).hex(): one for one in "abcdef"}
        listed: dict[str, list[str]] = {}
        for one in found.changes:
            listed.setdefault(one.kind, []).append(ids[(one.id or "").replace("-", "")])
        assert {kind: len(names) for kind, names in listed.items()} == found.counts
        return {kind: sorted(names) for kind, names in listed.items()}


def test_splits_of_an_earlier_run_and_what_changed_since(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    table = Table(spark, control, keyspace, tmp_path)
    metadata = TableName(keyspace, "metadata")
    assert table.ingest(FIRST, a=0, b=1, c=2, d=3, e=4) == 1
    table.split("first", None)
    assert table.ingest(FIRST) == 2  # the same again
    assert control.execute(f"SELECT * FROM {keyspace}.metadata_history") == []
    assert table.changes("first") == {}
    between = datetime.now(UTC).isoformat()
    third = FIRST | {"b": "dog"}
    assert table.ingest(third) == 3
    table.relabel(e="cat")  # run 4
    assert table.ingest(third | {"f": "cat"}, c=9, f=10) == 5
    # as jobs/delete.py removes d, in run 6
    values = (image_id(keyspace, b"", b"d.png"), b"sha256", datetime.now(UTC))
    insert = "(id, until, since, kind, label, sha256, reason, at) VALUES (?, 6, 1, 'deleted', 1, ?, 'consent', ?)"
    control.execute(f"INSERT INTO {keyspace}.metadata_history {insert}", values)
    control.execute(f"DELETE FROM {metadata.quoted} WHERE id = ?", values[:1])

    since = {row.path: row.since for row in control.execute(f"SELECT path, since FROM {metadata.quoted}")}
    assert since == {"a.png": 1, "b.png": 3, "c.png": 5, "e.png": 1, "f.png": 5}
    states = {run.sequence: (run.kind, run.state) for run in recorded_runs(control, metadata)}
    assert states[5] == ("ingest", "finished")

    with pytest.raises(TableError, match=r"Found: 2 images \(1 replaced, 1 removed since\) .*c\.png.*\(removed\)"):
        table.split("refused", "1")
    report = table.split("one", "1", skip_replaced=True)
    assert any("no longer exist: 2 images (1 replaced, 1 removed since)" in line for line in report.warnings)
    assert table.labels_in("one") == ({"a": "cat", "b": "cat", "e": "dog"}, 1)
    table.split("then", between, skip_replaced=True)
    assert table.labels_in("then") == ({"a": "cat", "b": "cat", "e": "dog"}, 2)
    table.split("three", "3", skip_replaced=True)
    assert table.labels_in("three") == ({"a": "cat", "b": "dog", "e": "dog"}, 3)
    table.split("viewed", "5", skip_replaced=True, label_view=ViewName("label"))
    everything = {"a": "cat", "b": "dog", "c": "dog", "e": "cat", "f": "cat"}
    assert table.labels_in("viewed") == (everything, 5)
    with pytest.raises(TableError, match=r"as of run 3\. Found: label@v1, which run 4 added"):
        table.split("late", "3", skip_replaced=True, label_view=ViewName("label", 1))

    # a cache of an earlier run says so, and so do its splits
    table.split("cached", "1", skip_replaced=True, metadata_out=str(tmp_path / "rows"))
    report = table.split("again", None, metadata_in=str(tmp_path / "rows"))
    assert any("as of run 1" in line for line in report.warnings)
    assert table.labels_in("again") == ({"a": "cat", "b": "cat", "e": "dog"}, 1)

    shards = ShardPlan(**tables_of(keyspace), out=str(tmp_path / "shards"), as_of="1", skip_replaced=True)
    assert sharding.run(spark, plan=shards).images == 3
    assert json.loads((tmp_path / "shards" / "shards.json").read_text())["options"]["as-of"] == 1

    wanted = {"deleted": ["d"], "other label": ["b"], "other bytes": ["c"]}
    assert table.changes("first") == wanted
    for unchanged in ("one", "three", "viewed", "again"):
        assert table.changes(unchanged) == {}
    text = str(split_changes.run(spark, address=str(tmp_path / "first")))
    assert "(consent, run 6, " in text
    assert "b.png (dog instead of cat, run 3, " in text

    # a run of an earlier version kept no history
    control.execute(f"UPDATE {keyspace}.ingests SET state = null WHERE table_name = 'metadata' AND sequence = 3")
    with pytest.raises(TableError, match=r"Wanted the history .* since run 1\. Found: run 3 .* Use --as-of 3"):
        table.split("old", "1")
    table.split("newer", "3", skip_replaced=True)
    # a killed run
    update = f"UPDATE {keyspace}.ingests SET state = 'started' WHERE table_name = 'metadata' AND sequence = 5"
    control.execute(update)
    assert any("run 5 (ingest of" in line for line in table.split("killed", "5", skip_replaced=True).warnings)

    # files of a split that were changed
    (file,) = (tmp_path / "one" / "split=0").glob("*.parquet")
    (other,) = (tmp_path / "three" / "split=0").glob("*.parquet")
    file.write_bytes(other.read_bytes())
    damaged = split_changes.run(spark, address=str(tmp_path / "one"))
    assert damaged.counts == {"other files": 1, "other label": 1}


def test_a_correction_belongs_to_the_bytes_that_were_looked_at(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    table, view = Table(spark, control, keyspace, tmp_path), {"label_view": ViewName("label")}
    corrected = {"a": "dog", "b": "dog", "c": "cat", "d": "dog", "e": "dog"}
    table.ingest(FIRST, a=0, b=1, c=2, d=3, e=4)
    table.relabel(a="dog", b="dog", c="cat")  # run 2
    assert table.split("before", None, **view).replaced == 0
    assert table.labels_in("before") == (corrected, None)

    assert table.ingest(FIRST | {"b": "bird"}, a=9) == 3  # a has other bytes, b another class
    newer = table.split("newer", None, **view, metadata_out=str(tmp_path / "rows"))
    assert table.labels_in("newer") == (corrected | {"a": "cat", "b": "bird"}, None)
    told = (
        "2 images of other bytes or another class than label@v1 corrected, or deleted since: the labels are newer ones"
    )
    assert (newer.replaced, any(told in one for one in newer.warnings)) == (2, True)
    kept = str(tmp_path / "kept rows")
    keep = table.split("keep", None, **view, labels_of_replaced="keep", metadata_out=kept)
    # a split of other labels is extended: its images have the labels of the cache
    grown = table.split("grown", None, metadata_in=kept, extend=str(tmp_path / "newer"))
    for name, report in (("keep", keep), ("grown", grown)):
        assert table.labels_in(name) == (corrected, None)
        assert (report.replaced, any("corrections all the same" in one for one in report.warnings)) == (2, True)
        assert open_split(tmp_path / name).manifest.labels_of_replaced == "keep"
    cached = table.split("cached", None, metadata_in=str(tmp_path / "rows"), where="path <> 'a.png'")
    assert cached.replaced == 1
    manifest = open_split(tmp_path / "cached").manifest
    assert (manifest.label_view, manifest.labels_of_replaced, manifest.replaced) == ("label@v1", "newer", 1)
    table.split("then", "2", **view, skip_replaced=True)
    assert table.labels_in("then") == ({name: label for name, label in corrected.items() if name != "a"}, 2)
    assert table.changes("before") == {"other bytes": ["a"], "other label": ["a", "b"]}
    assert [table.changes(name) for name in ("newer", "keep", "grown", "cached", "then")] == [{}] * 5
    details = Tracer(control, keyspace=keyspace).of_image(UUID(bytes=table.id("a")), metadata=table.metadata)
    assert details.subject.details["label@v1 (replaced since)"] == 1

    assert table.ingest(FIRST, a=0) == 4  # as they were when they were corrected
    assert table.split("back", None, **view).replaced == 0
    assert table.labels_in("back") == (corrected, None)
    requests = [(str(UUID(bytes=table.id(name))), run) for name in "abc" for run in (1, 2, 3, 4)]
    at_runs = pd.DataFrame(requests, columns=["id", "sequence"])
    known = historical_features(spark, at_runs, metadata=table.metadata, views=["label"]).collect()
    labels = {(row.id, row.sequence): row.label for row in known}
    assert [labels[one] for one in requests] == [0, 1, 0, 1, 0, 1, 2, 1, 1, 0, 0, 0]

    # an earlier version has not recorded what was corrected: the run since which an image is there decides
    for column in ("sha256_2", "label_2"):
        control.execute(f"ALTER TABLE {keyspace}.metadata_label DROP {column}")
    assert table.split("unrecorded", None, **view).replaced == 2
    assert table.labels_in("unrecorded") == (corrected | {"a": "cat", "b": "cat"}, None)
    table.split("unrecorded then", "2", **view)
    assert table.labels_in("unrecorded then") == (corrected, 2)
    assert table.changes("unrecorded then") == {}

    table.ingest(FIRST, a=30, b=31, c=32, d=33, e=34)
    with pytest.raises(TableError, match=r"as of run 1\. Found: none\. .*5 images \(5 replaced.* to a later run"):
        table.split("none", "1", skip_replaced=True)


def test_a_prune_during_a_split_of_an_earlier_run_is_noticed(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    table = Table(spark, control, keyspace, tmp_path)
    table.ingest(FIRST, a=0, b=1, c=2, d=3, e=4)
    table.ingest(FIRST | {"b": "dog"})
    checked = EarlierMetadata.checked

    def pruned_meanwhile(earlier: EarlierMetadata, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        (table.tree / "e.png").unlink()
        source = SourcePlan(address=str(table.tree), labels=str(table.labels))
        prune = IngestPlan(source=source, prune=True, prune_count=1, **tables_of(keyspace))
        stale = ingestion.run(spark, plan=prune).stale
        assert stale is not None
        assert stale.removed == 1
        return checked(earlier, rows)

    table.labels.write_text("path,label\n" + "".join(f"{name}.png,{FIRST[name]}\n" for name in "abcd"))
    with (
        patch.object(EarlierMetadata, "checked", pruned_meanwhile),
        pytest.raises(TableError, match=r"Found: 1 images that were replaced or removed in the meantime\. Run again"),
    ):
        table.split("late", "1")
    assert not (tmp_path / "late").exists()
    table.split("left", "1", skip_replaced=True)
    assert table.labels_in("left") == ({name: FIRST[name] for name in "abcd"}, 1)


def test_a_model_tells_what_has_changed_of_its_images_since_then(
    spark: SparkSession,
    control: Control,
    keyspace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, model, trained = Table(spark, control, keyspace, tmp_path), tmp_path / "model.pt", tmp_path / "trained"
    where = ["--host", ",".join(control.cluster.hosts), "--port", str(control.cluster.port)]

    def since_then(*options: str) -> str:
        with in_living_session():
            assert main(["lineage", str(model), "--since-then", *options, *where]) == 0
        return capsys.readouterr().out

    def ids(name: str) -> dict[str, Any]:
        return {"images": 1, "first": [str(UUID(bytes=table.id(name)))]}

    nothing: dict[str, Any] = {"images": 0, "first": []}
    table.ingest(FIRST, a=0, b=1, c=2, d=3, e=4)
    of_trained = SplitPlan(**tables_of(keyspace), out=str(trained), ratios=(Fraction(1), Fraction(1)))
    split.run(spark, plan=of_trained)
    parts = [loader.open_split(trained, index=index, cache=tmp_path / "cache") for index in (0, 1)]
    model.write_bytes(b"weights")
    loader.record_model(model, training=parts)
    uses = json.loads(since_then("--json"))["uses"]
    assert [(one["use"], one["images"]) for one in uses] == [("training", len(parts[0])), ("training 2", len(parts[1]))]
    assert all(one["since"] == dict.fromkeys(one["since"], nothing) for one in uses)

    loader.record_model(model, training=table.whole(spark, "all"))
    table.relabel(a="dog", c="dog")  # c has this label already
    table.ingest(FIRST | {"e": "cat"}, b=9)
    delete = DeletePlan(**tables_of(keyspace), ids=(UUID(bytes=table.id("d")),), reason="asked to", count=1)
    deletion.run(spark, plan=delete)
    (found,) = json.loads(since_then("--json"))["uses"]
    corrected = sorted(str(UUID(bytes=table.id(name))) for name in "ae")
    wanted = {
        "labels corrected": {"images": 2, "first": corrected},
        "images deleted": ids("d"),
        "bytes replaced": ids("b"),
    }
    assert (found["since"], found["run"], found["unchecked"]) == (wanted, 1, [])
    told = since_then()
    assert f"  images deleted since then: 1: {ids('d')['first'][0]}" in told
    assert told.splitlines()[-1] == "trained before these were corrected: 2 labels of training"

    # another split takes the address; a copy of the first one is elsewhere
    whole = tmp_path / "all"
    shutil.copytree(whole, tmp_path / "moved")
    split.run(spark, plan=SplitPlan(**tables_of(keyspace), out=str(whole), overwrite=True))
    assert json.loads(since_then("--json"))["not_known"][0].endswith(
        f"{whole} is another split now. If you have a copy of it, run: imagestrata registry add FOLDER"
    )
    assert main(["lineage", str(model), *where]) == 0
    assert f"  split {whole}@v1: training: split 0" in capsys.readouterr().out
    assert main(["registry", "add", str(tmp_path / "moved"), *where]) == 0
    (again,) = json.loads(since_then("--json").splitlines()[-1])["uses"]
    assert (again["split"], again["since"]) == (str(tmp_path / "moved"), wanted)
    assert main(["lineage", str(model), *where]) == 0
    out = capsys.readouterr().out
    assert f"  split {tmp_path / 'moved'}@v1: training: split 0" in out
    assert "not known" not in out
