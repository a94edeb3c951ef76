"""The share of each split in each stratum, from the counts of images and the plan. Pure arithmetic.

A stratum is a class, or a combination of values of the columns to stratify by. Images that are in a split already
(pinned, or in a split that is extended) count towards its share.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etl.errors import TableError
from etl.splits.dealing.quotas import apportion, quotas, thinned
from etl.splits.dealing.weights import some, used_images
from etl.splits.plan import SplitPlan
from formats.sizes import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One stratum: its values, its class (-1 if strata have no class), its images. ``fixed`` has the images that must
    go to a split, by split, and ``staying`` those of them that are in the split that is extended: they are always used.
    """

    values: tuple[object, ...]
    label: int
    images: int
    fixed: tuple[int, ...]
    staying: tuple[int, ...] = ()

    @property
    def free(self) -> int:
        """The number of images that may go to any split."""
        return self.images - sum(self.fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The quota matrix: ``quotas[g]`` has the images of stratum ``g`` by split, of ``used[g]`` in all. ``fixed[g]`` has
    the images among these that must go to a split, by split.
    """

    strata: Sequence[Stratum]
    ratios: tuple[Fraction, ...]
    used: Sequence[int]
    fixed: Sequence[Sequence[int]]
    quotas: NDArray[np.int64] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def uses_all(self) -> bool:
        """Whether all images are used: no cap, limit or balance leaves any out."""
        return all(used == stratum.images for used, stratum in zip(self.used, self.strata, strict=True))

    @property
    def ideals(self) -> NDArray[np.float64]:
        """The ideal shares of the used images by the ratios alone, by stratum and split."""
        ratios = np.array([float(ratio / sum(self.ratios)) for ratio in self.ratios])
        return np.asarray(np.array(self.used, dtype=np.float64)[:, None] * ratios[None, :])

    def by_class(self, matrix: NDArray[Any], *, is_multi: bool = False) -> dict[int, list[float]]:
        """The rows of a matrix of strata, summed by class, ascending. An image with several labels counts for each."""
        found: dict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(matrix.shape[1]))
        for stratum, row in zip(self.strata, matrix, strict=True):
            labels: Any = stratum.values[0] if is_multi else (stratum.label,)
            for label in labels:
                found[label] = found[label] + row
        return {label: found[label].tolist() for label in sorted(found) if label >= 0}

    @property
    def sizes(self) -> list[int]:
        """The number of images in each split."""
        return [int(size) for size in self.quotas.sum(axis=0)]


def share(
    strata: Sequence[Stratum],
    *,
    ratios: tuple[Fraction, ...],
    plan: SplitPlan,
    names: Mapping[int, str],
    by: Sequence[str] = (),
) -> Shares:
    """Compute the quotas of the strata, which are values of the columns ``by``. Each cell is its ideal rounded down or
    up, the total of each class is exact, and the total of each split is its ideal rounded down or up, as far as images
    that are in a split already allow it. If strata are combinations of columns, so are the number of each class in each
    split, and that of each value of another column unless a warning says otherwise. If only some images are used, those
    that must go to a split are used at the same rate as the others, except those that stay, which are all used. Raises
    `WeightsError` if the weights do not match the classes, leave no images, or fewer than stay.
    """
    of_class: dict[int, list[int]] = defaultdict(list)
    for index, stratum in enumerate(strata):
        of_class[stratum.label].append(index)
    counts = {label: sum(strata[index].images for index in indices) for label, indices in of_class.items()}
    staying = [sum(stratum.staying) for stratum in strata]
    stay = {label: sum(staying[index] for index in indices) for label, indices in of_class.items()}
    wanted = used_images(counts, plan=plan, names=names, staying=stay)
    used = [0] * len(strata)
    for label, indices in of_class.items():
        images, least = zip(*((strata[index].images, staying[index]) for index in indices), strict=True)
        found = apportion(wanted[label], images, seed=plan.seed, least=least)
        for index, number in zip(indices, found, strict=True):
            used[index] = number
    fixed = _fixed(strata, used, seed=plan.seed)
    columns = sorted(by, key=lambda name: name != "label") if len(by) > 1 else []
    margins = [_numbers([stratum.values[by.index(name)] for stratum in strata]) for name in columns]
    rounded = quotas(used, ratios, seed=plan.seed, fixed=fixed, margins=margins)
    shares = Shares(strata=strata, ratios=ratios, used=used, fixed=fixed, quotas=rounded.matrix)
    told = [
        f"not all totals of {', '.join(by)} could be rounded together: {way.off:,} of {way.totals:,} totals of "
        f"{columns[way.margin]} in a split are off by up to {way.most:,.2f} images"
        for way in rounded.gave_way
    ]
    return replace(shares, warnings=(*_of_counts(counts, plan, names), *_of_fixed(shares), *told))


def _fixed(strata: Sequence[Stratum], used: Sequence[int], *, seed: int) -> list[list[int]]:
    """The images among those used that must go to a split, by stratum and split."""
    if all(stratum.images in (number, stratum.free) for stratum, number in zip(strata, used, strict=True)):
        return [list(stratum.fixed) for stratum in strata]
    parts = [(*stratum.fixed, stratum.free) for stratum in strata]
    least = [(*(stratum.staying or [0] * len(stratum.fixed)), 0) for stratum in strata]
    return [row[:-1] for row in thinned(parts, used, least=least, seed=seed).tolist()]


def _numbers(values: Sequence[object]) -> list[int]:
    """A number for each different value."""
    known: dict[object, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


def _of_counts(counts: Mapping[int, int], plan: SplitPlan, names: Mapping[int, str]) -> list[str]:
    found = []
    if plan.per_class is not None:
        short = [_called(label, names) for label, images in counts.items() if images < plan.per_class]
        if short:
            found.append(
                f"{counted(len(short), 'class', 'classes')} with fewer than {plan.per_class:,} images: {some(short)}"
            )
    if plan.limit is not None and sum(counts.values()) < plan.limit:
        found.append(f"there are {sum(counts.values()):,} images, fewer than the limit of {plan.limit:,}")
    return found


def _of_fixed(shares: Shares) -> list[str]:
    """Warnings if images that must go to a split are left out, or keep totals from their ideals."""
    must, used = (sum(map(sum, each)) for each in ([stratum.fixed for stratum in shares.strata], shares.fixed))
    told = [f"{must - used:,} of {must:,} images with a given split are left out, like others"] if used < must else []
    total = sum(shares.used)
    ideals = [total * ratio / sum(shares.ratios) for ratio in shares.ratios]
    off = [abs(size - ideal) for size, ideal in zip(shares.sizes, ideals, strict=True)]
    if max(off) < 1:
        return told
    asked = ", ".join(f"{float(ideal):,.1f}" for ideal in ideals)
    sizes = ", ".join(f"{size:,}" for size in shares.sizes)
    return [*told, f"because images stay in their splits, sizes are {sizes}, not {asked}"]


def check_sizes(
    counts: Mapping[int, Sequence[int]], sizes: Sequence[int], *, plan: SplitPlan, names: Mapping[int, str]
) -> list[str]:
    """Warn of classes that are not in all splits, from images by class and split, and by split. Raises `TableError` if
    the plan refuses them or, without classes, if it refuses the size of a split.
    """
    wanted = f"Wanted at least {plan.min_per_split:,} images"
    by_class = {label: row for label, row in counts.items() if sum(row)}
    few = [label for label, row in by_class.items() if min(row) < plan.min_per_split]
    if few:
        row = ", ".join(f"{images:,}" for images in by_class[few[0]])
        raise TableError(
            f"{wanted} of each class in each split. "
            f"Found: {len(few):,} classes with fewer; {_called(few[0], names)} has {row}."
        )
    if not by_class and min(sizes) < plan.min_per_split:
        raise TableError(f"{wanted} in each split. Found: {', '.join(f'{size:,}' for size in sizes)}.")
    found = ["there is only one split: nothing is held out"] if len(sizes) == 1 and not plan.exclude else []
    if missing := [_called(label, names) for label, row in by_class.items() if not min(row)]:
        found.append(f"{counted(len(missing), 'class', 'classes')} too small to be in every split: {some(missing)}")
    return found


def _called(label: int, names: Mapping[int, str]) -> str:
    return names.get(label, str(label))
