"""Tasks on executors: measuring samples, and writing a shard as one stream."""

import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

from etl.batches import arrow_schema, batch_of
from etl.errors import EtlError, one_line
from etl.ingest.writing.progress import Counters
from etl.pictures.images import RejectedError
from etl.pictures.plan import Check
from etl.secrets import executor_storage
from etl.shards.reading import Listed, Packed, PictureTable, from_files, from_table
from etl.shards.rows import listed_rows, packed_row, sharded
from etl.shards.samples import Sample, measured
from etl.sources.entries import Entry, text
from formats.errors import FormatsError
from formats.shards.layout import ShardWriter, index_name, keys, shard_name
from formats.stores.storage import Storage
from schemas.shards import NAME as MANIFEST
from schemas.shards import Piece, Shard
from schemas.tables import LabelType

# The order of an image, its size in a shard, and a digest of all its listed values.
MEASURES = "order BIGINT, size BIGINT, digest BIGINT"

# The result of a shard as JSON: one row of kind ``shard``, and one of kind ``rejected`` for each rejected image.
RESULTS = "kind STRING, text STRING"

# The suffix of a file with the result of a task, which exists until all shards do, so that resuming can skip it.
DONE = ".done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """The parameters of a task that writes shards. ``firsts`` has the number of images before each shard. ``is_made``
    says that rows are those of `MADE`. ``published`` has the SHA-256 of shards that the current manifest names, by
    name.
    """

    address: str
    tag: str
    firsts: tuple[int, ...]
    label_type: LabelType
    check: Check
    pictures: PictureTable | None = None
    resume: bool = False
    is_made: bool = False
    published: Mapping[str, str] = field(default_factory=dict, repr=False)
    counters: Counters = field(repr=False)

    def name(self, shard: int) -> str:
        """The file name of a shard."""
        return shard_name(self.tag, shard, len(self.firsts) - 1)


def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes rows of `SAMPLES` and yields rows of `MEASURES`. Entries with a reason have size 0."""
    for batch in batches:
        listed = listed_rows(batch)
        rows = [(order, *measured(entry, label=label, checksum=checksum)) for order, label, checksum, entry in listed]
        yield batch_of(rows, arrow_schema(MEASURES))


def write_shards(batches: Iterable[pa.RecordBatch], *, order: ShardOrder) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes rows of `SAMPLES` or `MADE` with ``shard``, in order, and yields rows of `RESULTS`."""
    rows = (row for batch in batches for row in sharded(batch))
    for shard, group in groupby(rows, key=lambda row: row[0]):
        given = (row for _, *row in group)
        with closing(_packed(given, order)) as packed:
            if found := list(_write(shard, packed, order=order)):
                yield batch_of(found, arrow_schema(RESULTS))
        for _ in given:  # the rest, if the shard existed already
            pass


def _packed(rows: Iterator[list[Any]], order: ShardOrder) -> Generator[Packed, None, None]:
    if order.is_made:
        yield from map(packed_row, rows)
        return
    listed = (Listed(order, label, checksum, Entry(*entry)) for order, label, checksum, *entry in rows)
    if order.pictures is not None:
        yield from from_table(listed, pictures=order.pictures, check=order.check)
    else:
        yield from from_files(listed, label_type=order.label_type, check=order.check)


def _write(shard: int, packed: Iterator[Packed], *, order: ShardOrder) -> Iterator[tuple[str, str]]:
    """Write one shard; return a row for it, and a row for each rejected image."""
    storage, name = executor_storage(order.address), order.name(shard)
    if order.resume and (told := _done(storage, name)) is not None:
        there, _ = shard_of(told[0][1])
        order.counters.count(images=there.samples, bytes=there.bytes)
        yield from told
        return
    rejected: list[tuple[str, str]] = []
    numbered = _numbered(packed, shard, rejected, order=order)
    first = next(numbered, None)
    results = rejected
    if first is not None:  # there is no shard if all its files are damaged
        counts: Counter[int] = Counter()
        with write_errors(storage, name):
            with storage.create(name) as write:
                writer = ShardWriter(write)
                for key, sample in chain([first], numbered):
                    writer.add(key, sample.members)
                    if sample.label is not None:
                        counts[sample.label] += 1
                row = writer.end(name)
                order.counters.count(images=row.samples, bytes=row.bytes)
                if order.published.get(name, row.sha256) != row.sha256:  # other images with the same names and sizes
                    storage.remove(MANIFEST)  # it would be wrong if this run were killed after the next step
                    storage.settle([])  # its removal, before the shard changes
            storage.write_bytes(index_name(name), writer.index.encode(), durable=True)
            results = [("shard", json.dumps({**asdict(row), "counts": counts})), *rejected]
            storage.write_bytes(name + DONE, json.dumps(results).encode())
    yield from results


@contextmanager
def write_errors(storage: Storage, name: str) -> Iterator[None]:
    """Translate errors of a disk into one line for the user."""
    try:
        yield
    except FormatsError:
        raise
    except OSError as error:
        if error.strerror is None and str(error).startswith("Wanted "):  # another process has ended the upload
            raise EtlError(f"{error}. Does another run of the same images write there?") from None
        words = error.strerror or one_line(error)
        raise EtlError(f"Wanted to write {storage.address}/{name}. Found: {words}.") from None


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
    """The stored result of a complete shard of an earlier run."""
    try:
        told = [(str(kind), str(one)) for kind, one in json.loads(storage.read_bytes(name + DONE))]
        there = storage.size(name) == json.loads(told[0][1])["bytes"] and storage.exists(index_name(name))
    except (FileNotFoundError, ValueError, TypeError, LookupError):
        return None
    return told if there else None


def shard_of(text: str) -> tuple[Shard, dict[int, int]]:
    """Parse a row of kind ``shard``: the shard, and its samples by class number."""
    found = json.loads(text)
    counts = {int(label): rows for label, rows in found.pop("counts").items()}
    return Shard(**{**found, "pieces": tuple(Piece(**one) for one in found["pieces"])}), counts
