"""The folder that shards are published in is refused, replaced or resumed; the manifest is written last."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from etl.errors import EtlError, OutputExistsError
from etl.shards.output import ShardOutput, read_manifest, reasons, tag_of
from etl.shards.plan import ShardPlan
from formats.shards.folder import missing
from formats.shards.layout import ShardWriter, index_name, keys, shard_name
from formats.stores.storage import Storage
from schemas import TableName
from schemas.shards import Shard
from tests.support.shard_checks import manifest_of
from tests.support.turns import Turns

WITHOUT_SPARK = cast(SparkSession, None)
"""A session is only used for addresses on S3."""
CONTENT = {"label_type": "int", "class_names": {0: "a"}, "source": "file:///x", "source_fingerprint": "f"}


def plan(out: Path, **options: Any) -> ShardPlan:
    tables = {"data_table": TableName("k", "data"), "metadata_table": TableName("k", "metadata")}
    return ShardPlan(**tables, out=str(out), **options)


def opened(out: Path, **options: Any) -> ShardOutput:
    return ShardOutput(WITHOUT_SPARK, plan=plan(out, **options))


def written(out: Path, tag: str, *, shards: int = 2) -> list[Shard]:
    """Shards of two samples each, without a manifest."""
    storage, rows = Storage(out), []
    for number in range(shards):
        name = shard_name(tag, number, shards)
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for key in keys(2 * number, 2, 2 * shards):
                writer.add(key, {"jpg": f"{tag} {key}".encode(), "cls": b"0"})
            rows.append(writer.end(name))
        storage.write_bytes(index_name(name), writer.index.encode())
        storage.write_bytes(f"{name}.done", b"[]")
    return rows


def publish(
    output: ShardOutput, shards: list[Shard], tag: str, rejected: list[dict[str, str]] | None = None
) -> list[str]:
    counts = {0: sum(shard.samples for shard in shards)}
    return output.publish(shards, counts, rejected or [], tag=tag, content=CONTENT, options={})[1]


def names(out: Path) -> set[str]:
    return {file.name for file in out.iterdir()}


OLD = {"aaaaaaaa-000000.tar", "aaaaaaaa-000000.idx", "aaaaaaaa-000001.tar", "aaaaaaaa-000001.idx"}
NEW = {name.replace("a" * 8, "b" * 8) for name in OLD}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with published shards."""
    out = tmp_path / "out"
    assert publish(opened(out), written(out, "aaaaaaaa"), "aaaaaaaa") == []
    assert names(out) == {*OLD, "croissant.json", "shards.json"}  # the records of tasks are lost
    return out


def test_existing_shards_are_refused(out: Path) -> None:
    with pytest.raises(OutputExistsError, match=rf"{out}\. Found: 2 of them, 4 images\. Set --overwrite"):
        opened(out)
    (out / "aaaaaaaa-000001.tar").unlink()  # a manifest without its shards also counts as used
    with pytest.raises(OutputExistsError, match="a folder without shards"):
        opened(out)


def test_overwriting_removes_old_shards_once_the_new_ones_are_published(out: Path) -> None:
    output = opened(out, overwrite=True)
    assert output.published("aaaaaaaa") is None
    assert output.digests.keys() == {name for name in OLD if name.endswith(".tar")}
    shards = written(out, "bbbbbbbb")
    assert names(out) > OLD
    assert publish(output, shards, "bbbbbbbb") == []
    assert names(out) == {*NEW, "croissant.json", "shards.json"}


def test_resume_accepts_published_shards_only_if_they_match_and_are_complete(out: Path) -> None:
    output = opened(out, resume=True)
    assert output.published("aaaaaaaa") == manifest_of(out)
    with pytest.raises(
        OutputExistsError, match=r"these images and options at .*out\. Found: complete shards of others"
    ):
        output.published("bbbbbbbb")
    (out / "aaaaaaaa-000001.idx").unlink()
    assert output.published("aaaaaaaa") is None


def test_shards_in_no_manifest_are_kept_and_reported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    written(out, "0a1b2c3d")
    (out / ".bbbbbbbb-000001.tar.0123").write_bytes(b"half of a shard, of a run that was killed")
    strangers = names(out) - {".bbbbbbbb-000001.tar.0123"}
    remarks = publish(opened(out), written(out, "bbbbbbbb"), "bbbbbbbb")
    assert remarks == [
        "there are also shards that no manifest names: 0a1b2c3d-*; remove them, unless their run is still active"
    ]
    assert names(out) == {*NEW, *strangers, "croissant.json", "shards.json"}


