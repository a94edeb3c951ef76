"""Tables are damaged, verified, alone and against their source, and repaired."""

import hashlib
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.deleting.plan import DeletePlan
from etl.errors import ConflictError, SourceError
from etl.ingest.destination import find_destination
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.image_rows import METADATA_COLUMNS
from etl.sources.plan import SourcePlan
from etl.tables.runs import new_ingest_id
from etl.verify import repair
from etl.verify.plan import VerifyPlan
from formats.checksums import checksum
from jobs import delete as delete_job
from jobs import ingest as ingest_job
from jobs import verify as job
from schemas import TableName, image_id
from tests.support.pictures import texture
from tests.support.trees import picture, plant


def ingest(spark: SparkSession, source: Path, keyspace: str, **options: Any) -> IngestPlan:
    """Ingest a tree with the split folders train and val into tables of this keyspace."""
    tables: dict[str, Any] = {
        name: TableName(keyspace, name.partition("_")[0]) for name in ("data_table", "metadata_table")
    }
    address = SourcePlan(address=str(source), splits=("train", "val"))
    plan = IngestPlan(source=address, **tables, **options)
    ingest_job.run(spark, plan=plan)
    return plan


def verification(plan: IngestPlan, *, source: bool = False, **options: Any) -> VerifyPlan:
    """Verify the ingested tables, and the source if requested."""
    assert plan.data_table is not None
    assert plan.metadata_table is not None
    again = replace(plan, create=False, overwrite=True) if source else None
    tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
    return VerifyPlan(**tables, columns=plan.columns, ingest=again, **options)


NAMES = [f"{split}/{name}/{i}.png" for split in ("train", "val") for name in "ab" for i in range(3)]


def tree(root: Path) -> Path:
    return plant(root, {name: picture(i) for i, name in enumerate(NAMES)})


def ids(keyspace: str) -> dict[str, uuid.UUID]:
    halves = ((name, *name.partition("/")) for name in NAMES)
    return {name: image_id(keyspace, split.encode(), path.encode()) for name, split, _, path in halves}


def everything(control: Control, plan: IngestPlan) -> list[list[tuple[Any, ...]]]:
    """Both tables, without what differs between two runs."""
    metadata = "id, label, or_label, or_split, path, format, width, height, bytes, sha256, xxhash64, group_id, source"
    queries = (f"SELECT id, label, data FROM {plan.data_table}", f"SELECT {metadata} FROM {plan.metadata_table}")
    return [sorted(tuple(row) for row in control.execute(query)) for query in queries]


def damage(control: Control, keyspace: str) -> dict[str, list[str]]:
    """Damage rows in each way; return what a verification must report, in its order."""
    known = ids(keyspace)

    def run(query: str, name: str, *values: Any) -> None:
        control.execute(f"{query} WHERE id = ?", (*values, known[name]))

    run(f"DELETE FROM {keyspace}.data", "train/a/0.png")
    run(f"DELETE data FROM {keyspace}.data", "val/b/2.png")
    run(f"DELETE FROM {keyspace}.metadata", "train/a/1.png")
    run(f"UPDATE {keyspace}.data SET data = ?", "val/a/1.png", b"short")
    right = picture(NAMES.index("val/a/2.png"))
    run(f"UPDATE {keyspace}.data SET data = ?", "val/a/2.png", right[:-1] + b"x")
    size = len(picture(NAMES.index("val/a/1.png")))
    return {
        "missing blob": [f"{known[name]} {name}" for name in ("train/a/0.png", "val/b/2.png")],
        "blob without metadata": [str(known["train/a/1.png"])],
        "wrong size": [f"{known['val/a/1.png']} val/a/1.png (5 bytes instead of {size})"],
        "wrong hash": [f"{known['val/a/2.png']} val/a/2.png"],
    }


def mutate(control: Control, keyspace: str) -> dict[str, list[str]]:
    """Change each column by hand; return what a verification with the source must report, in its order."""
    known = ids(keyspace)
    source = control.execute(f"SELECT source FROM {keyspace}.metadata LIMIT 1")[0].source
    size, digest = len(picture(NAMES.index("train/b/1.png"))), hashlib.sha256(picture(NAMES.index("train/b/1.png")))
    wanted: dict[str, list[str]] = {}

    def change(
        name: str, column: str, value: Any, right: Any, shown: str, *, table: str = "metadata", at: str = ""
    ) -> None:
        control.execute(f"UPDATE {keyspace}.{table} SET {column} = ? WHERE id = ?", (value, known[name]))
        line = f"{known[name]} {at or name} ({column} of {keyspace}.{table}: expected {right}, found {shown})"
        wanted.setdefault(f"wrong {column}", []).append(line)

    change("train/b/0.png", "label", 0, 1, "0")
    change("val/b/1.png", "label", None, 1, "null", table="data")
    change("train/b/1.png", "or_label", "a", "'b'", "'a'")
    change("train/b/2.png", "or_split", None, "'train'", "null", at="b/2.png")
    change("val/a/0.png", "path", "a/9.png", "'a/0.png'", "'a/9.png'", at="val/a/9.png")
    change("train/b/2.png", "source", "by hand", repr(source), "'by hand'", at="b/2.png")
    change("train/b/1.png", "format", "JPEG", "'PNG'", "'JPEG'")
    change("train/b/1.png", "width", None, 16, "null")
    change("train/b/1.png", "height", 7, 12, "7")
    change("train/b/1.png", "bytes", 1, size, "1")
    change("train/b/1.png", "sha256", None, digest.hexdigest(), "null")
    change("train/b/2.png", "xxhash64", 5, checksum(picture(NAMES.index("train/b/2.png"))), "5", at="b/2.png")
    columns = [f"wrong {name}" for name in METADATA_COLUMNS]
    return {kind: wanted[kind] for kind in columns if kind in wanted}


