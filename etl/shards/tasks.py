"""What runs on executors: measuring samples, making pictures anew, and writing a shard in one stream."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from typing import Any, TypeAlias

import pyarrow as pa

from etl.entries import ENTRIES, Entry, text
from etl.images import Check, RejectedError
from etl.pictures import Preparation, prepare
from etl.progress import Counters
from etl.reading import Reader
from etl.secrets import executor_storage
from etl.shards.plan import Compression
from etl.shards.reading import Packed, PictureTable, Placed, companion_extension, fetched, from_files, from_table
from etl.shards.samples import EXTENSIONS, Sample, compressed, facts, listed_size
from formats.shards import ShardWriter, index_name, keys, shard_name
from formats.storage import Storage
from schemas.shards import Piece, Shard
from schemas.tables import LabelType

SAMPLES = f"order BIGINT, label INT, {ENTRIES}"
"""An image that is to be packed: the number it is put in order by, its class number, and its entry."""
MEASURES = "order BIGINT, size BIGINT"
MADE = (
    "order BIGINT, label INT, id BINARY, or_split BINARY, path BINARY, size BIGINT, extension STRING, data BINARY, "
    "facts BINARY, companion_extension STRING, companion BINARY, reason STRING"
)
"""A sample with its files; one with a ``reason`` was rejected, and has none."""
RESULTS = "kind STRING, text STRING"
"""What became of a shard, as JSON: one row of kind ``shard``, and one of kind ``rejected`` for each image left out."""

DONE = ".done"
"""Beside a shard until all are there: what its task told, so that it need not be written again."""

_ARROW_MEASURES = pa.schema([("order", pa.int64()), ("size", pa.int64())])
_ARROW_MADE = pa.schema(
    [
        ("order", pa.int64()),
        ("label", pa.int32()),
        *((name, pa.binary()) for name in ("id", "or_split", "path")),
        ("size", pa.int64()),
        ("extension", pa.string()),
        *((name, pa.binary()) for name in ("data", "facts")),
        ("companion_extension", pa.string()),
        ("companion", pa.binary()),
        ("reason", pa.string()),
    ]
)
_ARROW_RESULTS = pa.schema([("kind", pa.string()), ("text", pa.string())])
_BATCH_BYTES = 8 << 20

_Listed: TypeAlias = tuple[int, int | None, Entry]
_AS_THEY_ARE = (
    "id",
    "or_split",
    "path",
    "or_label",
    "group_id",
    "place",
    "offset",
    "label_place",
    "label_offset",
    "reason",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """What a task needs to know to write its shards; ``firsts``: how many images lie before each shard."""

    address: str
    tag: str
    firsts: tuple[int, ...]
    label_type: LabelType
    check: Check
    pictures: PictureTable | None = None
    resume: bool = False
    counters: Counters = field(repr=False)

    def name(self, shard: int) -> str:
        """The file of a shard."""
        return shard_name(self.tag, shard, len(self.firsts) - 1)


def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: rows of `SAMPLES` in, rows of `MEASURES` out; entries with a reason take nothing."""
    for batch in batches:
        rows = _rows(batch)
        sizes = [0 if entry.reason else listed_size(entry, label=label) for _, label, entry in rows]
        yield pa.record_batch([[order for order, _, _ in rows], sizes], schema=_ARROW_MEASURES)


def make(
    batches: Iterable[pa.RecordBatch],
    *,
    preparation: Preparation,
    compress: Compression,
    pictures: PictureTable | None = None,
) -> Iterator[pa.RecordBatch]:
    """The task: rows of `SAMPLES`, perhaps with ``data`` behind, in; rows of `MADE` out, in the same order."""
    rows = (row for batch in batches for row in _rows(batch))
    with Reader() as reader:
        held: list[tuple[Any, ...]] = []
        size = 0
        for order, label, entry, source in _with_pictures(rows, reader, pictures):
            held.append(_made(order, label, entry, source, preparation, compress))
            size += held[-1][5]
            if size > _BATCH_BYTES:
                yield _batch(held, _ARROW_MADE)
                held, size = [], 0
        if held:
            yield _batch(held, _ARROW_MADE)


