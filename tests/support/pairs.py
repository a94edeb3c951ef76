"""Rows that contain every pair of values of different options at least once: a covering array, always the same one."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, int], tuple[str, int]]


def covering_rows(
    levels: Mapping[str, Sequence[Any]], *, is_allowed: Callable[[Row], bool]
) -> tuple[list[Row], set[Pair]]:
    """Choose rows greedily.

    Args:
        levels: The values of each option; the first one is that of an option that is not given.
        is_allowed: Whether a row, possibly of some options only, may occur.

    Returns:
        The rows, and the pairs that no allowed row has, each as (option, index of its value) twice.
    """
    names = sorted(levels, key=lambda name: (-len(levels[name]), name))
    left: set[Pair] = {
        ((one, i), (other, j))
        for one, other in combinations(names, 2)
        for i in range(len(levels[one]))
        for j in range(len(levels[other]))
        if is_allowed({one: levels[one][i], other: levels[other][j]})
    }
    rows: list[Row] = []
    impossible: set[Pair] = set()
    while left:
        first = min(left)
        chosen = _filled(dict(first), names, levels, left, is_allowed)
        if chosen is None:
            impossible.add(first)
            left.remove(first)
            continue
        left -= _pairs(chosen, names)
        rows.append({name: levels[name][index] for name, index in chosen.items()})
    return rows, impossible


def _pairs(chosen: Mapping[str, int], names: Sequence[str]) -> set[Pair]:
    return {((a, chosen[a]), (b, chosen[b])) for a, b in combinations(names, 2) if a in chosen and b in chosen}


def _filled(
    chosen: dict[str, int],
    names: Sequence[str],
    levels: Mapping[str, Sequence[Any]],
    left: set[Pair],
    is_allowed: Callable[[Row], bool],
) -> dict[str, int] | None:
    """The choice with a value for each other option: the allowed one that has most of the pairs that are left."""

    def values(some: Mapping[str, int]) -> Row:
        return {name: levels[name][index] for name, index in some.items()}

    if not is_allowed(values(chosen)):
        return None
    for name in names:
        if name not in chosen:
            allowed = [i for i in range(len(levels[name])) if is_allowed(values({**chosen, name: i}))]
            if not allowed:
                return None
            chosen[name] = max(allowed, key=lambda i: (len(_pairs({**chosen, name: i}, names) & left), -i))
    return chosen
