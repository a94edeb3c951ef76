"""The classes of a split in its report: a bar for each, or one outline for many; and the table of numbers. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, log10
from typing import NamedTuple

_STEPS = 1_000  # of the outline; with more classes, a step is the mean of neighbors
_LISTED_ENDS = 2_000
_LISTED_CELLS = 40_000


@dataclass(frozen=True)
class OfClass:
    """A class: its images and its ideal by split, its images in all, and the number of splits that each is in."""

    name: str
    images: Sequence[int]
    ideal: Sequence[float]
    there: int
    copies: int

    @cached_property
    def used(self) -> float:
        """The number of images that are in a split."""
        return sum(self.images) / self.copies

    @cached_property
    def left_out(self) -> int:
        """The number of images in no split; negative if images are unexpectedly in several splits."""
        return self.there - sum(self.images) // self.copies

    @cached_property
    def off(self) -> list[float]:
        """The deviation from the ideal by split, in images, rounded to drop floating-point noise."""
        pairs = zip(self.images, self.ideal, strict=True)
        return [round(abs(images - ideal), 6) for images, ideal in pairs]


class Part(NamedTuple):
    """A part of a bar: the images of a split, or those left out."""

    css: str
    start: float
    width: float
    name: str
    images: int


def bars(names: Sequence[str], classes: Sequence[OfClass]) -> Iterator[tuple[OfClass, list[Part]]]:
    """The bar of each class, divided by split. 1000 is the largest class, including images that are left out."""
    unit = 1000 / max(1, *(max(one.there, one.used) for one in classes))
    for one in classes:
        left, start = max(0, one.left_out), 0.0
        found = [(f"c{split}", images / one.copies, images) for split, images in enumerate(one.images)]
        parts = []
        for name, (css, size, images) in zip((*names, "left out"), (*found, ("rest", left, left)), strict=True):
            width = unit * size
            shown = width - 1.5 if width > 5 else width  # a gap between neighbors
            parts += [Part(css, start, shown, name, images)] if images else []
            start += width
        yield one, parts


class Outline(NamedTuple):
    """All classes side by side, largest first, as a stack of outlines, each drawn over a taller one."""

    steps: Sequence[Sequence[OfClass]]  # up to a thousand, of ``run`` classes each
    run: int
    is_log: bool
    layers: list[tuple[str, list[float]]]  # CSS class names, and heights from 0 to 1000
    marks: list[tuple[int, float]]  # the sizes on the axis, and the distance of each from the top


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
        # The top of a stack is on the scale, and the stack is divided by share: on a log scale, heights cannot be
        # added.
        tops = (height(stack[-1]) * stack[split + 1] / stack[-1] if stack[-1] else 0.0 for stack in stacks)
        layers.append((f"c{split}", list(tops)))
    marks = [(size, 1000 - height(size)) for size in _marks(low, top, is_log=is_log)]
    return Outline(steps, run, is_log, layers, marks)


def _scale(low: float, top: float, *, is_log: bool) -> Callable[[float], float]:
    if is_log:
        return lambda size: 1000 * log10(size / low) / log10(top / low) if size else 0.0
    return lambda size: 1000 * size / top


def _marks(low: float, top: float, *, is_log: bool) -> list[int]:
    """The sizes marked on an axis: powers of ten, or even steps from 0."""
    if is_log:
        return [10**power for power in range(max(0, ceil(log10(low))), floor(log10(top)) + 1)]
    ten = 10 ** floor(log10(top))
    step = next(step for step in (ten / 5, ten / 2, ten, 2 * ten) if top / step <= 5)
    return list(range(0, int(top) + 1, max(1, round(step))))


def listed_ends(classes: int, splits: int) -> int | None:
    """The number of the largest and of the smallest classes in the table; None if it has all."""
    ends = min(_LISTED_ENDS, max(10, _LISTED_CELLS // max(1, splits) // 2))
    return ends if classes > 2 * ends else None
