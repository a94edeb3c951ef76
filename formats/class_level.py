"""Detection of trees whose topmost folders are not the classes, from the number of images in each folder.

A user forgets `--split-subdir`, or an archive has an outer folder: then the classes would be "train" and "val", or
there would be a single class. The shape of the tree shows it. The topmost folders are probably not the classes if:

- there is only one of them, and its images are in deeper folders;
- they have names of splits (train, val, test, ...);
- nearly all images are in deeper folders, and several of the topmost folders have deeper folders of the same names.

Folders with images directly in them are classes, and so are folders whose deeper folders have different names
(patients, for example).
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from formats.image_names import is_hidden
from formats.sizes import counted

_WORDS = {
    **dict.fromkeys(("train", "training", "trainval"), 0),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), 1),
    **dict.fromkeys(("test", "testing"), 2),
}
_OTHER = 3
_NEARLY_ALL = 0.95
_MOSTLY = 0.8
_HALF = 0.5
_MOST_READINGS = 3
_MOST_SPLITS = 8
_SHOWN = 3

_Folder: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One interpretation of a tree. The class folders are directly in ``root``, or in the folders ``splits`` of
    ``root``. ``root`` is empty for the tree itself. ``classes`` is 0 if there are no class folders.
    """

    root: str
    splits: tuple[str, ...]
    classes: int
    images: int

    @property
    def folders(self) -> tuple[str, ...]:
        """The parents of the class folders, relative to the tree."""
        return tuple(_joined(self.root, split) for split in self.splits) or (self.root,)

    def counted(self) -> str:
        """The numbers of classes and images as text."""
        return f"{counted(self.classes, 'class', 'classes') if self.classes else 'no class folders'}, " + counted(
            self.images, "image"
        )


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason why the topmost folders are probably not the classes, and the most likely interpretations."""

    why: str
    top: Reading
    readings: tuple[Reading, ...]


def is_possible(tops: Mapping[str, tuple[int, int]]) -> bool:
    """Whether `doubt_of` could find anything. If False, the caller need not count the images in each folder. ``tops``
    has for each topmost folder the number of its images, and how many of them are in deeper folders.
    """
    shown = {name: counts for name, counts in tops.items() if counts[0] and not is_hidden(os.fsencode(name))}
    images, deeper = (sum(counts[place] for counts in shown.values()) for place in (0, 1))
    if not images:
        return False
    return deeper >= images * (_HALF if len(shown) == 1 else _MOSTLY) or all(map(_is_split, shown))


def doubt_of(counts: Mapping[str, int]) -> Doubt | None:
    """Return why the topmost folders are probably not the classes, or None. ``counts`` has the number of images
    directly in each folder, by its path relative to the tree with ``/`` between the names. If a tree has too many
    folders, paths may be cut to a few names and the images of deeper folders added up.
    """
    level = _Level.of({tuple(path.split("/")): count for path, count in counts.items() if path and count})
    if not level.tops:
        return None
    whole = Reading("", (), len(level.tops), level.images)
    chain, level = _descended(level)
    if len(level.tops) == 1 and chain:  # a chain of folders, with images only in the innermost
        why = f"all images are in one folder, {'/'.join((*chain, *level.tops))}"
        return Doubt(why, whole, (Reading("/".join((*chain, *level.tops)), (), 0, level.images),))
    if (reason := level.why_splits()) is not None:
        return Doubt(reason, whole, _split_readings(level, "/".join(chain)))
    if not chain:
        return None
    return Doubt(f"all images are in deeper folders of one folder, {chain[0]}", whole, _root_readings(level, chain))


@dataclass(frozen=True, slots=True)
class _Level:
    """The folders below one or several others, by the name of the topmost folder."""

    # For each topmost folder, the number of images in each folder below it; ``()`` counts those directly in it.
    tops: Mapping[str, Counter[_Folder]]

    @classmethod
    def of(cls, counts: Mapping[_Folder, int]) -> "_Level":
        tops: dict[str, Counter[_Folder]] = {}
        for folder, count in counts.items():
            if folder and not is_hidden(os.fsencode(folder[0])):
                tops.setdefault(folder[0], Counter())[folder[1:]] += count
        return cls(tops)

    @property
    def images(self) -> int:
        return sum(below.total() for below in self.tops.values())

    @property
    def deeper(self) -> int:
        return sum(below.total() - below[()] for below in self.tops.values())

    def below(self, names: Collection[str]) -> "_Level":
        """The level below some of the folders, merged."""
        merged: Counter[_Folder] = Counter()
        for name in names:
            merged.update(self.tops[name])
        return _Level.of(merged)

    def why_splits(self) -> str | None:
        """The reason why the folders are splits rather than classes, or None."""
        words = [name for name in self.tops if _is_split(name)]
        named = sum(self.tops[name].total() - self.tops[name][()] for name in words)
        if words and (len(words) == len(self.tops) or named >= _NEARLY_ALL * self.images):
            return f"{_listed(words)} {'is the name of a split' if len(words) == 1 else 'are the names of splits'}"
        if len(self.tops) < 2 or self.deeper < _NEARLY_ALL * self.images:
            return None
        by_name: dict[str, list[int]] = {}
        for below in self.tops.values():
            for name, inside in _Level.of(below).tops.items():
                by_name.setdefault(name, []).append(inside.total())
        shared = {name: counts for name, counts in by_name.items() if len(counts) > 1}
        if len(shared) < 2 or sum(map(sum, shared.values())) < _MOSTLY * self.images:
            return None
        return f"{_listed(self.tops)} hold folders of the same names ({_listed(shared)})"


def _descended(level: _Level) -> tuple[list[str], _Level]:
    """The folders that enclose all images, outermost first, and the level inside the innermost of them."""
    chain: list[str] = []
    while len(level.tops) == 1 and level.deeper >= _HALF * level.images and level.deeper:
        chain += level.tops
        level = level.below(level.tops.keys())
    return chain, level


def _split_readings(level: _Level, root: str) -> tuple[Reading, ...]:
    nested = [name for name, below in level.tops.items() if below.total() - below[()] >= _HALF * below.total()]
    if not nested:
        names = sorted(level.tops, key=_rank)
        return (Reading(root, tuple(names[:_MOST_SPLITS]), 0, level.images),)
    largest = max(nested, key=lambda name: (level.tops[name].total(), name))
    classes = {name: set(_descended(level.below([name]))[1].tops) for name in nested}
    family = sorted((name for name in nested if _is_alike(classes[name], classes[largest])), key=_rank)
    readings = [_reading(level, root, family)] if 1 < len(family) <= _MOST_SPLITS else []
    first = sorted(family, key=lambda name: (_rank(name)[0], -level.tops[name].total(), name))
    readings += [_reading(level, root, [name]) for name in first[:2]]
    if root:  # the same folder as one path
        one = _reading(level, root, first[:1])
        readings = [*readings[: _MOST_READINGS - 1], Reading("", one.folders, one.classes, one.images)]
    return tuple(readings[:_MOST_READINGS])


def _reading(level: _Level, root: str, splits: Sequence[str]) -> Reading:
    chain, below = _descended(level.below(splits))
    return Reading(root, tuple("/".join((split, *chain)) for split in splits), len(below.tops), below.images)


def _root_readings(level: _Level, chain: Sequence[str]) -> tuple[Reading, ...]:
    counts = len(level.tops), level.images
    *outer, last = chain
    as_split = [Reading("/".join(outer), (last,), *counts), Reading("", ("/".join(chain),), *counts)]
    as_root = Reading("/".join(chain), (), *counts)
    if {*last.lower().replace("-", "_").split("_")} & _WORDS.keys():
        return tuple(dict.fromkeys((*as_split, as_root)))
    return as_root, as_split[-1]


def _is_alike(one: Collection[str], other: Collection[str]) -> bool:
    """Whether two splits may have the same classes."""
    return len({*one} & {*other}) >= _HALF * min(len(one), len(other))


def _is_split(name: str) -> bool:
    return name.lower() in _WORDS


def _rank(name: str) -> tuple[int, str]:
    words = {*name.lower().replace("-", "_").split("_")}
    return min((rank for word, rank in _WORDS.items() if word in words), default=_OTHER), name


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    if len(names) > _SHOWN:
        return ", ".join((*names[:_SHOWN], "..."))
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
