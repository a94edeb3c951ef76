"""Refuses trees whose topmost folders are probably not their classes."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from formats.class_level import doubt_of
from loader.errors import SplitError
from loader.options import check_choice

ClassLevel: TypeAlias = Literal["top"]
# Makes the call that opens a folder, of its path in the tree and the name of its split, which may be empty.
Call: TypeAlias = Callable[[str, str], str]


def check_class_level(class_level: str | None) -> None:
    """Raise `OptionError` for a value that `open_folder` does not take."""
    if class_level is not None:
        check_choice("class_level", class_level, get_args(ClassLevel))


def check_levels(counts: Mapping[str, int], *, place: str, call: Call) -> None:
    """Raise `SplitError`, with the most likely interpretations, if the topmost folders are probably not the classes;
    ``counts`` are the images directly in each folder, by its path in the tree.
    """
    doubt = doubt_of(counts)
    if doubt is None:
        return
    lines: dict[str, str] = {}
    for reading in doubt.readings:
        if len(reading.folders) == 1:
            folder, split = reading.folders[0], "".join(reading.splits)
            lines.setdefault(folder, f"\n  {call(folder, split)}: {reading.counted()}")
    raise SplitError(
        f"Wanted the topmost folders of {place} to be the classes. Found: {doubt.top.counted()}, but {doubt.why}. "
        f"Choose what you mean:{''.join(lines.values())}"
        f'\n  class_level="top": {doubt.top.counted()}, the folders as they are'
    )
