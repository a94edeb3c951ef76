"""Cards: what file names and manifests say about the contents of a dataset."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from formats.tar_index import TarIndex, TarMember
from schemas import SchemaError, SplitManifest
from schemas.cache import NAME as CACHE
from schemas.cache import CacheManifest
from schemas.manifest import NAMES as SPLITS
from schemas.shards import NAME as SHARDS
from schemas.shards import ShardManifest

_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MOST_MANIFEST = 8 << 20
_MOST_CLASSES, _MOST_SPLITS = 2_000, 20  # listed on a card; all are counted
_PAGE = 1_000
_COUNTS = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE folders (above TEXT, label TEXT, images INTEGER, PRIMARY KEY (above, label)) WITHOUT ROWID;
"""
_COUNT = "INSERT INTO folders VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET images = images + excluded.images"

_MOST_ROWS, _MOST_AT_ONCE = 50_000_000, 1 << 16  # of one file of a cache

# {"type": "shards" | "splits" | "tables" | "images" | "files", "images": 12, "num_classes": 2,
#  "classes": {"cat": 6, ...}, "num_splits": 2, "splits": [{"name": "train", "images": 8, ...}],
#  "tables": ["ks.data", "ks.metadata"]}; a key is missing if its value is unknown. Numbers count all; classes and
# splits are the first by name. A metadata cache has the type "tables".
Card = dict[str, Any]
Beside = Callable[[str], tuple[Path, TarMember | None]]
"""Finds a file by its path relative to a manifest: the tar, and the file's place in it."""


def card_of(tar: Path, index: Path) -> Card:
    """Describe the contents of a folder by its tar and index."""
    with TarIndex(index) as files:
        for folder, member in manifests(files):
            with open(tar, "rb") as file:
                text = os.pread(file.fileno(), member.bytes, member.start).decode("utf-8", "replace")

            def beside(path: str, folder: str = folder) -> tuple[Path, TarMember | None]:
                return tar, files.find(folder + path)

            try:
                return _MANIFESTS[member.path.removeprefix(folder)](text, beside)
            except (SchemaError, TypeError, ValueError, AttributeError):  # a file with the name of a manifest
                continue
        return _of_pictures(files, index.parent)


def manifests(files: TarIndex) -> Iterator[tuple[str, TarMember]]:
    """Find the files that are manifests by their names, at the top or in the one folder that holds all files; yield
    this folder, empty or ending with ``/``, and the file.
    """
    for name in _MANIFESTS:
        member = files.find(name) or _in_one_folder(files, name)
        if member is not None and member.bytes <= _MOST_MANIFEST:
            yield member.path.removesuffix(name), member


def pictures(files: TarIndex) -> Iterable[TarMember]:
    """Yield the files that are images by their names, in the order of their paths."""
    after = ""
    while page := files.page(after=after, limit=_PAGE):
        yield from (file for file in page if is_picture(file.path))
        after = page[-1].path


def is_picture(path: str) -> bool:
    """Whether a file is an image by its name."""
    return path.lower().endswith(_PICTURES)


def _in_one_folder(files: TarIndex, name: str) -> TarMember | None:
    """Find a file in the one folder that holds all files, if there is one."""
    first = files.page(limit=1)
    folder, slash, _ = first[0].path.partition("/") if first else ("", "", "")
    return files.find(f"{folder}/{name}") if slash else None


def _of_shards(text: str, _: Beside) -> Card:
    found = ShardManifest.from_json(text, place=SHARDS)
    return {
        "type": "shards",
        "images": int(found.samples),
        **_classes(found.counts, found.class_names),
        "shards": len(found.shards),
        "source": str(found.source),
    }


def _of_splits(text: str, _: Beside) -> Card:
    found = SplitManifest.from_json(text, place=SPLITS[0])
    splits = [
        {"name": str(part.index), "images": int(part.rows), **_classes(part.counts, found.class_names)}
        for part in found.splits[:_MOST_SPLITS]
    ]
    return {
        "type": "splits",
        "images": sum(part.rows for part in found.splits),
        **_classes(sum((Counter(part.counts) for part in found.splits), Counter()), found.class_names),
        "num_splits": len(found.splits),
        "splits": splits,
        "tables": [str(found.data_table), str(found.metadata_table)],
    }


def _of_cache(text: str, beside: Beside) -> Card:
    found = CacheManifest.from_json(text, place=CACHE)
    card: Card = {
        "type": "tables",
        "images": int(found.rows),
        "tables": [str(found.data_table), str(found.metadata_table)],
    }
    counts = _labels(found, beside) if found.label_type == "int" else None
    return card if counts is None else card | _classes(counts, found.class_names)