def test_the_first_of_two_runs_to_publish_wins(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second, same = opened(out), opened(out), opened(out)
    shards = written(out, "aaaaaaaa")
    publish(first, shards, "aaaaaaaa")
    with pytest.raises(OutputExistsError, match=r"They were published during this run\."):
        publish(second, written(out, "bbbbbbbb"), "bbbbbbbb")
    publish(same, shards, "aaaaaaaa")  # of the same images and options
    assert {shard.name for shard in manifest_of(out).shards} == {name for name in OLD if name.endswith(".tar")}
    assert names(out) > OLD


def test_shards_written_elsewhere_by_tasks_are_not_published(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shards = written(out, "aaaaaaaa")
    (out / shards[1].name).write_bytes(b"cut off")
    with pytest.raises(EtlError, match=rf"Found: 1 are missing or have another size, first {shards[1].name}\."):
        publish(opened(out), shards, "aaaaaaaa")
    assert not (out / "shards.json").exists()


def test_skipped_images_are_listed_beside_the_shards(out: Path) -> None:
    rejected = [
        {"or_split": "val", "path": "=b, c", "reason": "empty"},
        {"or_split": "train", "path": "é", "reason": "no image: of 3 bytes"},
        {"or_split": "val", "path": "a", "reason": "no image: of 9 bytes"},
    ]
    assert reasons(rejected) == {"no image": 2, "empty": 1}
    output = opened(out, overwrite=True)
    publish(output, written(out, "bbbbbbbb"), "bbbbbbbb", rejected)
    assert (out / "rejected.csv").read_text(encoding="utf-8").splitlines() == [
        "or_split,path,reason",
        "train,é,no image: of 3 bytes",
        'val,"\'=b, c",empty',
        "val,a,no image: of 9 bytes",
    ]
    publish(opened(out, overwrite=True), written(out, "aaaaaaaa"), "aaaaaaaa")
    assert not (out / "rejected.csv").exists()


def test_an_unreadable_manifest_is_named_with_any_option(out: Path) -> None:
    text = (out / "shards.json").read_text()
    wrong = [text.replace('"pieces": [[', '"pieces": [[['), text.replace('"samples": 4', '"samples": 5')]
    for damaged in (b"\xff\xfe", b"{}", b"[]", text[:200].encode(), *(one.encode() for one in wrong), None):
        if damaged is None:
            (out / "shards.json").unlink()
            (out / "shards.json").mkdir()
        else:
            assert damaged != text.encode()
            (out / "shards.json").write_bytes(damaged)
        for options in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(OutputExistsError) as refused:
                opened(out, **options)
            line = str(refused.value)
            assert f"{out}/shards.json" in line
            assert line.endswith("Remove it, or use another --out.")
    assert names(out) > OLD


def test_an_unwritable_output_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        EtlError, match=rf"a folder to write to at {tmp_path}/file/out\. Found: .*/file is not a folder\."
    ):
        opened(tmp_path / "file" / "out")
    with pytest.raises(EtlError, match=r"Wanted a folder to write to at /proc/out\. Found: /proc: "):
        opened(Path("/proc/out"))


def test_tags_depend_on_the_images_and_on_options_that_change_shards(tmp_path: Path) -> None:
    one = plan(tmp_path)
    others = [
        replace(one, seed=1),
        replace(one, maxsize=20_480),
        replace(one, maxcount=9),
        replace(one, compress="zstd"),
        replace(one, check="full"),
    ]
    tags = [tag_of("f", plan=one), tag_of("g", plan=one), *(tag_of("f", plan=other) for other in others)]
    assert len({*tags}) == len(tags)
    assert tag_of("f", plan=replace(one, overwrite=True)) == tags[0]
    assert tag_of("f", plan=replace(one, resume=True, out=str(tmp_path / "x"))) == tags[0]


def test_of_two_runs_at_once_one_fails_if_published_shards_are_missing(tmp_path: Path) -> None:
    endings = set()
    for seed in range(100):
        out = tmp_path / str(seed)
        publish(opened(out), written(out, "aaaaaaaa"), "aaaaaaaa")

        def replace_all(tag: str, out: Path = out) -> None:  # one of them with the shards that are there
            output = opened(out, overwrite=True)
            publish(output, written(out, tag), tag)

        turns = Turns(random.Random(seed))
        with turns.on_storages():
            ended = turns.run({tag: partial(replace_all, tag) for tag in ("aaaaaaaa", "bbbbbbbb")})
        assert all(error is None or isinstance(error, EtlError) for error in ended.values()), ended
        manifest = read_manifest(Storage(out))
        assert manifest is not None
        is_whole = not missing(Storage(out), manifest.shards)
        assert is_whole or any(ended.values()), ended
        endings.add((is_whole, sum(error is None for error in ended.values())))
    assert endings >= {(True, 2), (True, 1)}
