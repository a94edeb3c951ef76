"""Unreadable manifests of splits, shards and metadata caches are refused with the same messages."""

import json
from typing import Any

import pytest

from schemas import FormatVersionError, SchemaError, SplitManifest
from schemas.cache import CacheManifest
from schemas.datasets import DatasetVersion
from schemas.shards import ShardManifest

KINDS = [(SplitManifest, "split manifest"), (ShardManifest, "manifest of shards"), (CacheManifest, "metadata cache")]


@pytest.mark.parametrize(("kind", "what"), KINDS)
def test_damaged_manifests_are_refused_with_what_is_wrong(kind: type[SplitManifest], what: str) -> None:
    for text, message in [
        ("[" * 100_000, rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(RecursionError"),
        ("nonsense", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(JSONDecodeError"),
        ("[]", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(TypeError"),
        ("{}", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(KeyError\('format'\)\)"),
        ('{"format": "1"}', rf"^Wanted a {what} at HERE\. Found: format '1'$"),
        ('{"format": 0}', rf"^Wanted a {what} at HERE\. Found: format 0$"),
        ('{"format": 1}', rf"^Wanted a valid {what} at HERE\. Found: a damaged one \(KeyError\("),
    ]:
        with pytest.raises(SchemaError, match=message):
            kind.from_json(text, place="HERE")
    newest = 2 if kind is CacheManifest else 1
    newer = rf"^Wanted a {what} of format {newest} or older at HERE\. Found: format {newest + 1}\. It was written by"
    with pytest.raises(FormatVersionError, match=newer):
        kind.from_json(f'{{"format": {newest + 1}}}', place="HERE")


FINGERPRINT = "0123456789abcdef" * 4
COLUMNS = {"id": "id", "label": "label", "data": "data"}
TABLES = {"format": 1, "data_table": "a.b", "metadata_table": "a.c", "columns": COLUMNS, "created": ""}
CLASSES = {"label_type": "int", "num_classes": 1, "class_names": {}, "seed": 0, "options": {}, "code_version": ""}
FILE = {"path": "split=0/part-0.parquet", "rows": 1}
PIECE = [1, 2048, FINGERPRINT[:32]]
SHARD = {"name": "a-000000.tar", "samples": 1, "bytes": 2048, "sha256": FINGERPRINT, "pieces": [PIECE]}
BAD_DIGESTS: list[Any] = [
    *("", "../" * 21 + "x", "/" + FINGERPRINT[1:], "0" * 63, "0" * 65, FINGERPRINT.upper(), FINGERPRINT[:-1] + "\n"),
    *("٠" * 64, FINGERPRINT[:-1] + "\0", None, 5),
]
BAD_PATHS = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "./x",
    "a//x",
    "a/",
    "a\\..\\x",
    "a\0b",
    "a\nb",
    "C:\\x",
    "\ud800",
]


def split(*, file: dict[str, Any] | None = None, stored: Any = None, prints: Any = None, **changes: Any) -> str:
    part = {"index": 0, "rows": 1, "counts": {"0": 1}, "fingerprint": FINGERPRINT, "files": [FILE | (file or {})]}
    views = (
        []
        if stored is None
        else [{"view": "a@v1", "fields": stored, "splits": [{"fingerprints": prints, "files": []}]}]
    )
    return json.dumps({**TABLES, **CLASSES, "splits": [part | changes], "stored_features": views})


def cache(*, file: dict[str, Any] | None = None, **changes: Any) -> str:
    rows = {"label_type": "int", "class_names": {}, "rows": 1, "fingerprint": FINGERPRINT}
    return json.dumps({**TABLES, **rows, "files": [FILE | (file or {})], **changes})


def shards(*, shard: dict[str, Any] | None = None, **changes: Any) -> str:
    counts = {"samples": 1, "bytes": 2048, "counts": {}, "source": "", "source_fingerprint": "", "created": ""}
    told = {"format": 1, **CLASSES, **counts, "fingerprint": FINGERPRINT}
    return json.dumps({**told, "shards": [SHARD | (shard or {})], **changes})


def version(**changes: Any) -> str:
    told = {"number": 1, "kind": "file", "filename": "a.bin", "bytes": 1, "sha256": FINGERPRINT, "files": 1}
    return json.dumps({"format": 1, **told, "created": "", **changes})


@pytest.mark.parametrize("digest", BAD_DIGESTS, ids=repr)
def test_fingerprints_are_64_digits_because_they_name_files(digest: Any) -> None:
    made: list[tuple[Any, str]] = [
        (SplitManifest, split(fingerprint=digest)),
        (CacheManifest, cache(fingerprint=digest)),
        (ShardManifest, shards(fingerprint=digest)),
        (ShardManifest, shards(shard={"sha256": digest})),
        (ShardManifest, shards(shard={"pieces": [[1, 2048, digest]]})),
        (DatasetVersion, version(sha256=digest)),
    ]
    for kind, text in made:
        with pytest.raises(SchemaError, match=r"at HERE\. Found: a damaged one\. Wanted (64|32) digits"):
            kind.from_json(text, place="HERE")


@pytest.mark.parametrize("path", BAD_PATHS, ids=repr)
def test_paths_stay_in_the_folder_of_the_manifest(path: str) -> None:
    made: list[tuple[Any, str]] = [
        (SplitManifest, split(file={"path": path})),
        (CacheManifest, cache(file={"path": path})),
        (DatasetVersion, version(filename=path)),
    ]
    for kind, text in made:
        with pytest.raises(SchemaError, match=r"at HERE\. Found: a damaged one\. Wanted .* path of a file"):
            kind.from_json(text, place="HERE")
    if path != "\ud800":
        with pytest.raises(SchemaError, match="unique shard names without folders"):
            ShardManifest.from_json(shards(shard={"name": path}), place="HERE")


def test_counts_are_whole_and_not_negative_and_stored_fields_are_complete() -> None:
    made: list[tuple[Any, str]] = [
        *((SplitManifest, split(rows=count)) for count in (-1, "1", 1.5, None, True)),
        *((CacheManifest, cache(file={"rows": count})) for count in (-1, "1")),
        *((ShardManifest, shards(shard={"pieces": [[1, count, PIECE[2]]]})) for count in (-1, "2048")),
        *((DatasetVersion, version(number=number)) for number in (0, -1, "1")),
        (SplitManifest, split(stored={"a": "int"}, prints={})),  # a field without a fingerprint
        (SplitManifest, split(stored={"a": "integer"}, prints={"a": FINGERPRINT})),
    ]
    for kind, text in made:
        with pytest.raises(SchemaError, match=r"at HERE\. Found: a damaged one\."):
            kind.from_json(text, place="HERE")
    made = [(SplitManifest, split()), (CacheManifest, cache()), (ShardManifest, shards())]
    for kind, text in made:
        assert kind.from_json(text, place="HERE").to_json()
    assert DatasetVersion.from_json(version(), place="HERE").filename == "a.bin"