class _Held(Reader):
    """Reads what is at hand already."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def read(self, place: bytes, offset: int | None, size: int) -> bytes:
        return self._data


def _with_pictures(
    rows: Iterator[_Listed], reader: Reader, pictures: PictureTable | None
) -> Iterator[tuple[int, int | None, Entry, Reader]]:
    """Rows with what reads their files; those of a table bring their pictures along."""
    if pictures is None:
        yield from ((*row, reader) for row in rows)
        return
    orders: deque[int] = deque()

    def placed() -> Iterator[Placed]:
        for order, label, entry in rows:
            orders.append(order)
            yield Placed(label, entry)

    for row, found in fetched(placed(), pictures=pictures):
        entry = row.entry
        if isinstance(found, RejectedError):
            yield orders.popleft(), row.label, entry._replace(reason=str(found)), reader
            continue
        data, companion = found
        entry = entry._replace(data=data)
        if companion is not None:
            entry = entry._replace(label_place=b"", label_size=len(companion))
        yield orders.popleft(), row.label, entry, _Held(companion or b"")


def write_listed(batches: Iterable[pa.RecordBatch], *, order: ShardOrder) -> Iterator[pa.RecordBatch]:
    """The task: rows of `SAMPLES` and their ``shard``, in order, in; rows of `RESULTS` out. Pictures are read here."""
    rows = ((row["shard"], _placed(row)) for batch in batches for row in batch.to_pylist())
    for shard, group in groupby(rows, key=lambda row: row[0]):
        placed = (one for _, one in group)
        if order.pictures is not None:
            packed = from_table(placed, pictures=order.pictures, check=order.check)
        else:
            packed = from_files(placed, label_type=order.label_type, check=order.check)
        with closing(packed):  # type: ignore[type-var]  # both are generators
            yield from _results(_write(shard, packed, order=order))
        for _ in placed:  # what was not asked for, where the shard was there already
            pass


def write_made(batches: Iterable[pa.RecordBatch], *, order: ShardOrder) -> Iterator[pa.RecordBatch]:
    """The task: rows of `MADE` and their ``shard``, in order, in; rows of `RESULTS` out."""
    rows = ((row["shard"], _packed(row)) for batch in batches for row in batch.to_pylist())
    for shard, group in groupby(rows, key=lambda row: row[0]):
        packed = (one for _, one in group)
        yield from _results(_write(shard, packed, order=order))
        for _ in packed:
            pass


def _write(shard: int, packed: Iterator[Packed], *, order: ShardOrder) -> Iterator[tuple[str, str]]:
    """One shard, and what became of it: a row for it, and one for each image that was left out."""
    storage, name = executor_storage(order.address), order.name(shard)
    if order.resume and (told := _done(storage, name)) is not None:
        order.counters.count(images=json.loads(told[0][1])["samples"])
        yield from told
        return
    rejected: list[tuple[str, str]] = []
    numbered = _numbered(packed, shard, rejected, order=order)
    first = next(numbered, None)
    results = rejected
    if first is not None:  # a shard of nothing but damaged files is no shard
        counts: Counter[int] = Counter()
        with storage.create(name) as write:
            writer = ShardWriter(write)
            for key, sample in chain([first], numbered):
                writer.add(key, sample.members)
                if sample.label is not None:
                    counts[sample.label] += 1
                order.counters.count(images=1, bytes=len(sample.data))
            row = writer.end(name)
        storage.write_bytes(index_name(name), writer.index.encode())
        results = [("shard", json.dumps({**asdict(row), "counts": counts})), *rejected]
        storage.write_bytes(name + DONE, json.dumps(results).encode())
    yield from results


def _numbered(
    packed: Iterator[Packed], shard: int, rejected: list[tuple[str, str]], *, order: ShardOrder
) -> Iterator[tuple[str, Sample]]:
    first, end = order.firsts[shard], order.firsts[shard + 1]
    for key, (row, sample) in zip(keys(first, end - first, order.firsts[-1]), packed, strict=True):
        if isinstance(sample, RejectedError):
            told = {"or_split": text(row.entry.or_split), "path": text(row.entry.path), "reason": str(sample)}
            rejected.append(("rejected", json.dumps(told)))
            order.counters.count(rejected=1)
        else:
            yield key, sample


def _done(storage: Storage, name: str) -> list[tuple[str, str]] | None:
    """What was told of a shard that is there, whole, from a run before."""
    try:
        told = [(str(kind), str(one)) for kind, one in json.loads(storage.read_bytes(name + DONE))]
        there = storage.size(name) == json.loads(told[0][1])["bytes"] and storage.exists(index_name(name))
    except (FileNotFoundError, ValueError, KeyError, IndexError):
        return None
    return told if there else None


def shard_of(text: str) -> tuple[Shard, dict[int, int]]:
    """A row of kind ``shard``: the shard, and its samples by class number."""
    found = json.loads(text)
    counts = {int(label): rows for label, rows in found.pop("counts").items()}
    return Shard(**{**found, "pieces": tuple(Piece(**one) for one in found["pieces"])}), counts


def _made(
    order: int, label: int | None, entry: Entry, reader: Reader, preparation: Preparation, compress: Compression
) -> tuple[Any, ...]:
    ids = (order, label, entry.id, entry.or_split, entry.path)
    try:
        if entry.reason is not None:
            raise RejectedError(entry.reason)
        picture = prepare(entry, reader, preparation=preparation)
        kind = companion_extension(picture.companion, label_type=preparation.label_type)
        extension, data = compressed(EXTENSIONS[picture.header.format], picture.data, compress=compress)
        sample = Sample(extension, data, label, facts(entry, label=label), kind, picture.companion)
    except RejectedError as error:
        return (*ids, 0, None, None, None, None, None, str(error))
    return (*ids, sample.size, extension, data, sample.facts, kind, sample.companion, None)


def _packed(row: dict[str, Any]) -> Packed:
    entry = Entry(row["id"], row["or_split"], row["path"], None, None, b"", None, 0, reason=row["reason"])
    placed = Placed(row["label"], entry)
    if row["reason"] is not None:
        return placed, RejectedError(row["reason"])
    companion = row["companion_extension"], row["companion"]
    return placed, Sample(row["extension"], row["data"], row["label"], row["facts"], *companion)


def _rows(batch: pa.RecordBatch) -> list[_Listed]:
    columns = [column.to_pylist() for column in batch.columns]
    return [(order, label, Entry(*rest)) for order, label, *rest in zip(*columns, strict=True)]


def _placed(row: dict[str, Any]) -> Placed:
    label, size, label_size = row["label"], row["bytes"], row["label_bytes"]
    rest = {name: row[name] for name in _AS_THEY_ARE}
    return Placed(label, Entry(**rest, size=size, label_size=label_size))


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schema)


def _results(rows: Iterator[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    if found := list(rows):
        yield _batch(found, _ARROW_RESULTS)
