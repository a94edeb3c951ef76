"""The user's cache folder: downloads of the set-up, opened splits, datasets of jobs, and records of uploads."""

import os
from pathlib import Path

from formats.errors import StorageError


def our_cache(*parts: str) -> Path:
    """A folder below ``imagestrata`` in ``$XDG_CACHE_HOME``, by default ``~/.cache``. Raises `StorageError` for a user
    without a home folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "imagestrata", *parts)
    except RuntimeError as error:
        raise StorageError(f"Wanted a home folder. Found: {error} Set XDG_CACHE_HOME to a folder.") from None
