"""File names in a target folder: no two images of a source get the same name.

A name depends only on the split, class and path of an image, not on other files, so a later run finds the files of an
earlier one. For this reason, all changes to names are reversible.
"""

import os
import re

from etl.pictures.images import disagrees

_LITERAL_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")
_NOT_IN_LABELS = re.compile("/|%(?=2F|25)")


def exact_text(raw: bytes) -> str:
    r"""A raw name as text: bytes that are not UTF-8 become ``\xff``, and a ``\`` that looks like that ``\x5c``."""
    return _LITERAL_ESCAPE.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


def label_folder(label: str) -> str:
    """The folder of a class from a label file: ``/`` becomes ``%2F``."""
    return _NOT_IN_LABELS.sub(lambda found: f"%{ord(found[0]):02X}", label)


def with_ending(path: str, ending: str, *, format: str, is_strict: bool = False) -> str:
    """The name of an image that was converted to ``format``, whose files end with ``ending`` (``.jpg``)."""
    if not ending:
        return path
    # a.jpg is unchanged, and so is a.JPEG unless `is_strict`; a.png becomes a.png.jpg; a name without a dot, a..jpg. A
    # name that looks as if it had been changed is changed again, so that a.png and a.png.jpg remain two files.
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
    """Whether a name has no dots except at its end."""
    return "." not in name.rstrip(".")
