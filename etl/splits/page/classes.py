"""The classes of a split on its page: a bar each, or one outline for many; and which are listed in numbers. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, log10
from typing import NamedTuple

_STEPS = 1_000  # of the outline; with more classes, a step is the mean of neighbours
_LISTED_ENDS = 2_000
_LISTED_CELLS = 40_000


@dataclass(frozen=True)
class OfClass:
    """A class: its images and its ideal by split, the images that there are, in how many splits each stands."""

    name: str
    images: Sequence[int]
    ideal: Sequence[float]
    there: int
    copies: int

    @cached_property
    def used(self) -> float:
        """Images in a split."""
        return sum(self.images) / self.copies

    @cached_property
    def left_out(self) -> int:
        """Images in no split; negative where images stand in several splits and nobody said so."""
        return self.there - sum(self.images) // self.copies

    @cached_property
    def off(self) -> list[float]:
        """Images away from the ideal by split, without the last digits of a quotient, which are noise."""
        pairs = zip(self.images, self.ideal, strict=True)
        return [round(abs(images - ideal), 6) for images, ideal in pairs]


class Part(NamedTuple):
    """A part of a bar: a split's images, or those left out."""

    css: str
    start: float
    width: float
    name: str
    images: int


def bars(names: Sequence[str], classes: Sequence[OfClass]) -> Iterator[tuple[OfClass, list[Part]]]:
    """The bar of each class, cut by split; 1000 is the largest class, with the images that are left out."""
    unit = 1000 / max(1, *(max(one.there, one.used) for one in classes))
    for one in classes:
        left, start = max(0, one.left_out), 0.0
        found = [(f"c{split}", images / one.copies, images) for split, images in enumerate(one.images)]
        parts = []
        for name, (css, size, images) in zip((*names, "left out"), (*found, ("rest", left, left)), strict=True):
            width = unit * size
            shown = width - 1.5 if width > 5 else width  # a gap between neighbours
            parts += [Part(css, start, shown, name, images)] if images else []
            start += width
        yield one, parts


class Outline(NamedTuple):
    """All classes side by side, largest first: a stack of outlines, each painted over the one that reaches higher.

    ``steps``: up to a thousand, of ``run`` classes each. ``layers``: a name for CSS, and heights of 0 to 1000.
    ``marks``: sizes on the axis, and how far each is from the top.
    """

    steps: Sequence[Sequence[OfClass]]
    run: int
    is_log: bool
    layers: list[tuple[str, list[float]]]
    marks: list[tuple[int, float]]


def outline(classes: Sequence[OfClass]) -> Outline:
    """The outline of classes that are sorted by size."""
    run = ceil(len(classes) / _STEPS)
    steps = [classes[start : start + run] for start in range(0, len(classes), run)]
    there = [sum(max(one.there, one.used) for one in some) / len(some) for some in steps]
    stacks = []
    for some in steps:
        by_split = zip(*(one.images for one in some), strict=True)
        stacks.append([0.0, *accumulate(sum(images) / len(some) / some[0].copies for images in by_split)])
    sizes = [one.there for one in classes if one.there]
    is_log = bool(sizes) and max(sizes) > 50 * min(sizes)
    top = max(1.0, *there)
    low = min(size for size in (*there, *(stack[-1] for stack in stacks)) if size) / 2 if is_log else 0.0
    height = _scale(low, top, is_log=is_log)
    layers = [("rest", [height(size) for size in there])]
    for split in reversed(range(len(classes[0].images))):
        # A stack ends at its height on the scale and is divided by share: on a log scale no other way is fair.
        tops = (height(stack[-1]) * stack[split + 1] / stack[-1] if stack[-1] else 0.0 for stack in stacks)
        layers.append((f"c{split}", list(tops)))
    marks = [(size, 1000 - height(size)) for size in _marks(low, top, is_log=is_log)]
    return Outline(steps, run, is_log, layers, marks)


def _scale(low: float, top: float, *, is_log: bool) -> Callable[[float], float]:
    if is_log:
        return lambda size: 1000 * log10(size / low) / log10(top / low) if size else 0.0
    return lambda size: 1000 * size / top


def _marks(low: float, top: float, *, is_log: bool) -> list[int]:
    """The sizes that an axis names: powers of ten, or some even steps from 0."""
    if is_log:
        return [10**power for power in range(max(0, ceil(log10(low))), floor(log10(top)) + 1)]
    ten = 10 ** floor(log10(top))
    step = next(step for step in (ten / 5, ten / 2, ten, 2 * ten) if top / step <= 5)
    return list(range(0, int(top) + 1, max(1, round(step))))


def listed_ends(classes: int, splits: int) -> int | None:
    """How many of the largest and of the smallest classes are listed in numbers; None: all are."""
    ends = min(_LISTED_ENDS, max(10, _LISTED_CELLS // max(1, splits) // 2))
    return ends if classes > 2 * ends else None
