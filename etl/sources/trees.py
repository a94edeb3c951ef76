"""Listing of image trees: ``DIR/SPLIT/CLASS/**/image``, ``DIR/CLASS/**/image``, or trees without class folders.

The driver lists the topmost folders, and executors list the files below them. Names are raw bytes; they become text
only in text columns. Anything that is not a regular file is listed too, with the reason why it cannot be used.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.secrets import driver_storage, executor_storage
from etl.sources.entries import ENTRIES, NO_CLASS_FOLDERS, Entry, Listing, entry_batches, text
from etl.sources.plan import SourcePlan
from etl.workers import map_items
from formats.errors import StorageError
from formats.image_names import OPTIONS_RECORD, OUTSIDE, is_hidden, left_out
from formats.stores.storage import Storage
from schemas.identity import image_ids

_BELOW, _LOOSE, _WHOLE = "below", "loose", "whole"
_LOOKED_AT = 20_000  # objects of an S3 prefix that the driver examines to find its folders


class ListedFile(NamedTuple):
    """A file below a folder. ``reason`` is why it cannot be an image, if so."""

    path: bytes
    size: int
    reason: str | None


def list_tree(spark: SparkSession, address: str, *, plan: SourcePlan, dataset: str) -> Listing:
    """List all files of a local or remote tree, below the split folders of the plan. Raises `SourceError` if there are
    no files or no class folders, possibly later, in a task on a machine that does not see the driver's files.
    """
    tree = _open_tree(address, partial(driver_storage, spark))
    # An object store may have too many objects for the driver.
    limit = None if plan.by_folder or isinstance(tree, LocalTree) else _LOOKED_AT
    places: list[tuple[bytes, bytes, str]] = []
    classes: set[str] = set()
    for split in plan.split_names or [b""]:
        folders, others = _top(tree, split, limit=limit)
        if plan.by_folder:
            _check_classes(folders, place=text(tree.base(split)))
            classes.update(text(name) for name in folders or () if not is_hidden(name))
        elif not folders and not others:
            raise SourceError(f"Wanted images in {text(tree.base(split))}. Found: nothing there.")
        if folders is None:  # so many objects that one task lists all of them
            places.append((split, b"", _WHOLE))
        else:
            places += [(split, folder, _BELOW) for folder in folders]
            places += [(split, b"", _LOOSE)] * others
    list_batches = partial(_list_batches, address=address, plan=plan, dataset=dataset)
    entries = map_items(spark, places, task=list_batches, schema=ENTRIES)
    return Listing(entries=entries, classes=frozenset(classes))


def local_path(address: str) -> bytes | None:
    """The absolute path of a local address, or None."""
    if "://" not in address or address.startswith("/"):
        return os.path.abspath(os.fsencode(address))
    if address.startswith("file://"):
        return os.path.abspath(os.fsencode(address.removeprefix("file://")))
    return None


def _check_classes(folders: Sequence[bytes] | None, *, place: str) -> None:
    if not folders:
        raise SourceError(
            f"Wanted a folder for each class in {place}. Found: no folders. If this is the folder of one class, use "
            f"its parent folder. {NO_CLASS_FOLDERS}"
        )
    if len({text(name) for name in folders}) < len(folders):
        raise SourceError(f"Wanted class folders whose names differ as text in {place}. Found: {folders}")


def _top(tree: "LocalTree | StoredTree", split: bytes, *, limit: int | None) -> tuple[list[bytes] | None, bool]:
    """The direct subfolders of a split, sorted, and whether there are files; None for more than ``limit`` of both."""
    folders, others = [], False
    try:
        for count, (name, is_folder) in enumerate(tree.contents(split)):
            if count == limit:
                return None, True
            if is_folder:
                folders.append(name)
            others = others or not is_folder
    except OSError as error:
        raise _unlisted(error, tree.base(split)) from None
    return sorted(folders), others


def _list_batches(
    places: Iterable[tuple[bytes, bytes, str]], *, address: str, plan: SourcePlan, dataset: str
) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes places and yields entries."""
    tree = _open_tree(address, executor_storage)
    yield from entry_batches(
        entry
        for split, folder, what in places
        for entry in _entries(tree, split, folder, what, plan=plan, dataset=dataset)
    )


def _entries(
    tree: "LocalTree | StoredTree", split: bytes, folder: bytes, what: str, *, plan: SourcePlan, dataset: str
) -> Iterator[Entry]:
    name, start = split or plan.or_split.encode(), os.path.join(tree.base(split), b"")
    number = image_ids(dataset, name)
    label = text(folder) if what == _BELOW else None
    outside = OUTSIDE if plan.by_folder and what == _LOOSE else None
    try:
        for path, size, reason in tree.loose(split) if what == _LOOSE else tree.below(split, folder):
            if path == OPTIONS_RECORD.encode():
                continue
            if what == _WHOLE:
                first, deeper, _ = path.partition(b"/")
                label = text(first) if deeper else None
            is_no_image = left_out(path, by_extension=False)
            because = reason or is_no_image or outside
            of_class = None if is_no_image else label
            yield Entry(number(path), name, path, of_class, None, start + path, None, size, reason=because)
    except OSError as error:
        raise _unlisted(error, tree.base(split)) from None


