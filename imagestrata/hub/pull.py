"""Pulls: download a version to a partial file, check it, unpack it aside, then switch the link to it."""

import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from urllib3.exceptions import HTTPError

from imagestrata.hub.bar import Progress
from imagestrata.hub.errors import DatasetError
from imagestrata.hub.http import Connection, LostError, Response, Tries, words
from imagestrata.hub.local_copy import LocalCopy, disk_errors
from imagestrata.hub.names import version_in

_BLOCK = 1 << 20


def pull(
    connection: Connection, name: str, to: Path, version: int | None, show: Progress, *, keep: bool = False
) -> None:
    """Download a version to ``to/name``. Raises as `Datasets.pull`."""
    copy = LocalCopy(to, name)
    with disk_errors(to, 0):
        if keep and copy.now() is not None:
            return
    query = "" if version is None else f"?version={version}"
    card = connection.ask("GET", f"/datasets/{name}/card{query}", keys=("versions", "card")).json
    wanted = version_in(card, name, version, connection.service.url)
    if wanted is None:
        raise DatasetError(f"Wanted data of {name!r} at {connection.service.url}. Found: it is empty (push some)")
    size = int(wanted["bytes"])
    with disk_errors(to, size), copy.alone():
        now = copy.now()
        if _is_same(now, wanted) or (keep and now is not None):
            copy.sweep()
            return
        copy.sweep(besides=wanted["sha256"])
        partial = copy.partial(wanted["sha256"])
        _download(connection, wanted, partial, lambda done: show("download", done, size))
        data = copy.aside(wanted["version"], wanted["sha256"])
        if wanted["kind"] == "folder":
            _unpack(partial, data, wanted["files"], lambda done: show("unpack", done, wanted["files"]))
        else:
            os.rename(partial, data / wanted["filename"])
        copy.switch(data, wanted)
        copy.sweep()


def _is_same(now: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    keys = ("version", "sha256", "kind", "filename", "url")
    return now is not None and all(now.get(key) == wanted[key] for key in keys)


def _download(connection: Connection, wanted: dict[str, Any], partial: Path, tell: Callable[[int], None]) -> None:
    """Download all bytes to a file and check them. A file with other bytes is removed."""
    size, made = wanted["bytes"], hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(0)
        have = 0
        while count := file.readinto(buffer):
            made.update(buffer[:count])
            have += count
            tell(have)
        tries, most = Tries(connection.service), have
        while have < size:
            tell(have)
            try:
                with closing(_opened(connection, wanted, have)) as answer:
                    if have and answer.status == 200:  # the server has no ranges, or the bytes changed
                        file.seek(0)
                        file.truncate(0)
                        have, made = 0, hashlib.sha256()
                    while have < size:
                        block = _received(answer, min(_BLOCK, size - have))
                        made.update(block)
                        _write(file, memoryview(block))
                        have += len(block)
                        if have > most:  # a server without ranges starts again from 0, which is no progress
                            most = have
                            tries.progress()
                        tell(have)
            except LostError as error:
                tries.again(error)
        tell(have)
        if wanted["kind"] == "file":  # it is moved to the data: after a crash it would be downloaded again
            os.fsync(file.fileno())
    if made.hexdigest() != wanted["sha256"]:
        os.unlink(partial)
        raise DatasetError(
            f"Wanted {wanted['name']!r}, version {wanted['version']}, with SHA-256 {wanted['sha256']}. Found: "
            f"{made.hexdigest()} (the data are damaged at {wanted['url']} or in transit; pull again)"
        )


def _opened(connection: Connection, wanted: dict[str, Any], have: int) -> Response:
    headers = {"Range": f"bytes={have}-", "If-Range": f'"{wanted["sha256"]}"'} if have else {}
    path = f"/datasets/{wanted['name']}?version={wanted['version']}"
    answer = connection.send("GET", path, headers=headers, follow=True)
    if answer.status not in (200, 206):
        connection.whole(answer, ())
    told = answer.headers.get("Content-Range", "")
    if answer.status == 206 and not told.startswith(f"bytes {have}-"):
        raise DatasetError(f"Wanted bytes from {have:,} of {wanted['name']!r}. Found: Content-Range {told[:80]!r}")
    return answer


def _received(answer: Response, most: int) -> bytes:
    try:
        if block := answer.read(most):
            return block
    except HTTPError as error:
        raise LostError(f"the connection was lost ({words(error)})") from error
    raise LostError("the connection was lost")


def _write(file: Any, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def _unpack(tar: Path, data: Path, wanted: int, tell: Callable[[int], None]) -> None:
    """Unpack a tar of files and folders with current times. Raises `DatasetError`."""
    from formats import ArchiveError
    from formats.tar_index import entries

    count = 0
    folders = {str(data)}
    root = os.path.realpath(data)
    try:
        with open(tar, "rb", buffering=_BLOCK) as file:
            for entry in entries(file):  # refuses links, devices and paths outside the folder
                path = os.path.join(root, entry.path)
                folder = path if entry.is_folder else os.path.dirname(path)
                if folder not in folders:
                    os.makedirs(folder, exist_ok=True)
                    folders.add(folder)
                if not entry.is_folder:
                    file.seek(entry.start)
                    _extract(file, path, entry.bytes, 0o777 if entry.is_executable else 0o666)
                    count += 1
                    tell(count)
    except ArchiveError as error:
        raise DatasetError(str(error)) from None
    if count != wanted:
        raise DatasetError(f"Wanted {wanted:,} files in a dataset. Found: {count:,} in its tar")


def _extract(file: IO[bytes], path: str, size: int, mode: int) -> None:
    """Copy ``size`` bytes to a new file. Raises `DatasetError`."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb", buffering=0) as target:
        while size and (block := file.read(min(_BLOCK, size))):
            size -= len(block)
            _write(target, memoryview(block))
    if size:
        raise DatasetError(f"Wanted a complete tar. Found: it ends inside {path!r}")
