"""The ``.cls`` and ``.json`` files of a sample in a shard: its class number and its metadata."""

import json
import re
from uuid import UUID

_encoded = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps makes one per call
_ID = b'{"id":"'
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")  # int() also accepts 1_0


def class_text(label: int) -> bytes:
    """The contents of a ``.cls`` file."""
    return str(label).encode()


def integer_in(text: bytes) -> int:
    """Parse a ``.cls`` file: a number, with optional blanks around it. Raises ValueError for anything else."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"Wanted a whole number. Found: {text[:40]!r}")
    return int(text)


def facts_text(
    image_id: bytes, path: str, *, split: str = "", name: str | None = None, group: str | None = None, label: int | None
) -> bytes:
    """The JSON text of a ``.json`` file, without fields that are None and an empty split. ``path`` and ``split`` are
    those of the ingest; ``label`` is the class number, or the numbers of an image with several labels.
    """
    known = {"id": str(UUID(bytes=image_id)), "path": path, "split": split or None, "class": name, "group": group}
    told = {key: value for key, value in {**known, "label": label}.items() if value is not None}
    return _encoded(told).encode()


def id_in(facts: bytes) -> bytes:
    """Parse the id, 16 bytes, from a ``.json`` file. Raises ValueError, KeyError or TypeError if there is none."""
    if facts.startswith(_ID):  # as `facts_text` writes it: no need to parse all of it
        return bytes.fromhex(facts[len(_ID) : len(_ID) + 36].decode().replace("-", ""))
    return UUID(str(json.loads(facts)["id"])).bytes
