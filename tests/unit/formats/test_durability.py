"""Power cuts: published data is complete on the disk before its manifest, and replaced data is removed afterwards."""

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.splits.metadata import Metadata, cache_folder
from etl.splits.metadata import publish_cache as publish_rows
from etl.splits.output import SplitOutput
from etl.splits.plan import SplitPlan
from formats import OpenSplit, open_split
from formats.durability import sync, sync_files, whole_file
from formats.shards.folder import manifest_of, publish
from formats.shards.layout import ShardWriter, index_name, shard_name
from formats.splits.dictionary import write_dictionary
from formats.stores.storage import Storage
from imagestrata.hub.local_copy import LocalCopy
from schemas import Columns, SplitPart, TableName
from schemas.shards import NAME, ShardManifest
from tests.support.power_cuts import Disk, recorded
from tests.support.split_folders import image_ids, write_split_folder

TABLES = {"data_table": TableName("ks", "data"), "metadata_table": TableName("ks", "metadata")}
METADATA = Metadata(rows=None, columns=Columns(), label_type="int", class_names={}, **TABLES)  # type: ignore[arg-type]
ROWS = 300


def _as_spark_does(folder: Path, version: int, name: str = "part-0") -> None:
    """A Parquet file of random bytes, not synced."""
    folder.mkdir(parents=True)
    noise = [hashlib.sha256(b"%d %d" % (version, row)).digest()[:16] for row in range(ROWS)]
    pq.write_table(pa.table({"id": pa.array(noise, pa.binary())}), folder / f"{name}-{version}.parquet")


def publish_splits(root: Path, version: int) -> str:
    with SplitOutput(str(root), overwrite=True) as output:
        rows = Path(output.aside("rows").removeprefix("file://"))
        for index in (0, 1):
            _as_spark_does(rows / f"split={index}", version + 10 * index)
        files = output.files()
        parts = [SplitPart(index, ROWS, {0: ROWS}, f"{version:064x}", tuple(files[index])) for index in (0, 1)]
        plan = SplitPlan(out=str(root), **TABLES)  # type: ignore[arg-type]
        output.publish(parts, plan=plan, metadata=METADATA, warnings=[], page=f"page {version}")
    return "_manifest.json"


def publish_cache(root: Path, version: int) -> str:
    with cache_folder(str(root), overwrite=True) as output:
        rows = Path(output.aside("rows").removeprefix("file://"))
        _as_spark_does(rows, version)
        sums = dict.fromkeys(("high0", "low0", "high1", "low1"), version)
        publish_rows(output, METADATA, summed=[{"file": str(path), "rows": ROWS, **sums} for path in rows.iterdir()])
    return "cache.json"


def publish_shards(root: Path, version: int) -> str:
    storage, shards = Storage(root), []
    before = ShardManifest.from_json((root / NAME).read_text(), place="") if (root / NAME).exists() else None
    for number in range(2):
        name = shard_name(f"{version:08x}", number, 2)
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for key in range(3):
                writer.add(f"{key:09}", {"bin": hashlib.shake_256(b"%d %d %d" % (version, number, key)).digest(20_000)})
            shards.append(writer.end(name))
        storage.write_bytes(index_name(name), writer.index.encode(), durable=True)
    told = {"class_names": {}, "counts": {}, "seed": 0, "source": "s", "source_fingerprint": "f", "options": {}}
    manifest = manifest_of(shards, label_type="none", **told)  # type: ignore[arg-type]
    publish(storage, manifest, tag=f"{version:08x}", before=before)
    return NAME


def publish_dictionary(root: Path, version: int, *, split: OpenSplit, cache: Path) -> str:
    rows = [split.rows(0, cache=cache)]
    manifest = split.manifest
    write_dictionary(Storage(root), "all.pckl", manifest=manifest, splits=rows * version)
    return "all.pckl"


def publish_pulled(root: Path, version: int) -> str:
    place = LocalCopy(root, "pets")
    with place.alone():
        data = place.aside(version, f"{version:064x}")
        (data / "a").write_bytes(hashlib.shake_256(b"%d" % version).digest(30_000))
        place.switch(data, {"version": version})
        place.sweep()
    return "pets"


