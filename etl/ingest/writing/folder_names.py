"""The names of files in a target folder: no two images of a source get the same one.

Names follow from split, class and path of an image alone, and not from what else is there, so that a later run finds
the files of an earlier one. So whatever is changed in a name is changed in a way that can be undone.
"""

import os
import re

from etl.pictures.images import disagrees

_LITERAL_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")
_NOT_IN_LABELS = re.compile("/|%(?=2F|25)")


def exact_text(raw: bytes) -> str:
    r"""A raw name as text: bytes that are no UTF-8 become ``\xff``, and a ``\`` that looks like that ``\x5c``."""
    return _LITERAL_ESCAPE.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


def label_folder(label: str) -> str:
    """The folder of a class that comes from a file of labels: ``/`` becomes ``%2F``."""
    return _NOT_IN_LABELS.sub(lambda found: f"%{ord(found[0]):02X}", label)


def with_ending(path: str, ending: str, *, format: str, is_strict: bool = False) -> str:
    """The name of a picture that was written anew in a ``format``, whose files end with ``ending`` (``.jpg``).

    ``a.jpg`` stays, also ``a.JPEG`` unless ``is_strict``. The ending goes behind another format's (``a.png.jpg``), and
    behind an additional dot where a name has none (``a..jpg``). A name that looks as if this had been done already gets
    it once more, so that ``a.png`` and ``a.png.jpg`` stay two files.
    """
    if not ending:
        return path
    folder, slash, name = path.rpartition("/")

    def is_foreign(name: str) -> bool:
        return not name.endswith(ending) if is_strict else disagrees(os.fsencode(name), format)

    def is_made(name: str) -> bool:
        before = name.removesuffix(ending)
        if before == name or "." not in before:
            return False
        return _is_bare(before) or is_foreign(before) or is_made(before)

    more = f".{ending}" if _is_bare(name) else ending if is_foreign(name) or is_made(name) else ""
    return f"{folder}{slash}{name}{more}"


def _is_bare(name: str) -> bool:
    """Whether a name has no dot, but for some at its end."""
    return "." not in name.rstrip(".")
