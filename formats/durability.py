"""Files and folders on local disks that survive a power cut.

Without a sync, the system writes names and bytes to the disk in any order: after a power cut, a file may be there
without its bytes. So sync the files that a manifest names and the folders that lead to them (`sync_files`), then write
the manifest (`whole_file`), and only then remove what it replaces.
"""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO

_TOGETHER = 16
_REFUSALS = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EPERM)


def sync(path: str | os.PathLike[str]) -> None:
    """Put a file on the disk, also one that another process wrote, or the names in a folder. Raises OSError.

    Nothing happens for a folder where that is not possible: some network file systems refuse it, because they need no
    such request, and so do folders that we may not read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _REFUSALS or not os.path.isdir(path):
            raise


def sync_files(paths: Iterable[str]) -> None:
    """Put files on the disk, several at a time, then all folders that lead to them. Raises OSError."""
    files = [os.path.abspath(path) for path in paths]
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="sync") as pool:
        for _ in pool.map(sync, files):
            pass
    sync_folders(*{os.path.dirname(path) for path in files})


def sync_folders(*paths: str) -> None:
    """Put folders on the disk, and those above them: any may be new. It ends where their file system is mounted."""
    folders = set()
    for path in paths:
        folder = os.path.abspath(path)
        while folder not in folders:
            folders.add(folder)
            if os.path.ismount(folder):
                break
            folder = os.path.dirname(folder)
    for folder in sorted(folders, key=len, reverse=True):
        sync(folder)


@contextmanager
def whole_file(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[IO[bytes]]:
    """A local file that takes its place when the block ends, whole; the folders above it are made.

    With ``durable`` it survives a power cut from then on, under its name. Raises OSError.
    """
    folder, last = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    aside = f"{folder}/.{last}.{secrets.token_hex(8)}"  # of this attempt alone, whichever host another may be on
    try:
        with open(aside, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    if durable:
        sync_folders(folder)