@pytest.fixture(params=["splits", "cache", "shards", "dictionary", "pulled"])
def publish_version(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path, int], str]:
    """Publish version 1 or 2, over another one, to a folder; return the name that readers trust."""
    if request.param == "dictionary":
        split = open_split(write_split_folder(tmp_path / "split", [(image_ids(200), [0] * 200)]))
        return partial(publish_dictionary, split=split, cache=tmp_path / "cache")
    return globals()[f"publish_{request.param}"]


def _trusted(root: Path, name: str) -> bytes | None:
    """What identifies a version: the manifest's bytes, or the target of a link."""
    path = root / name
    if path.is_symlink():
        return os.readlink(path).encode()
    return path.read_bytes() if path.exists() else None


def _files(root: Path) -> dict[str, bytes]:
    """All files that a reader of a folder needs. The page of a split is for people and is replaced before it."""
    paths = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    others = ("lock", "version.json", "_report.html", "_croissant.json", "croissant.json")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.name not in others}


def test_after_a_power_cut_there_is_the_old_version_or_the_new_one_whole(
    publish_version: Callable[[Path, int], str], tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    out = Path("new", "folders", "out")
    with disk.mounted():
        whole: dict[bytes | None, Mapping[str, bytes]] = {}
        copies: list[tuple[Path, set[bytes | None]]] = []
        before: bytes | None = None
        for version in (1, 2):
            taken: list[Path] = []
            with recorded(then=lambda taken=taken: taken.append(disk.copy())):  # type: ignore[misc]
                name = publish_version(disk.root / out, version)
                at_end = disk.copy()
            now = _trusted(disk.root / out, name)
            assert now not in (None, before)
            whole[now] = _files(disk.root / out)
            copies += [(copy, {before, now}) for copy in taken]
            copies.append((at_end, {now}))
            before = now
        allowed: dict[Path, set[bytes | None]] = {}
        for copy, versions in copies:
            allowed[copy] = allowed.get(copy, versions) & versions
        assert len(allowed) >= 3
        for copy, versions in allowed.items():
            with disk.after_power_cut(copy) as place:
                found = _trusted(place / out, name)
                assert found in versions
                if found is not None:
                    there = _files(place / out)
                    assert {path for path, data in whole[found].items() if there.get(path) != data} == set()


def test_files_come_first_then_folders_then_the_manifest_and_removals_last(
    publish_version: Callable[[Path, int], str], tmp_path: Path
) -> None:
    root = tmp_path / "new" / "folders" / "out"
    publish_version(root, 1)
    old = set(_files(root))
    with recorded() as calls:
        name = publish_version(root, 2)
    seen = [(call.name, call.path) for call in calls]

    def places(names: tuple[str, ...], is_it: Callable[..., Any]) -> list[int]:
        return [place for place, (what, about) in enumerate(seen) if what in names and is_it(about)]

    moves, manifest = ("replace", "rename"), root / name
    published = places(moves, str(manifest).__eq__)[-1]
    if not manifest.is_symlink():  # a pull syncs the whole file system, not each of its files
        for path in set(_files(root)) - {name}:
            file = root / path
            synced = places(("fsync",), lambda about, file=file: about == str(file) or f".{file.name}." in about)
            assert min(synced) < published, path
            moved = max(places(moves, str(file).__eq__))
            for folder in (one for one in file.parents if one.is_relative_to(tmp_path / "new")):
                assert any(moved < place < published for place in places(("fsync",), str(folder).__eq__)), folder
    durable = min(place for place in places(("fsync",), str(root).__eq__) if place > published)
    gone = old - set(_files(root))
    assert gone or name == "all.pckl"
    for path in gone:
        assert min(places(("unlink", "remove"), lambda about, path=path: about.endswith(path))) > durable, path


def test_a_file_in_new_folders_lasts_with_its_folders(tmp_path: Path) -> None:
    with recorded() as calls, whole_file(tmp_path / "a" / "b" / "c", durable=True) as file:
        file.write(b"x")
    assert calls[0].name == "fsync"
    assert (calls[1].name, calls[1].path) == ("replace", str(tmp_path / "a" / "b" / "c"))
    folders = [call.path for call in calls[2:]]
    assert folders[:3] == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_folders_that_cannot_be_synced_fail_nothing_and_files_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(refusal, "no")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    Storage(tmp_path).publish_text("a/b", "text")
    sync_files([str(tmp_path / "a" / "b")])
    assert (tmp_path / "a" / "b").read_text() == "text"

    def broken(_: int) -> Any:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    for path in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(OSError, match="broken"):
            sync(path)
