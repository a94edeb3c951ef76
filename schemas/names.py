"""The rule for names that people give and read: of files in a dataset, of datasets and of splits.

A name may have every character that shows, blanks, and the joiners U+200C and U+200D where writing needs them: between
two letters, marks, digits or symbols of which at least one is not ASCII, as in Persian, Hindi and Sinhala and in emoji.
Refused are control characters, bidirectional controls, other characters that do not show, blanks other than U+0020,
and surrogates. Names are compared as they are, without Unicode normalization.
"""

import unicodedata

_JOINERS = "\u200c\u200d"


def hidden_character(name: str) -> str | None:
    """The first character of a name, or of a path of names, that the rule refuses, as ``U+202E``; None if the name is
    allowed.
    """
    if name.isprintable():
        return None
    for place, one in enumerate(name):
        if not one.isprintable() and not (one in _JOINERS and _joins(name[place - 1 : place], name[place + 1 :][:1])):
            return f"U+{ord(one):04X}"
    return None


def _joins(before: str, after: str) -> bool:
    """Whether a joiner between these characters changes how they are written, and does not only hide there."""
    near = before + after
    return len(near) == 2 and not near.isascii() and all(unicodedata.category(one)[0] in "LMNS" for one in near)
