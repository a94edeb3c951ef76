"""Staging: one folder for each arriving body, and cleaning up after a killed server."""

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from imagestrata.service.errors import ConflictError

DATA, INDEX, UPLOAD, UNVERIFIED = "data", "files.sqlite", "upload.json", "unverified"
"""Files of a staging folder: the body, the index of its files if it is a tar, the request of a resumable upload, and
the offset from which its checksum is not verified."""

_UPLOADS_LAST_SECONDS = 7 * 86_400.0


class Staging:
    """The folder ``incoming`` below a root, locked for one server until `close`. Raises `ConflictError` if another
    server uses it.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / "incoming"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = FileLock(root / "lock", timeout=0)
        try:
            self._held.acquire()
        except Timeout:
            raise ConflictError(f"Wanted {root} for this server only. Found: another server uses it") from None
        # Bodies of an earlier server are of no use, except those of resumable uploads.
        going_on = {staged for staged, said in self.uploads() if said}
        for staged in {*self.folder.iterdir()} - going_on | {*self.forgotten()}:
            shutil.rmtree(staged, ignore_errors=True)

    def uploads(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the folder and the request of each resumable upload. A request that was not written whole is empty."""
        for staged in self.folder.iterdir():
            said: dict[str, Any] = {}
            try:
                said = json.loads((staged / UPLOAD).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            except ValueError:
                pass  # the file is empty or cut
            yield staged, said

    def forgotten(self) -> Iterator[Path]:
        """Yield the folders of uploads that received nothing for seven days."""
        now = time.time()
        for staged in (path for path in self.folder.iterdir() if (path / UPLOAD).exists()):
            with suppress(FileNotFoundError):
                if self.expires(staged) < now:
                    yield staged

    @staticmethod
    def expires(staged: Path) -> float:
        """When an upload expires unless more bytes arrive, in seconds since 1970. Raises FileNotFoundError."""
        return (staged / DATA).stat().st_mtime + _UPLOADS_LAST_SECONDS

    def new(self, identity: str | None = None) -> Path:
        """Create a folder for a body."""
        folder = self.folder / (identity or secrets.token_hex(16))
        folder.mkdir()
        return folder

    def close(self) -> None:
        """Release the lock."""
        self._held.release()
