"""Images as a tree of files instead of rows, for an ingest into a folder: no two images get the same name.

A name depends only on the split, class and path of an image, not on other files, so a later run finds the files of an
earlier one. For this reason, all changes to names are reversible.
"""

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from etl.batches import batch_of, rows_of
from etl.errors import EtlError
from etl.ingest.plan import IngestPlan
from etl.ingest.writing.outcomes import ARROW_OUTCOMES, OUTCOMES, THERE
from etl.ingest.writing.preparation import PreparedImage
from etl.pictures.images import RejectedError, disagrees, read_header
from etl.pictures.plan import EXTENSIONS, Recode, extension
from etl.secrets import executor_storage
from etl.sources.entries import Entry, text
from etl.sources.tars import unsafe
from etl.workers import map_batches
from formats.errors import StorageError
from formats.image_names import EXTENSIONS as FORMATS_BY_EXTENSION
from formats.stores.storage import Storage
from schemas.tables import LabelType

REJECTED = "rejected.csv"  # the list of rejected files, in the target folder

IMAGES, MASKS, ARRAYS = "images", "masks", "arrays"
_OF_THE_NAME = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL)
_NOTHING = (None, None, "")
_LITERAL_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")
_NOT_IN_LABELS = re.compile("/|%(?=2F|25)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTarget:
    """A folder that images are written to as ``SPLIT/PATH``, where paths start with the class."""

    address: str
    label_type: LabelType  # of arrays and masks: then there are two trees, `images` and `arrays` or `masks`
    by_folder: bool  # whether paths have the class already; otherwise it comes from a label file
    recode: Recode
    overwrite: bool = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator["FolderRows"]:
        """Open the storage. Raises `StorageError` if the folder cannot be reached."""
        yield FolderRows(self, executor_storage(self.address))

    @property
    def images(self) -> str:
        """The prefix of the names of images."""
        return f"{IMAGES}/" if self.label_type in ("blob", "multi") else ""

    def name(self, entry: Entry) -> str:
        """The name of an image in the folder (in ``images`` if there are masks or arrays)."""
        path = exact_text(entry.path)
        if self.label_type == "int" and not self.by_folder and entry.or_label is not None:
            path = f"{label_folder(entry.or_label)}/{path}"
        if self.recode.changes:
            format = self.recode.format
            path = with_ending(path, extension(format), format=format, is_strict=self.label_type in ("blob", "multi"))
        return f"{exact_text(entry.or_split)}/{path}" if entry.or_split else path

    def companions(self, entry: Entry) -> list[str]:
        """The names that an image's mask or array may have in the folder; none if it has neither."""
        if self.label_type not in ("blob", "multi") or entry.label_place is None:
            return []
        if self.label_type == "multi":
            return [f"{ARRAYS}/{with_extension(self.name(entry), '.npy')}"]
        is_own_file = entry.label_offset is None  # otherwise the path is that of an archive
        # A mask keeps the extension of its file if that fits its format, which is known when it is written.
        own = [text(entry.label_place).rpartition(".")[2]] if is_own_file and not self.recode.changes else []
        endings = dict.fromkeys([*own, EXTENSIONS["PNG"], *EXTENSIONS.values()])
        return [f"{MASKS}/{with_extension(self.name(entry), '.' + ending)}" for ending in endings]

    def companion(self, entry: Entry, data: bytes) -> tuple[str, list[str]]:
        """The name of an image's mask or array with these bytes, and the names that it had with another format."""
        first, *_ = names = self.companions(entry)
        if self.label_type == "multi":
            return first, []
        format = read_header(data, check="none").format
        ending = first.rpartition(".")[2].encode().lower()
        if format and FORMATS_BY_EXTENSION.get(ending) != format:
            first = with_extension(first, f".{EXTENSIONS[format]}")
        return first, [name for name in names if name != first]


class FolderRows:
    """Writes files aside and renames them when they are complete. Nothing is written for rejected images."""

    def __init__(self, target: FolderTarget, storage: Storage) -> None:
        self._target = target
        self._storage = storage

    async def accept(self, entry: Entry, prepared: PreparedImage, label: int | None, /) -> None:
        """Write an image, after its mask or array."""
        await asyncio.to_thread(self._write, entry, prepared)

    async def reject(self, entry: Entry, *, stage: str, reason: str) -> None:
        """Do nothing: the job writes the list of rejected files."""

    def _write(self, entry: Entry, prepared: PreparedImage) -> None:
        name = self._target.name(entry)
        if wrong := unsafe(os.fsencode(name)):  # a label may come from an untrusted file
            raise RejectedError(wrong)
        if {"", "."} & {*name.split("/")}:
            raise RejectedError("no such name in the target", "a part of it is empty or a dot")
        if self._target.images + name == REJECTED:
            raise RejectedError("no such name in the target", "it is reserved for the list of rejected files")
        try:
            if prepared.companion is not None and entry.label_place is not None:
                companion, others = self._target.companion(entry, prepared.companion)
                self._storage.write_bytes(companion, prepared.companion)
                for other in others if self._target.overwrite else ():
                    self._storage.remove(other)
            self._storage.write_bytes(self._target.images + name, prepared.data)
        except StorageError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _OF_THE_NAME:
                raise EtlError(
                    f"Wanted to write {name} into {self._target.address}. Found: {error.strerror or error}"
                ) from None
            raise RejectedError("no such name in the target", getattr(error, "strerror", None) or str(error)) from None


def folder_target(plan: IngestPlan) -> FolderTarget:
    """The target folder of a plan."""
    return FolderTarget(
        address=str(plan.target),
        label_type=plan.source.label_type,
        by_folder=plan.source.by_folder,
        recode=plan.recode,
        overwrite=plan.overwrite,
    )


def files_there(entries: DataFrame, *, target: FolderTarget) -> DataFrame:
    """Find images that exist in the folder with their masks or arrays, as rows of `OUTCOMES` without hashes."""
    return map_batches(entries.where("reason IS NULL"), task=partial(_look_for_files, target=target), schema=OUTCOMES)


def _look_for_files(batches: Iterable[pa.RecordBatch], *, target: FolderTarget) -> Iterator[pa.RecordBatch]:
    storage = executor_storage(target.address)
    for batch in batches:
        entries = [Entry(*row) for row in rows_of([batch])]
        rows = [
            (entry.id, None, text(entry.or_split), text(entry.path), storage.size(name), None, THERE, *_NOTHING)
            for entry in entries
            if _is_there(storage, name := target.images + target.name(entry))
            and (not (names := target.companions(entry)) or any(_is_there(storage, name) for name in names))
        ]
        yield batch_of(rows, ARROW_OUTCOMES)


def _is_there(storage: Storage, name: str) -> bool:
    return storage.exists(name) and storage.size(name) > 0  # a power cut may leave new files empty


def with_extension(path: str, ending: str) -> str:
    """Replace the extension of a path."""
    folder, slash, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    return f"{folder}{slash}{stem}{ending}"


def exact_text(raw: bytes) -> str:
    r"""A raw name as text: bytes that are not UTF-8 become ``\xff``, and a ``\`` that looks like that ``\x5c``."""
    return _LITERAL_ESCAPE.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


def label_folder(label: str) -> str:
    """The folder of a class from a label file: ``/`` becomes ``%2F``."""
    return _NOT_IN_LABELS.sub(lambda found: f"%{ord(found[0]):02X}", label)


def with_ending(path: str, ending: str, *, format: str, is_strict: bool = False) -> str:
    """The name of an image that was converted to ``format``, whose files end with ``ending`` (``.jpg``)."""
    if not ending:
        return path
    # a.jpg is unchanged, and so is a.JPEG unless `is_strict`; a.png becomes a.png.jpg; a name without a dot, a..jpg. A
    # name that looks as if it had been changed is changed again, so that a.png and a.png.jpg remain two files.
    folder, slash, name = path.rpartition("/")

    def is_foreign(name: str) -> bool:
        return not name.endswith(ending) if is_strict else disagrees(os.fsencode(name), format)

    def is_made(name: str) -> bool:
        before = name.removesuffix(ending)
        if before == name or "." not in before:
            return False
        return _is_bare(before) or is_foreign(before) or is_made(before)

    more = f".{ending}" if _is_bare(name) else ending if is_foreign(name) or is_made(name) else ""
    return f"{folder}{slash}{name}{more}"


def _is_bare(name: str) -> bool:
    """Whether a name has no dots except at its end."""
    return "." not in name.rstrip(".")
