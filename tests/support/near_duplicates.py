"""Groups of hashes that are connected by pairs, computed simply."""

from collections.abc import Iterable


def brute_force(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Each unsigned hash of the pairs, with the smallest that it is connected to."""
    groups: dict[int, set[int]] = {}
    for one, other in pairs:
        together = groups.get(one, {one}) | groups.get(other, {other})
        groups.update(dict.fromkeys(together, together))
    return {value: min(group) for value, group in groups.items()}
