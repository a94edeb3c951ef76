"""The ``.cls`` and ``.json`` files of a shard's sample: its class number, and what is known of it."""

import json
import re
from uuid import UUID

_encoded = json.JSONEncoder(separators=(",", ":")).encode  # made once, as json.dumps makes one for each call
_ID = b'{"id":"'
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")  # int() also accepts 1_0


def class_text(label: int) -> bytes:
    """What stands in a ``.cls`` file."""
    return str(label).encode()


def integer_in(text: bytes) -> int:
    """The number in a ``.cls`` file, which may have blanks around it. Raises ValueError for anything else."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"Wanted a whole number. Found: {text[:40]!r}")
    return int(text)


def facts_text(
    image_id: bytes, path: str, *, split: str = "", name: str | None = None, group: str | None = None, label: int | None
) -> bytes:
    """What stands in a ``.json`` file: the id, of 16 bytes, where the picture came from, its class by name and number.

    What is None, or an empty split, is left out.
    """
    known = {"id": str(UUID(bytes=image_id)), "path": path, "split": split or None, "class": name, "group": group}
    told = {key: value for key, value in {**known, "label": label}.items() if value is not None}
    return _encoded(told).encode()


def id_in(facts: bytes) -> bytes:
    """The id, 16 bytes, in a ``.json`` file. Raises ValueError, KeyError or TypeError where none is told."""
    if facts.startswith(_ID):  # as `facts_text` begins: no need to read all of it
        return bytes.fromhex(facts[len(_ID) : len(_ID) + 36].decode().replace("-", ""))
    return UUID(str(json.loads(facts)["id"])).bytes
