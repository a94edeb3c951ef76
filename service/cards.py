"""A dataset's card: what the names of its files, and the manifests among them, tell of it."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from formats.tar_index import TarIndex, TarMember
from schemas import SchemaError, SplitManifest
from schemas.cache import NAME as CACHE
from schemas.cache import CacheManifest
from schemas.manifest import NAME as SPLITS
from schemas.shards import NAME as SHARDS
from schemas.shards import ShardManifest

_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MOST_MANIFEST = 8 << 20
_MOST_CLASSES, _MOST_SPLITS = 2_000, 20
_MOST_FOLDERS = 20_000  # more are no classes, and would fill the memory
_PAGE = 1_000

_MOST_ROWS, _MOST_AT_ONCE = 50_000_000, 1 << 16  # of one file of a cache

Card = dict[str, Any]
Beside = Callable[[str], tuple[Path, TarMember | None]]
"""Finds a file by its path from a manifest on: the tar, and where the file lies in it."""


def card_of(tar: Path, index: Path) -> Card:
    """What a folder holds, of which these are the tar and its index.

    ``{"type": "shards" | "splits" | "tables" | "images" | "files", "images": 12, "classes": {"cat": 6, ...},
    "splits": [...], "tables": ["ks.data", "ks.metadata"]}``; what is not known is not there. Each of ``splits`` is
    ``{"name": "train", "images": 8, "classes": {...}}``. A metadata cache is of type ``tables``.
    """
    with TarIndex(index) as files:
        for name, read in _MANIFESTS.items():
            member = files.find(name) or _in_one_folder(files, name)
            if member is None or member.bytes > _MOST_MANIFEST:
                continue
            with open(tar, "rb") as file:
                text = os.pread(file.fileno(), member.bytes, member.start).decode("utf-8", "replace")
            above = member.path.removesuffix(name)

            def beside(path: str, above: str = above) -> tuple[Path, TarMember | None]:
                return tar, files.find(above + path)

            try:
                return read(text, beside)
            except (SchemaError, TypeError, ValueError, AttributeError):  # a file that happens to be called so
                continue
        return _of_pictures(files)


def pictures(files: TarIndex) -> Iterable[TarMember]:
    """The files that are pictures by their names, in the order of their paths."""
    after = ""
    while page := files.page(after=after, limit=_PAGE):
        yield from (file for file in page if is_picture(file.path))
        after = page[-1].path


def is_picture(path: str) -> bool:
    """Whether a file is a picture by its name."""
    return path.lower().endswith(_PICTURES)


def _in_one_folder(files: TarIndex, name: str) -> TarMember | None:
    """The file in the folder that holds all, if there is one."""
    first = files.page(limit=1)
    folder, slash, _ = first[0].path.partition("/") if first else ("", "", "")
    return files.find(f"{folder}/{name}") if slash else None


def _of_shards(text: str, _: Beside) -> Card:
    found = ShardManifest.from_json(text, place=SHARDS)
    return {
        "type": "shards",
        "images": int(found.samples),
        "classes": _classes(found.counts, found.class_names),
        "shards": len(found.shards),
        "source": str(found.source),
    }


def _of_splits(text: str, _: Beside) -> Card:
    found = SplitManifest.from_json(text, place=SPLITS)
    splits = [
        {"name": str(part.index), "images": int(part.rows), "classes": _classes(part.counts, found.class_names)}
        for part in found.splits
    ]
    return {
        "type": "splits",
        "images": sum(part.rows for part in found.splits),
        "classes": _classes(sum((Counter(part.counts) for part in found.splits), Counter()), found.class_names),
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
    return card if counts is None else card | {"classes": _classes(counts, found.class_names)}


def _labels(cache: CacheManifest, beside: Beside) -> Counter[int] | None:
    """Rows by label, out of a cache's files; None where they are not what its manifest says."""
    import pyarrow as pa  # not before there is a cache: it takes a quarter of the memory that the service may have
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
    except (pa.ArrowException, OSError, KeyError, TypeError):  # whatever lies there under this name; rows without label
        return None
    return counts


_MANIFESTS: Mapping[str, Callable[[str, Beside], Card]] = {SHARDS: _of_shards, SPLITS: _of_splits, CACHE: _of_cache}


def _of_pictures(files: TarIndex) -> Card:
    """Pictures by the folder in which they lie, and by the one above where there are several: train/cat/1.jpg."""
    images = 0
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by the folder above
    folders = 0
    for file in pictures(files):
        images += 1
        if folders <= _MOST_FOLDERS:
            above, _, label = file.path.rpartition("/")[0].rpartition("/")
            folders += label not in found[above]
            found[above][label] += 1
    if not images:
        return {"type": "files"}
    card: Card = {"type": "images", "images": images}
    if folders > _MOST_FOLDERS:
        return card  # folders that are no classes
    classes: Counter[str] = Counter()
    for counts in found.values():
        classes.update(counts)
    del classes[""]  # of those that lie in no folder
    if classes:
        card["classes"] = _first(classes)
    if len(found) in range(2, _MOST_SPLITS + 1) and "" not in found:
        common = os.path.commonpath(found)  # the folder that holds all, if there is one
        card["splits"] = [
            {
                "name": above.removeprefix(f"{common}/"),
                "images": counts.total(),
                "classes": _first({label: count for label, count in counts.items() if label}),
            }
            for above, counts in sorted(found.items())
        ]
    return card


def _classes(counts: Mapping[int, int], names: Mapping[int, str]) -> dict[str, int]:
    return _first({str(names.get(number, number)): int(count) for number, count in sorted(counts.items())})


def _first(counts: Mapping[str, int]) -> dict[str, int]:
    """So many as a page can show, by name."""
    return dict(sorted(counts.items())[:_MOST_CLASSES])
