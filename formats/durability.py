"""Files and folders on local disks that survive a power cut.

Without a sync, the system writes names and bytes to the disk in any order: after a power cut, a file may exist without
its contents. So sync the files that a manifest names and their folders (`sync_files`), then write the manifest
(`whole_file`), and only then remove what it replaces.
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
    """Sync a file, even one that another process wrote, or the names in a folder, to the disk. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network file systems do not sync folders because they need not, and a folder without read permission
        # cannot be opened.
        if error.errno not in _REFUSALS or not os.path.isdir(path):
            raise


def sync_files(paths: Iterable[str]) -> None:
    """Sync files to the disk, several at a time, and then all their parent folders. Raises OSError."""
    files = [os.path.abspath(path) for path in paths]
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="sync") as pool:
        for _ in pool.map(sync, files):
            pass
    sync_folders(*{os.path.dirname(path) for path in files})


def sync_folders(*paths: str) -> None:
    """Sync folders and their parents, any of which may be new, up to the mount point of their file system."""
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
def whole_file(path: str | os.PathLike[str], *, durable: bool = False, private: bool = False) -> Iterator[IO[bytes]]:
    """Write a local file that appears complete, under its name, when the block ends; with ``durable`` it then survives
    a power cut. Only its owner can read a ``private`` one. Parent folders are created. Raises OSError.
    """
    folder, last = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    aside = f"{folder}/.{last}.{secrets.token_hex(8)}"  # unique to this attempt, even among hosts
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb") as file:
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
