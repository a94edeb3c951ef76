"""Listing image trees: ``DIR/SPLIT/CLASS/**/image``, or ``DIR/CLASS/**/image`` where there are no split folders.

The driver lists the class folders, executors what is below them. Names are raw bytes; only what goes into text columns
is made text, by `text`. Whatever is not a regular file comes out too, with the reason why it cannot be taken.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from etl.errors import SourceError
from schemas import image_id

_BATCH_ROWS = 1000
_LOOSE = b""
"""Stands for the files of a split folder that are in no class folder; no folder has this name."""

FOLDERS = "or_split BINARY NOT NULL, folder BINARY NOT NULL"
FILES = "id BINARY NOT NULL, or_split BINARY NOT NULL, path BINARY NOT NULL, bytes BIGINT NOT NULL, reason STRING"
"""A listed file: ``path`` is relative to ``DIR/SPLIT``, and ``reason`` is null if it can be read."""

_ARROW_FILES = pa.schema(
    [
        pa.field("id", pa.binary(), nullable=False),
        pa.field("or_split", pa.binary(), nullable=False),
        pa.field("path", pa.binary(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
    ]
)


class ListedFile(NamedTuple):
    """Something below a class folder that is no folder; ``reason`` says why it cannot be an image, if so."""

    path: bytes
    size: int
    reason: str | None


def text(name: bytes) -> str:
    r"""A raw name as text: its UTF-8, with backslash escapes (``\xff``) for what is none."""
    return name.decode("utf-8", "backslashreplace")


def class_folders(root: bytes, splits: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The class folders as sorted (split, name); ``splits`` is ``[b""]`` for a tree without split folders.

    Raises `SourceError` if a split folder has no class folders, or two whose names are the same as text.
    """
    found = []
    for split in splits:
        place = os.path.join(root, split) if split else root
        try:
            names = sorted(entry.name for entry in os.scandir(place) if _is_folder(entry))
        except OSError as error:
            raise SourceError(f"Wanted class folders in {text(place)}. Found: {error.strerror}.") from None
        if not names:
            below = " Are they one level deeper? Then name the folder between with --split-subdir." if not split else ""
            raise SourceError(f"Wanted a folder for every class in {text(place)}. Found: no folders there.{below}")
        if len({text(name) for name in names}) < len(names):
            raise SourceError(f"Wanted class folders whose names differ as text in {text(place)}. Found: {names}")
        found += [(split, name) for name in names]
    return found


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def list_files(spark: SparkSession, folders: Sequence[tuple[bytes, bytes]], *, root: bytes, dataset: str) -> DataFrame:
    """Every file below these class folders, and the loose ones beside them, as the rows of `FILES`; in no order.

    ``folders`` are (split, name); a split's loose files are listed with it.
    """
    places = [*folders, *((split, _LOOSE) for split in sorted({split for split, _ in folders}))]
    frame = spark.createDataFrame([(bytearray(split), bytearray(name)) for split, name in places], FOLDERS)
    tasks = min(len(places), 4 * spark.sparkContext.defaultParallelism)
    list_batches = partial(_list_batches, root=root, dataset=dataset)
    return frame.repartition(tasks, "or_split", "folder").mapInArrow(list_batches, FILES)


def _list_batches(batches: Iterable[pa.RecordBatch], *, root: bytes, dataset: str) -> Iterator[pa.RecordBatch]:
    """The task: (or_split, folder) in, rows of `FILES` out."""
    places = (
        place for batch in batches for place in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    files = ((split, file) for split, folder in places for file in _below(root, split, folder))
    while rows := list(islice(files, _BATCH_ROWS)):
        ids = [image_id(dataset, split, file.path).bytes for split, file in rows]
        columns = [
            ids,
            [split for split, _ in rows],
            [file.path for _, file in rows],
            [file.size for _, file in rows],
            [file.reason for _, file in rows],
        ]
        yield pa.record_batch(columns, schema=_ARROW_FILES)


def _below(root: bytes, split: bytes, folder: bytes) -> Iterator[ListedFile]:
    base = os.path.join(root, split) if split else root
    if folder != _LOOSE:
        return walk(base, folder)
    return loose_files(base)


def loose_files(base: bytes) -> Iterator[ListedFile]:
    """What lies beside the class folders, where no image can be."""
    with os.scandir(base) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not _is_folder(entry):
                file = _look_at(base, entry.name)
                yield file._replace(reason=file.reason or "outside a class folder")


def walk(base: bytes, folder: bytes) -> Iterator[ListedFile]:
    """Every file at any depth below ``base/folder``, folders in name order; links are followed, loops are not.

    Raises `SourceError` if the folder is not there at all: then this machine does not see the driver's files.
    """
    try:
        found = os.stat(os.path.join(base, folder))
    except FileNotFoundError:
        raise SourceError(
            f"Wanted the folder {text(os.path.join(base, folder))} on this executor. Found: nothing there. "
            "The tree must be at the same place on the driver and on every executor: use a shared file system."
        ) from None
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(folder, ((found.st_dev, found.st_ino),))]
    while pending:
        path, above = pending.pop()
        try:
            with os.scandir(os.path.join(base, path)) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            yield ListedFile(path, 0, f"unreadable folder: {error.strerror}")
            continue
        deeper = []
        for name in names:
            inner = os.path.join(path, name)
            try:
                found = os.stat(os.path.join(base, inner))
            except OSError:
                yield _look_at(base, inner)
                continue
            here = (found.st_dev, found.st_ino)
            if not stat.S_ISDIR(found.st_mode):
                yield _judge(inner, found)
            elif here in above:
                yield ListedFile(inner, 0, "link loop: it leads to a folder that it is in")
            else:
                deeper.append((inner, (*above, here)))
        pending += reversed(deeper)


def _look_at(base: bytes, path: bytes) -> ListedFile:
    try:
        return _judge(path, os.stat(os.path.join(base, path)))
    except FileNotFoundError:
        return ListedFile(path, 0, "broken link: it leads nowhere")
    except OSError as error:
        if error.errno == errno.ELOOP:
            return ListedFile(path, 0, "link loop: it leads to itself")
        return ListedFile(path, 0, f"unreadable: {error.strerror}")


def _judge(path: bytes, found: os.stat_result) -> ListedFile:
    if stat.S_ISREG(found.st_mode):
        return ListedFile(path, found.st_size, None)
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "something else")
    return ListedFile(path, 0, f"not a regular file: {kind}")
