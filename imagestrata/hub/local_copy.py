"""Where pulled datasets lie: a link that leads to the newest one that is whole.

::

    TO/NAME  ->  .imagestrata/NAME/3-0123abcd…/data          a relative link: TO may be mounted elsewhere
    TO/.imagestrata/NAME/3-0123abcd…/data/                   the dataset's files
                                    version.json             which version they are, and from where
                         partial-SHA256                      what has come of the next version so far
                         lock                                of the one process that pulls

One version is replaced by another by renaming a link over the one before, which is one step of the file system:
whenever a pull is killed, TO/NAME leads to the old files or to the new ones, and to all of them. A folder could only be
moved away before the new one takes its place, and in between there is none. What a killed pull leaves is behind the
link, where no program looks, and goes with the next pull.
"""

import ctypes
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from formats.durability import sync
from imagestrata.hub.errors import DatasetError

_HOME, _DATA, _TOLD, _PARTIAL, _LOCK = ".imagestrata", "data", "version.json", "partial-", "lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LocalCopy:
    """The copy of one dataset in a folder."""

    def __init__(self, to: Path, name: str) -> None:
        self.link = to / name
        self._home = to / _HOME / name

    def now(self) -> dict[str, Any] | None:
        """What is known of the version that is here, None without one. Raises `DatasetError` for what is not ours."""
        try:
            target = os.readlink(self.link)
        except FileNotFoundError:
            return None
        except OSError:
            target = ""
        parts = Path(target).parts
        if len(parts) != 4 or parts[:2] != (_HOME, self.link.name) or parts[3] != _DATA:
            raise DatasetError(
                f"Wanted {str(self.link)!r} as a place for the dataset. Found: something there that no pull has made "
                "(move it away, or pull to another folder)"
            )
        with suppress(OSError, ValueError):
            found = json.loads((self.link.parent / target).with_name(_TOLD).read_text(encoding="utf-8"))
            if isinstance(found, dict) and (self.link.parent / target).is_dir():
                return found
        return None  # somebody has removed it

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have it for this process; another one that pulls there waits."""
        self._home.mkdir(parents=True, exist_ok=True)
        with FileLock(self._home / _LOCK):
            yield

    def partial(self, sha256: str) -> Path:
        """The file for what comes of a version."""
        return self._home / f"{_PARTIAL}{sha256}"

    def aside(self, number: int, sha256: str) -> Path:
        """A new folder for a version's files, which nothing leads to yet."""
        data = self._home / f"{number}-{sha256[:16]}-{secrets.token_hex(4)}" / _DATA
        data.mkdir(parents=True)
        return data

    def switch(self, data: Path, told: dict[str, Any]) -> None:
        """Have the link lead to a folder from `aside`, once all of it is on the disk."""
        data.with_name(_TOLD).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        _on_disk(data)
        link = self._home / f"link-{secrets.token_hex(4)}"
        os.symlink(data.relative_to(self.link.parent), link)
        os.replace(link, self.link)
        sync(self.link.parent)  # before the files that it led to until now go

    def sweep(self, *, besides: str | None = None) -> None:
        """Remove all but what the link leads to, and what has come of the version with SHA-256 ``besides``."""
        kept = {_LOCK, f"{_PARTIAL}{besides}"}
        with suppress(OSError):
            kept.add(Path(os.readlink(self.link)).parts[2])
        for entry in os.scandir(self._home):
            if entry.name not in kept and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name not in kept:
                os.unlink(entry.path)


@contextmanager
def disk_told(to: Path, size: int) -> Iterator[None]:
    """Turn what the file system refuses into a `DatasetError` of one line."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter of a file system without locks
        found = (isinstance(error, OSError) and error.strerror) or error
        if isinstance(error, OSError) and error.errno in _FULL:
            raise DatasetError(
                f"Wanted room for a dataset of {size:,} bytes in {str(to)!r}, twice while it is unpacked. Found: "
                f"{found} (make room and pull again: it goes on where it was)"
            ) from error
        place = f" ({error.filename!r})" if isinstance(error, OSError) and error.filename else ""
        raise DatasetError(f"Wanted to write a dataset in {str(to)!r}. Found: {found}{place}") from error


def _on_disk(path: Path) -> None:
    """Make all of a file system survive a power cut: syncing thousands of files one by one would take minutes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if sync is None:
            os.sync()
        elif sync(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
