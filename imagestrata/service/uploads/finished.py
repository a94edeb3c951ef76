"""What the latest uploads have become, for clients that lost the last answer."""

import json
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_MOST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUpload:
    """The contents of the version that an upload has become, or will become at once; ``metadata`` is its client's."""

    name: str
    kind: str
    filename: str
    length: int
    sha256: str
    metadata: str | None = None


class FinishedUploads:
    """The latest 1,000, each in a file of a folder. Safe for threads.

    A file is written before its version is published. So a server that is killed in between knows the upload after it
    has started again, and finds out from the versions whether it was published.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self._known = OrderedDict.fromkeys(path.name for path in files)
        self._lock = threading.Lock()

    def add(self, identity: str, upload: FinishedUpload) -> None:
        """Remember an upload, and forget the oldest beyond the limit. Raises OSError."""
        aside = self._folder / f"{identity}.new"
        aside.write_text(json.dumps(asdict(upload)), encoding="utf-8")
        os.replace(aside, self._folder / identity)
        with self._lock:
            self._known[identity] = None
            oldest = [self._known.popitem(last=False)[0] for _ in range(len(self._known) - _MOST)]
        for one in oldest:
            (self._folder / one).unlink(missing_ok=True)

    def find(self, identity: str) -> FinishedUpload | None:
        """One upload, or None."""
        with suppress(FileNotFoundError, ValueError, TypeError):  # a power cut may have emptied the file
            return FinishedUpload(**json.loads((self._folder / identity).read_text(encoding="utf-8")))
        return None

    def remove(self, identity: str) -> None:
        """Forget an upload; its version stays."""
        with self._lock:
            self._known.pop(identity, None)
        (self._folder / identity).unlink(missing_ok=True)