def _labels(cache: CacheManifest, beside: Beside) -> Counter[int] | None:
    """Count the rows of a cache's files by label; None if they do not match the manifest."""
    import pyarrow as pa  # imported for caches only: it takes a quarter of the memory of the service
    import pyarrow.parquet as pq

    counts: Counter[int] = Counter()
    try:
        for one in cache.files:
            tar, member = beside(one.path)
            if member is None:
                return None
            with pa.memory_map(str(tar)) as opened:
                opened.seek(member.start)
                file = pq.ParquetFile(pa.BufferReader(opened.read_buffer(member.bytes)))
                if file.metadata.num_rows != one.rows or one.rows > _MOST_ROWS:
                    return None
                for batch in file.iter_batches(_MOST_AT_ONCE, columns=["label"], use_threads=False):
                    for pair in batch["label"].value_counts().to_pylist():
                        counts[int(pair["values"])] += pair["counts"]
    except (pa.ArrowException, OSError, KeyError, TypeError):  # other files of this name; rows without a label
        return None
    return counts


_MANIFESTS: Mapping[str, Callable[[str, Beside], Card]] = {
    SHARDS: _of_shards,
    **dict.fromkeys(SPLITS, _of_splits),
    CACHE: _of_cache,
}


def _of_pictures(files: TarIndex, folder: Path) -> Card:
    """Count images by their folder, and by the folder above it if there are several: train/cat/1.jpg."""
    # An ingest counts topmost folders instead. A tree does not show how many folders are above its classes. An ingest
    # has options for that and asks in doubt. A service cannot ask, so it counts innermost folders everywhere: on cards,
    # which are stored, in contact sheets, in Croissant and for ?class=. There may be as many
    # folders as files, so they are counted on disk.
    with TemporaryDirectory(dir=folder) as aside, closing(sqlite3.connect(Path(aside) / "counts.sqlite")) as rows:
        rows.executescript(_COUNTS)
        rows.executemany(_COUNT, _runs(files))
        return _counted(rows)


def _runs(files: TarIndex) -> Iterator[tuple[str, str, int]]:
    """Yield (parent folder, folder, number of images) for consecutive files of a folder."""
    for folder, run in groupby(pictures(files), key=lambda file: file.path.rpartition("/")[0]):
        above, _, label = folder.rpartition("/")
        yield above, label, sum(1 for _ in run)


def _counted(rows: sqlite3.Connection) -> Card:
    images, num_splits = rows.execute("SELECT sum(images), count(DISTINCT above) FROM folders").fetchone()
    if not images:
        return {"type": "files"}
    card: Card = {"type": "images", "images": images, **_classes_of(rows, "label != ''", ())}
    above = [
        one for (one,) in rows.execute("SELECT DISTINCT above FROM folders ORDER BY above LIMIT ?", (_MOST_SPLITS,))
    ]
    if num_splits > 1 and "" not in above:
        common = _common(one for (one,) in rows.execute("SELECT DISTINCT above FROM folders"))
        card["num_splits"] = num_splits
        card["splits"] = [
            {
                "name": one.removeprefix(f"{common}/"),
                "images": rows.execute("SELECT sum(images) FROM folders WHERE above = ?", (one,)).fetchone()[0],
                **_classes_of(rows, "above = ? AND label != ''", (one,)),
            }
            for one in above
        ]
    return card


def _classes_of(rows: sqlite3.Connection, where: str, values: Sequence[str]) -> Card:
    """The number of classes and the first of them by name; empty without classes."""
    count = rows.execute(f"SELECT count(DISTINCT label) FROM folders WHERE {where}", values).fetchone()[0]
    first = f"SELECT label, sum(images) FROM folders WHERE {where} GROUP BY label ORDER BY label LIMIT {_MOST_CLASSES}"
    return {"num_classes": count, "classes": dict(rows.execute(first, values).fetchall())} if count else {}


def _common(folders: Iterable[str]) -> str:
    """The folder that holds all of them, or an empty string."""
    common: str | None = None
    for folder in folders:
        common = folder if common is None else common
        while common and folder != common and not folder.startswith(f"{common}/"):
            common = common.rpartition("/")[0]
    return common or ""


def _classes(counts: Mapping[int, int], names: Mapping[int, str]) -> Card:
    """The number of classes and the first of them by name; empty without classes."""
    named: Counter[str] = Counter()
    for number, count in counts.items():
        named[str(names.get(number, number))] += int(count)
    first = dict(sorted(named.items())[:_MOST_CLASSES])
    return {"num_classes": len(named), "classes": first} if named else {}
