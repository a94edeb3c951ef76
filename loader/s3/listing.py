"""The class folders of a bucket, listed in parallel, with a progress bar."""

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import TracebackType
from typing import TYPE_CHECKING, Self

from formats import StorageError
from formats.image_names import HIDDEN, MARKER, OUTSIDE, is_hidden, left_out
from loader.errors import SplitError, UnreachableError
from loader.folder.levels import Call, check_levels
from loader.s3.client import told
from loader.s3.listing_cache import Packed, packed

if TYPE_CHECKING:
    from formats.stores.storage import Storage

_THREADS = 16
_MOST_NAMED = 1000  # of the files that are left out; the others are only counted
_STEP = 1000  # names, between two looks
_SILENT_SECONDS = 2.0  # a short listing shows no progress
_LOOK_SECONDS = 0.2  # between two changes of the bar
_LINE_SECONDS = 10.0  # between two lines of the log

log = logging.getLogger(__name__)


class LeftOut:
    """The files of a listing that are no images: their numbers by reason, and the first thousand names."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.names: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, name: str, reason: str) -> None:
        """Count a file; several threads do."""
        with self._lock:
            self.counts[reason] += 1
            if len(self.names) < _MOST_NAMED:
                self.names.append((name, reason))

    def described(self) -> str:
        """The numbers as text."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.counts.items()))


def list_classes(storage: "Storage", *, call: Call | None) -> tuple[Mapping[str, Packed], list[tuple[str, str]]]:
    """The images of each class folder of an opened folder, at any depth, and the names of the files that were left out
    with the reasons, as `open_folder` leaves them out. Raises `SplitError` if there are no class folders, or a class
    has no image, with a ``call`` also if the classes are probably deeper (see `check_levels`), and `AccessError`,
    `UnreachableError`.
    """
    try:
        with _Progress(storage.address) as progress, ThreadPoolExecutor(_THREADS, "loader-listing") as pool:
            left = LeftOut()
            names = _class_names(storage, left)
            progress.classes = len(names)
            pending = {pool.submit(_class_files, storage, name, progress, left): name for name in names}
            try:
                found = {pending[done]: done.result() for done in as_completed(pending)}
            except BaseException:  # Ctrl-C too: each thread ends with its page
                progress.is_over = True
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except StorageError as error:
        raise told(error) from None
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
        raise UnreachableError(f"Wanted a listing of {storage.address}. Found: {reason}") from error
    files = {name: own for name, own in found.items() if own is not None}
    for name in sorted(found.keys() - files.keys()):  # without any file: an object NAME/ marks them
        left.add(f"{name}/", MARKER)
    _check_any(storage, files, len(left))
    if call is not None:
        check_levels(_folder_counts(files), place=storage.address, call=call)
    if empty := min((name for name, own in files.items() if not own), default=None):
        raise SplitError(f"Wanted an image in each class folder of {storage.address}. Found: none in {empty}")
    if left:
        log.info("%s: left out %s", storage.address, left.described())
    return {name: packed(name, own) for name, own in files.items()}, left.names


def _folder_counts(files: Mapping[str, Sequence[tuple[str, int]]]) -> Mapping[str, int]:
    """The images directly in each folder."""
    counts: Counter[str] = Counter()
    for name, own in files.items():
        counts.update(f"{name}/{file}".rpartition("/")[0] if "/" in file else name for file, _ in own)
    return counts


def _class_names(storage: "Storage", left: LeftOut) -> list[str]:
    try:
        entries = list(storage.entries())
    except (FileNotFoundError, NotADirectoryError):
        raise SplitError(f"Wanted a folder of class folders at {storage.address}. Found: no such folder") from None
    for name, _, is_folder in entries:
        if is_folder and is_hidden(os.fsencode(name)):
            left.add(f"{name}/", HIDDEN)
        elif not is_folder:
            left.add(name, left_out(os.fsencode(name), by_extension=True) or OUTSIDE)
    names = sorted(name for name, _, is_folder in entries if is_folder and not is_hidden(os.fsencode(name)))
    _check_any(storage, names, len(left))
    return names


def _check_any(storage: "Storage", names: Collection[str], others: int) -> None:
    if not names:
        found = f"{others:,} files" if others else "nothing"
        raise SplitError(f"Wanted a folder for every class in {storage.address}. Found: {found} and no folders")


def _class_files(storage: "Storage", name: str, progress: "_Progress", left: LeftOut) -> list[tuple[str, int]] | None:
    """The images below a class folder, relative to it, with their sizes; None if there is no file."""
    files, seen, is_empty = [], 0, True
    for file, size in storage.walk(name):
        is_empty = False
        reason = left_out(os.fsencode(file), by_extension=True)
        if reason is None:
            files.append((file, size))
        else:
            left.add(f"{name}/{file}", reason)
        seen += 1
        if seen == _STEP:
            progress.add(seen)
            seen = 0
    progress.add(seen, classes=1)
    return None if is_empty else files


class _Progress:
    """The progress of a listing: a bar on a terminal, else lines in the log; nothing within the first two seconds. Only
    the process that lists shows it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
        self._keys = self._done = 0
        self._started = time.monotonic()
        self.classes = 0
        self.is_over = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if kind is None:
            log.info("%s: %s", self._address, self._line())

    def add(self, keys: int, classes: int = 0) -> None:
        """Count what was listed."""
        if self.is_over:
            raise InterruptedError("cancelled")
        with self._lock:
            self._keys += keys
            self._done += classes

    def _line(self) -> str:
        seconds = time.monotonic() - self._started
        return f"listed {self._keys:,} files in {self._done:,} of {self.classes:,} classes, {seconds:,.0f} s"

    def _look(self) -> None:
        if self._ended.wait(_SILENT_SECONDS):
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError:  # it belongs to an extra
            is_shown = False
        else:
            is_shown = sys.stderr.isatty()
        if not is_shown:
            while not self._ended.wait(_LINE_SECONDS):
                log.info("%s: %s", self._address, self._line())
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._line(), total=None)
            while not self._ended.wait(_LOOK_SECONDS):
                bar.update(task, description=self._line(), completed=self._done, total=self.classes or None)