def test_problems_are_listed_and_repaired_from_the_source_or_by_deletion(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    plan = ingest(spark, tree(tmp_path), keyspace)
    known = ids(keyspace)
    control.execute(f"UPDATE {keyspace}.metadata SET group_id = ? WHERE id = ?", ("twins", known["val/a/1.png"]))
    whole = everything(control, plan)
    wrong = damage(control, keyspace)
    for table in ("metadata", "data"):
        control.execute(f"DELETE FROM {keyspace}.{table} WHERE id = ?", (known["val/b/0.png"],))
    before = everything(control, plan)
    report = job.run(spark, plan=verification(plan))
    assert report.examples == wrong
    assert list(report.problems.items()) == [(kind, len(lines)) for kind, lines in wrong.items()]
    assert (report.images, report.blobs, report.left, report.mended) == (10, 10, 5, {})
    assert report.summary() == "2 x missing blob, 1 x blob without metadata, 1 x wrong size, 1 x wrong hash"
    assert everything(control, plan) == before

    mutated, by_hand = mutate(control, keyspace), uuid.UUID(int=7)
    rows = {"data": "(id, label, data) VALUES (?, 0, ?)", "metadata": "(id, label, sha256) VALUES (?, 0, ?)"}
    for table, values in rows.items():
        control.execute(f"INSERT INTO {keyspace}.{table} {values}", (by_hand, hashlib.sha256(b"x").digest()))
    rewritten = job.run(spark, plan=verification(plan, source=True, repair=True))
    missing = [f"{known[name]} {name}" for name in ("train/a/1.png", "val/b/0.png")]
    no_ingest = {"written by no ingest": [f"{by_hand} (ingest_id null)"]}
    assert rewritten.examples == {**wrong, "missing image": missing, **mutated, **no_ingest}
    assert rewritten.sequence == 2
    assert rewritten.summary() == "19 problems were repaired; remaining: 1 x written by no ingest"
    assert "    to remove such an image: delete.py --id\n" in str(rewritten)
    for table in rows:
        control.execute(f"DELETE FROM {keyspace}.{table} WHERE id = ?", (by_hand,))
    assert everything(control, plan) == whole

    damage(control, keyspace)
    deleted = job.run(spark, plan=verification(plan, repair=True))
    assert deleted.problems == report.problems
    assert deleted.mended == {"missing blob": 2, "blob without metadata": 1}
    assert deleted.summary() == "3 problems were repaired; remaining: 1 x wrong size, 1 x wrong hash"
    assert [len(table) for table in everything(control, plan)] == [9, 9]

    # Written by a machine whose clock is an hour ahead: no rewrite is visible before the hour is over.
    ahead = f"UPDATE {keyspace}.data USING TIMESTAMP ? SET data = ? WHERE id = ?"
    control.execute(ahead, (time.time_ns() // 1000 + 3_600_000_000, b"broken", known["val/a/0.png"]))
    tried = job.run(spark, plan=verification(plan, source=True, repair=True))
    assert (tried.left, tried.unchanged, tried.sequence) == (1, 1, 4)
    assert (
        "remaining: 1 x wrong size. 1 images were written or deleted, but are unchanged when read: the tables have"
        in str(tried)
    )


def test_files_lost_or_changed_in_the_source_are_found(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    rejected = {"train/a/bad.png": b"no picture", "train/a/broken.png": b"no picture", "train/a/é\n.png": b""}
    plant(tree(tmp_path / "one"), rejected)
    with open(os.fsencode(tmp_path / "one/train/a") + b"/caf\xe9\xff.png", "wb") as file:
        file.write(b"no picture")
    plan = ingest(spark, tmp_path / "one", keyspace)
    known = ids(keyspace)
    foreign = known["train/b/0.png"]
    other = new_ingest_id()
    columns = "table_name, sequence, clock, kind, ingest_id, source"
    run = f"INSERT INTO {keyspace}.ingests ({columns}) VALUES ('metadata', 0, 1, 'ingest', ?, 'file:///other')"
    control.execute(run, (other,))
    ours = f"UPDATE {keyspace}.metadata SET source = ?, ingest_id = ? WHERE id = ?"
    control.execute(ours, ("file:///other", other, foreign))
    look = f"UPDATE {keyspace}.metadata SET group_id = ? WHERE id = ?"
    control.execute(look, ("patient 1", known["val/b/1.png"]))
    (tmp_path / "one/train/a/0.png").unlink()
    (tmp_path / "one/train/b/0.png").unlink()
    size = len(picture(NAMES.index("val/b/1.png")))
    plant(tmp_path / "one", {"val/b/1.png": picture(1) + bytes(9), "val/b/new.png": picture(3), "val/b/bad.png": b""})
    mended = job.run(spark, plan=verification(plan, source=True, repair=True))
    new, bad = (image_id(keyspace, b"val", path) for path in (b"b/new.png", b"b/bad.png"))
    assert mended.examples == {
        "missing image": [f"{bad} val/b/bad.png", f"{new} val/b/new.png"],
        "changed in the source": [
            f"{known['val/b/1.png']} val/b/1.png ({size + 9} bytes in the source instead of {size})"
        ],
        "no longer in the source": [f"{known['train/a/0.png']} train/a/0.png"],
    }
    assert (mended.images, mended.blobs, mended.files) == (12, 12, 16)
    assert mended.bytes == sum(len(picture(i)) for i in range(12))
    assert (mended.mended, mended.left) == ({"missing image": 1, "changed in the source": 1}, 2)
    group = f"SELECT group_id FROM {keyspace}.metadata WHERE id = ?"
    assert control.execute(group, (known["val/b/1.png"],))[0].group_id == "patient 1"
    compared = f"compared 12 rows of {keyspace}.metadata with 12 of {keyspace}.data (0.0 MB), and 16 files"
    assert str(mended).splitlines()[-1].startswith(compared)

    # The bad file is in the quarantine now, together with others, some of which are accepted today.
    broken = bytearray(texture(1))
    broken[len(broken) // 2] ^= 255  # only decoding detects it
    plant(tmp_path / "one", {"train/a/bad.png": picture(77), "train/a/broken.png": bytes(broken)})
    plant(tmp_path / "one", {"train/a/huge.png": picture(8), "train/a/less.png": picture(9)})
    row = f"INSERT INTO {keyspace}.quarantine (ingest_id, path, stage, reason, bytes) VALUES (now(), ?, ?, ?, ?)"
    control.execute(row, ("train/a/huge.png", "write", "too large", len(picture(8))))
    control.execute(row, ("train/a/less.png", "write", "too large", len(picture(9)) + 1))
    after = job.run(spark, plan=verification(plan, source=True))
    assert (after.images, after.problems) == (13, {"missing image": 2, "no longer in the source": 1})
    assert [line.partition(" ")[2] for line in after.examples["missing image"]] == [
        "train/a/bad.png",
        "train/a/less.png",
    ]

    for split in ("train", "val"):
        (tmp_path / "two" / split / "a").mkdir(parents=True)
    empty = replace(plan, source=replace(plan.source, address=str(tmp_path / "two")))
    with pytest.raises(SourceError, match="Found: no files"):
        job.run(spark, plan=verification(empty, source=True))
    other = replace(plan, dataset="other")  # the ids of its images would all be missing
    wanted = rf"Wanted dataset '{keyspace}', which {keyspace}\.metadata holds\. Found: 'other'\. Set --dataset"
    with pytest.raises(ConflictError, match=wanted):
        job.run(spark, plan=verification(other, source=True))


def test_a_repair_does_not_write_images_that_were_deleted_after_it_looked(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, name = ingest(spark, tree(tmp_path / "tree"), keyspace), "train/a/0.png"
    lost, other = ids(keyspace)[name], ids(keyspace)["train/a/1.png"]
    for image in (lost, other):
        control.execute(f"UPDATE {keyspace}.metadata SET sha256 = null WHERE id = ?", (image,))

    def deleted_first(*args: Any, **options: Any) -> Any:
        tables: dict[str, Any] = {"data_table": plan.data_table, "metadata_table": plan.metadata_table}
        delete_job.run(spark, plan=DeletePlan(**tables, ids=(lost,), reason="on request", count=1))
        return find_destination(*args, **options)

    monkeypatch.setattr(repair, "find_destination", deleted_first)  # what a repair calls first after it has looked
    job.run(spark, plan=verification(plan, source=True, check="hashes", repair=True))
    rows = {row.id: row.sha256 for row in control.execute(f"SELECT id, sha256 FROM {keyspace}.metadata")}
    assert rows.keys() == {*ids(keyspace).values()} - {lost}
    assert rows[other] is not None
