"""Names of datasets in a dataset service, and the manifest of a dataset version."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from schemas.errors import SchemaError
from schemas.names import hidden_character
from schemas.parsing import Count, Digest, parsed, reader

FORMAT = 1  # the format version that this software writes, and the newest that it reads

VERSION_NAME = "version.json"

# Names of datasets. They are ASCII, so that no two names look alike.
NAME_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9._\-]{0,98}[A-Za-z0-9_\-])?$"

_NAME = re.compile(NAME_PATTERN[:-1])
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # reserved device names on Windows
_MOST_PATH, _MOST_PART = 4096, 255


def check_name(name: object) -> str:
    """Return a valid dataset name unchanged. Raises `SchemaError` for any other text."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name if not isinstance(name, str) or len(name) <= 100 else f"{name[:40]}…, {len(name)} characters")
        raise SchemaError(
            "Wanted a dataset's name: 1 to 100 letters, digits, '.', '-' and '_' of ASCII, beginning with a letter or "
            f"digit and not ending with '.'. Found: {shown}"
        )
    if _RESERVED.fullmatch(name):
        raise SchemaError(f"Wanted a dataset's name. Found: {name!r}, which is a reserved device name on some systems")
    return name


def is_name(name: str) -> bool:
    """Whether a text is a valid dataset name."""
    return _NAME.fullmatch(name) is not None and _RESERVED.fullmatch(name) is None


def check_path(path: str) -> str:
    """Return a valid path of a file in a dataset: relative, with ``/`` between its parts. Raises `SchemaError`."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        raise SchemaError(f"Wanted the path of a file in UTF-8. Found: {path!r}") from None
    parts = path.split("/")
    if not path or "" in parts or "." in parts or ".." in parts:
        raise SchemaError(f"Wanted the relative path of a file, without empty parts, '.' and '..'. Found: {path!r}")
    if (hidden := hidden_character(path) or ("'\\'" if "\\" in path else None)) is not None:
        raise SchemaError(f"Wanted the path of a file without hidden characters and '\\'. Found: {hidden} in {path!r}")
    if len(encoded) > _MOST_PATH or any(len(part.encode("utf-8")) > _MOST_PART for part in parts):
        raise SchemaError(
            f"Wanted a path of at most {_MOST_PATH} bytes, {_MOST_PART} for each part. Found: {path[:80]!r}…, "
            f"{len(encoded)} bytes"
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion:
    """One version of a dataset; it never changes. ``kind`` is ``file`` or ``folder``. For a folder, ``bytes`` and
    ``sha256`` are those of the uploaded tar. ``filename`` is the file name of downloads. ``by`` is the name of the
    token that uploaded the version. ``card`` describes the contents: images, classes, splits.
    """

    number: Count
    kind: str
    filename: Annotated[str, check_path]
    bytes: Count
    sha256: Digest
    files: Count
    created: str
    by: str | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    code_version: str = ""
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """The manifest as JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> "DatasetVersion":
        """Read a manifest; error messages name ``place``. Raises `FormatVersionError`, `SchemaError`."""
        return parsed(text, DatasetVersion.read, what="version of a dataset", place=place, newest=FORMAT)

    @classmethod
    def read(cls, found: dict[str, Any]) -> "DatasetVersion":
        """Make a version of what a manifest, or a service, has of it; its name is used in local paths. Raises
        ValueError, TypeError, LookupError.
        """
        version = reader(cls)(found)
        if version.number < 1 or version.kind not in ("file", "folder"):
            raise SchemaError(f"Found: version {version.number} of kind {version.kind!r}.")
        if "/" in version.filename:
            raise SchemaError(f"Wanted a file's name without folders. Found: {version.filename!r}")
        return version
