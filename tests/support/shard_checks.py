"""Reads folders of shards without our own code, and checks them."""

import hashlib
import json
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from formats.shards.layout import ShardWriter, keys
from formats.stores.storage import Storage
from schemas.shards import NAME, PIECE_BYTES, ShardManifest


class Found(NamedTuple):
    """A sample of a shard: its key, its image with the extension, its class number, metadata and all its files."""

    key: str
    extension: str
    data: bytes
    label: int | None
    metadata: Mapping[str, Any]
    members: Mapping[str, bytes]


def manifest_of(folder: Path) -> ShardManifest:
    """The manifest of a local folder."""
    return ShardManifest.from_json((folder / NAME).read_text(encoding="utf-8"), place=str(folder))


def checked(folder: Path, *, maxsize: int, maxcount: int = 100_000, is_full: bool = True) -> list[Found]:
    """All samples in order, after a check of the manifest and that there are no other files."""
    manifest, samples = manifest_of(folder), []
    assert_whole(folder)
    sizes: list[tuple[int, int, int]] = []  # of each shard: its bytes, its samples, the bytes of its first sample
    for shard in manifest.shards:
        with tarfile.open(folder / shard.name) as tar:
            files = tar.getmembers()
            assert {(one.mtime, one.uid, one.gid, one.mode, one.type) for one in files} == {(0, 0, 0, 0o644, b"0")}
            groups = [list(group) for _, group in groupby(files, key=lambda one: one.name.partition(".")[0])]
            lines = [
                " ".join(f"{one.name.partition('.')[2]} {one.offset_data} {one.size} {one.name}" for one in group)
                for group in groups
            ]
            index = (folder / shard.name).with_suffix(".idx").read_text()
            assert index == "\n".join([f"v1.2 {len(groups)}", *lines, ""])
            samples += [_found(tar, group) for group in groups]
        first = groups[1][0].offset if len(groups) > 1 else shard.bytes - 1024
        sizes.append((shard.bytes, shard.samples, first))
        assert shard.bytes <= maxsize
        assert shard.samples <= maxcount
        assert len(groups) == shard.samples
        listed = subprocess.run(["tar", "-tf", shard.name], cwd=folder, capture_output=True, text=True, check=True)
        assert listed.stdout.split() == [one.name for one in files]
        assert listed.stderr == ""
    if is_full:  # the next sample would not have fitted
        assert all(size + more > maxsize or count == maxcount for (size, count, _), (_, _, more) in pairwise(sizes))
    assert [one.key for one in samples] == sorted({one.key for one in samples})
    assert all(len(one.key) == 9 and one.key.isdigit() for one in samples)
    assert len(samples) == manifest.samples
    labels = [one.label for one in samples if one.label is not None]
    assert dict(manifest.counts) == {label: labels.count(label) for label in sorted(set(labels))}
    names = {name for shard in manifest.shards for name in (shard.name, f"{Path(shard.name).stem}.idx")}
    assert set(os.listdir(folder)) - {NAME, "rejected.csv"} == {*names, "croissant.json"}
    return samples


def assert_whole(folder: Path) -> None:
    """Check that the manifest describes the shards exactly."""
    for shard in manifest_of(folder).shards:
        data = (folder / shard.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.bytes, shard.sha256)
        start = 0
        for piece in shard.pieces:
            part = data[start : start + piece.bytes]
            assert xxhash.xxh3_128_hexdigest(part) == piece.xxh3
            start += piece.bytes
        assert start == shard.bytes


def assert_streamed(storage: Storage) -> None:
    """Check that a shard of 60 MB is written with only a few pieces in memory."""
    picture = bytes(1_000_000)
    tracemalloc.start()
    try:
        with storage.create("a.tar") as write:
            writer = ShardWriter(write)
            for key in keys(0, 60, 60):
                writer.add(key, {"jpg": picture})
            row = writer.end("a.tar")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (storage.size("a.tar"), row.samples) == (row.bytes, 60)
    assert peak < 5 * PIECE_BYTES  # one piece is made, assembled and sent


def contents(folder: Path) -> dict[str, bytes]:
    """The shards and their indexes, which are the same in every run."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".tar", ".idx")}


def downloaded(storage: Storage, folder: Path) -> Path:
    """Copy all files of a storage to a local folder."""
    folder.mkdir(parents=True)
    for name in storage.names():
        (folder / name).write_bytes(storage.read_bytes(name))
    return folder


def _found(tar: tarfile.TarFile, group: list[tarfile.TarInfo]) -> Found:
    members = {}
    for one in group:
        file = tar.extractfile(one)
        assert file is not None
        members[one.name.partition(".")[2]] = file.read()
    extension = next(iter(members))
    label = int(members["cls"]) if "cls" in members else None
    metadata = json.loads(members["json"])
    assert metadata.get("label") == label
    return Found(group[0].name.partition(".")[0], extension, members[extension], label, metadata, members)
