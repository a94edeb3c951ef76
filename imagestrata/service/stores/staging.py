"""Staging: folders in which bodies arrive, one each, and what a killed server left in them."""

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
"""What lies there: a body, the index of its files if it is a tar, what an upload that goes on is to become, and from
which byte on its checksum was not verified."""

_UPLOADS_LAST_SECONDS = 7 * 86_400.0


class Staging:
    """The folder ``incoming`` below a root, for one server at a time, until `close`.

    Bodies of an earlier server go, but for those of uploads that go on. Raises `ConflictError` where another has it.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / "incoming"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = FileLock(root / "lock", timeout=0)
        try:
            self._held.acquire()
        except Timeout:
            raise ConflictError(f"Wanted {root} for this server alone. Found: another one uses it") from None
        going_on = {staged for staged, said in self.uploads() if said}
        for staged in {*self.folder.iterdir()} - going_on | {*self.forgotten()}:
            shutil.rmtree(staged, ignore_errors=True)

    def uploads(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Each upload that goes on, and what was said of it; nothing of one that is being begun, or broke off then."""
        for staged in self.folder.iterdir():
            said: dict[str, Any] = {}
            try:
                said = json.loads((staged / UPLOAD).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            except ValueError:
                pass  # it is empty, or a part of it
            yield staged, said

    def forgotten(self) -> Iterator[Path]:
        """Uploads to which nothing has come for seven days."""
        now = time.time()
        for staged in (path for path in self.folder.iterdir() if (path / UPLOAD).exists()):
            with suppress(FileNotFoundError):
                if self.expires(staged) < now:
                    yield staged

    @staticmethod
    def expires(staged: Path) -> float:
        """When an upload will be forgotten unless more of it comes. Raises FileNotFoundError."""
        return (staged / DATA).stat().st_mtime + _UPLOADS_LAST_SECONDS

    def new(self, identity: str | None = None) -> Path:
        """A new folder for a body."""
        folder = self.folder / (identity or secrets.token_hex(16))
        folder.mkdir()
        return folder

    def close(self) -> None:
        """Let other servers have the folder."""
        self._held.release()