def _open_tree(address: str, storage_at: Callable[[str], Storage]) -> "LocalTree | StoredTree":
    local = local_path(address)
    return LocalTree(local) if local else StoredTree(address, storage_at(address))


class LocalTree:
    """A tree in the local file system."""

    def __init__(self, root: bytes) -> None:
        self._root = root

    def base(self, split: bytes) -> bytes:
        """The place of a split's folder."""
        return os.path.join(self._root, split) if split else self._root

    def contents(self, split: bytes) -> Iterator[tuple[bytes, bool]]:
        """The names directly in a split, and whether they are folders."""
        with os.scandir(self.base(split)) as entries:
            for entry in entries:
                yield entry.name, _is_folder(entry)

    def below(self, split: bytes, folder: bytes) -> Iterator[ListedFile]:
        """Every file at any depth below a folder."""
        return walk(self.base(split), folder)

    def loose(self, split: bytes) -> Iterator[ListedFile]:
        """The files that are directly in a split, outside of its folders."""
        return loose_files(self.base(split))


class StoredTree:
    """A tree at an address. Objects are files, and folders are common prefixes of names."""

    def __init__(self, address: str, storage: Storage) -> None:
        self._address = os.fsencode(address.rstrip("/"))
        self._storage = storage

    def base(self, split: bytes) -> bytes:
        """The place of a split's folder."""
        return self._address + b"/" + split if split else self._address

    def contents(self, split: bytes) -> Iterator[tuple[bytes, bool]]:
        """The names directly in a split, and whether they are folders."""
        for name, _, is_folder in self._storage.entries(os.fsdecode(split)):
            yield os.fsencode(name), is_folder

    def below(self, split: bytes, folder: bytes) -> Iterator[ListedFile]:
        """Every file at any depth below a folder, or below a whole split."""
        start = folder + b"/" if folder else b""
        for name, size in self._storage.walk(os.fsdecode(b"/".join(filter(None, (split, folder))))):
            yield ListedFile(start + os.fsencode(name), size, None)

    def loose(self, split: bytes) -> Iterator[ListedFile]:
        """The files that are directly in a split, outside of its folders."""
        for name, size, is_folder in self._storage.entries(os.fsdecode(split)):
            if not is_folder:
                yield ListedFile(os.fsencode(name), size, None)


def _unlisted(error: OSError, place: bytes) -> SourceError:
    if isinstance(error, StorageError):
        return SourceError(str(error))
    return SourceError(f"Wanted a folder of images at {text(place)}. Found: {error.strerror or error}.")


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _missing(folder: bytes) -> SourceError:
    return SourceError(
        f"Wanted the folder {text(folder)} on this executor. Found: nothing there. "
        "The tree must have the same path on the driver and on every executor: use a shared file system."
    )


def loose_files(base: bytes) -> Iterator[ListedFile]:
    """The direct contents of a folder without subfolders, in name order. Raises `SourceError` if there is no folder."""
    try:
        with os.scandir(base) as entries:
            names = sorted(entry.name for entry in entries if not _is_folder(entry))
    except FileNotFoundError:
        raise _missing(base) from None
    for name in names:
        yield _look_at(base, name)


def walk(base: bytes, folder: bytes) -> Iterator[ListedFile]:
    """Every file at any depth below ``base/folder``, with folders in name order. Links are followed, except loops.
    Raises `SourceError` if the folder is missing: then this machine does not see the driver's files.
    """
    try:
        above = tuple((found.st_dev, found.st_ino) for found in map(os.stat, (base, os.path.join(base, folder))))
    except FileNotFoundError:
        raise _missing(os.path.join(base, folder)) from None
    if above[0] == above[1]:
        yield ListedFile(folder, 0, "link loop: it leads to a folder that it is in")
        return
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(folder, above)]
    while pending:
        path, above = pending.pop()
        try:
            with os.scandir(os.path.join(base, path)) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            yield ListedFile(path, 0, f"unreadable folder: {error.strerror}")
            continue
        deeper = []
        start = path + b"/"
        whole = os.path.join(base, start)
        for name in names:
            inner = start + name
            try:
                found = os.stat(whole + name)
            except OSError:
                yield _look_at(base, inner)
                continue
            if stat.S_ISREG(found.st_mode):
                yield ListedFile(inner, found.st_size, None)
                continue
            if not stat.S_ISDIR(found.st_mode):
                yield _judge(inner, found)
                continue
            here = (found.st_dev, found.st_ino)
            if here in above:
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
