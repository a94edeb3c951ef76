"""The results of the latest uploads, for clients that missed the last response."""

import json
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from formats.durability import whole_file

_MOST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUpload:
    """The contents of the version that an upload becomes, and its number once it is published."""

    name: str
    kind: str
    filename: str
    length: int
    sha256: str
    metadata: str | None = None  # of the client
    number: int | None = None


class FinishedUploads:
    """The latest 1,000 finished uploads, each in a file of a folder. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self._known = OrderedDict.fromkeys(path.name for path in files)
        self._lock = threading.Lock()

    def add(self, identity: str, upload: FinishedUpload) -> None:
        """Store an upload, and remove the oldest above the limit. Raises OSError."""
        # Written before the version is published: after a crash in between, the server knows the upload and finds out
        # from the versions whether it was published.
        with whole_file(self._folder / identity) as file:
            file.write(json.dumps(asdict(upload)).encode("utf-8"))
        with self._lock:
            self._known[identity] = None
            oldest = [self._known.popitem(last=False)[0] for _ in range(len(self._known) - _MOST)]
        for one in oldest:
            (self._folder / one).unlink(missing_ok=True)

    def find(self, identity: str) -> FinishedUpload | None:
        """Find an upload; None if it is unknown."""
        with suppress(FileNotFoundError, ValueError, TypeError):  # a power cut may have emptied the file
            return FinishedUpload(**json.loads((self._folder / identity).read_text(encoding="utf-8")))
        return None

    def remove(self, identity: str) -> None:
        """Remove an upload. Its version stays."""
        with self._lock:
            self._known.pop(identity, None)
        (self._folder / identity).unlink(missing_ok=True)
