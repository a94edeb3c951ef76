"""The number of images of each class that are used: balances, a cap per class, a limit for all. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from etl.errors import WeightsError
from etl.splits.dealing.quotas import apportion
from etl.splits.plan import SplitPlan
from formats.hashing import xxhash64

_INSTEAD = "To make a smaller split, leave out --extend: --exclude keeps images of an earlier split out of it."


def used_images(
    counts: Mapping[int, int], *, plan: SplitPlan, names: Mapping[int, str], staying: Mapping[int, int] | None = None
) -> dict[int, int]:
    """The number of images to use by class number: at least those that are ``staying`` in a split that is extended.
    Raises `WeightsError` if the weights do not match the classes, leave no images, or fewer than stay.
    """
    labels = sorted(counts)
    totals = [counts[label] for label in labels]
    if plan.balance == "uniform":
        totals = class_totals(totals, [Fraction(1)] * len(labels))
    elif plan.balance == "random":
        totals = class_totals(totals, random_weights(labels, plan.seed))
    elif plan.weights:
        totals = class_totals(totals, _given_weights(labels, plan, names))
    if plan.per_class is not None:
        totals = [min(total, plan.per_class) for total in totals]
    least = [(staying or {}).get(label, 0) for label in labels]
    if over := [index for index, total in enumerate(totals) if total < least[index]]:
        label, how = (
            labels[over[0]],
            f"--balance {plan.as_balance()}" if plan.per_class is None else f"--per-class {plan.per_class}",
        )
        raise WeightsError(
            f"Wanted at least the {least[over[0]]:,} images of class {names.get(label, label)} that are in "
            f"{plan.extend}, because --extend keeps them. Found: {totals[over[0]]:,}, by {how}. {_INSTEAD}"
        )
    if plan.limit is not None and plan.limit < sum(totals):
        if plan.limit < sum(least):
            raise WeightsError(
                f"Wanted a --limit of at least the {sum(least):,} images that are in {plan.extend}, because --extend "
                f"keeps them. Found: {plan.limit:,}. {_INSTEAD}"
            )
        totals = apportion(plan.limit, totals, seed=plan.seed, least=least)
    if not any(totals):
        raise WeightsError(
            f"Wanted weights that leave at least one image. Found: none of {sum(counts.values()):,} images left."
        )
    return dict(zip(labels, totals, strict=True))


def class_totals(counts: Sequence[int], weights: Sequence[Fraction]) -> list[int]:
    """The images used of each class: ``floor(w_c * min over w > 0 of n / w)``, the largest set with this balance. A
    class of weight 0 is left out.
    """
    scale = min(count / weight for count, weight in zip(counts, weights, strict=True) if weight)
    return [int(weight * scale) for weight in weights]


def random_weights(labels: Sequence[int], seed: int) -> list[Fraction]:
    """A weight from 0.01 to 1.00 for each class number, which depends only on the seed and the number."""
    column = np.asarray(labels, dtype=np.int32)
    draws = xxhash64([np.full(len(column), seed, dtype=np.int64), column]).view(np.uint64) % np.uint64(100)
    return [Fraction(int(draw) + 1, 100) for draw in draws]


def _given_weights(labels: Sequence[int], plan: SplitPlan, names: Mapping[int, str]) -> list[Fraction]:
    if not isinstance(plan.balance, str) and isinstance(plan.balance[0], tuple):
        given = {name: weight for name, weight in plan.balance if isinstance(name, str)}
        called = [names.get(label, str(label)) for label in labels]
        by_name = {name if name in called else name.strip(): weight for name, weight in given.items()}
        if len(by_name) < len(given):
            raise WeightsError(f"Wanted one weight per class. Found: a class twice in {plan.as_balance()}.")
        if missing := [name for name in called if name not in by_name]:
            raise WeightsError(
                f"Wanted a weight for each of the {len(called)} classes. Found: none for {some(missing)}. "
                "A weight of 0 leaves a class out."
            )
        if strange := sorted(by_name.keys() - set(called)):
            raise WeightsError(f"Wanted weights only for classes with images, {some(called)}. Found: {some(strange)}.")
        return [by_name[name] for name in called]
    if len(plan.weights) != len(labels):
        raise WeightsError(
            f"Wanted a weight for each of the {len(labels)} classes, numbered {some(labels)}. "
            f"Found: {len(plan.weights)} weights."
        )
    return list(plan.weights)


def some(things: Sequence[object]) -> str:
    """A list for a message: all of it if it is short, otherwise its ends."""
    return ", ".join(map(str, things)) if len(things) <= 12 else f"{things[0]}, {things[1]}, ... {things[-1]}"
