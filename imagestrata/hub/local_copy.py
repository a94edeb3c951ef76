"""Local copies of datasets: a link to a complete version.

::

    TO/NAME  ->  .imagestrata/NAME/3-0123abcd…/data          a relative link, so that TO can be mounted elsewhere
    TO/.imagestrata/NAME/3-0123abcd…/data/                   the dataset's files
                                    version.json             the version and the service
                         partial-SHA256                      the received bytes of the next version
                         lock                                held by the process that pulls

A new version replaces an older one by renaming a link over the old link, one step of the file system. If a pull is
killed, TO/NAME links to all of the old files or all of the new ones. Folders cannot be replaced in one step. The next
pull removes what a killed pull left.
"""

import ctypes
import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from formats.durability import sync
from imagestrata.hub.errors import DatasetError

_HOME, _DATA, _TOLD, _PARTIAL, _LOCK = ".imagestrata", "data", "version.json", "partial-", "lock"
_LOOK_UP_SECONDS = 0.1  # far longer than a look-up takes, also in a process that has to wait for a core
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LocalCopy:
    """The local copy of a dataset in a folder."""

    def __init__(self, to: Path, name: str) -> None:
        self.link = to / name
        self._home = to / _HOME / name

    def now(self) -> dict[str, Any] | None:
        """Describe the local version; None if there is none. Raises `DatasetError` if the path is not a copy."""
        try:
            target = os.readlink(self.link)
        except FileNotFoundError:
            return None
        except OSError:
            target = ""
        parts = Path(target).parts
        if len(parts) != 4 or parts[:2] != (_HOME, self.link.name) or parts[3] != _DATA:
            raise DatasetError(
                f"Wanted a free path for the dataset at {str(self.link)!r}. Found: something that no pull has made "
                "(move it away, or pull to another folder)"
            )
        with suppress(OSError, ValueError):
            found = json.loads((self.link.parent / target).with_name(_TOLD).read_text(encoding="utf-8"))
            if isinstance(found, dict) and (self.link.parent / target).is_dir():
                return found
        return None  # it was removed

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the copy for this process. Other pulls wait."""
        self._home.mkdir(parents=True, exist_ok=True)
        with FileLock(self._home / _LOCK):
            yield

    def partial(self, sha256: str) -> Path:
        """The file for the received bytes of a version."""
        return self._home / f"{_PARTIAL}{sha256}"

    def aside(self, number: int, sha256: str) -> Path:
        """Create a folder for the files of a version, without a link to it."""
        data = self._home / f"{number}-{sha256[:16]}-{secrets.token_hex(4)}" / _DATA
        data.mkdir(parents=True)
        return data

    def switch(self, data: Path, told: dict[str, Any]) -> None:
        """Sync a folder of `aside` to the disk, then make the link point to it."""
        data.with_name(_TOLD).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        _on_disk(data)
        link = self._home / f"link-{secrets.token_hex(4)}"
        os.symlink(data.relative_to(self.link.parent), link)
        os.replace(link, self.link)
        sync(self.link.parent)  # before the older files are removed
        # A reader that has just looked up the old link must still find the file behind it.
        time.sleep(_LOOK_UP_SECONDS)

    def sweep(self, *, besides: str | None = None) -> None:
        """Remove everything except the linked folder and the received bytes of the version with SHA-256 ``besides``."""
        kept = {_LOCK, f"{_PARTIAL}{besides}"}
        with suppress(OSError):
            kept.add(Path(os.readlink(self.link)).parts[2])
        for entry in os.scandir(self._home):
            if entry.name not in kept and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name not in kept:
                os.unlink(entry.path)


@contextmanager
def disk_errors(to: Path, size: int) -> Iterator[None]:
    """Turn errors of the file system into a `DatasetError` of one line."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter without support for locks
        found = (isinstance(error, OSError) and error.strerror) or error
        if isinstance(error, OSError) and error.errno in _FULL:
            raise DatasetError(
                f"Wanted space for a dataset of {size:,} bytes in {str(to)!r}, and twice as much to unpack it. Found: "
                f"{found} (free some space and pull again: the pull continues)"
            ) from error
        place = f" ({error.filename!r})" if isinstance(error, OSError) and error.filename else ""
        raise DatasetError(f"Wanted to write a dataset in {str(to)!r}. Found: {found}{place}") from error


def _on_disk(path: Path) -> None:
    """Sync a whole file system, because syncing thousands of files one by one would take minutes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if sync is None:
            os.sync()
        elif sync(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
