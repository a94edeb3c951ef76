"""Several splits as one, whose order gives each of them its share of every batch: `mix_splits`."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from formats.splits.opened import SplitRows, held_split
from loader.errors import OptionError, SplitError
from loader.options import check_weight
from loader.order.strata import Classes, classes_of
from loader.prefetch.fetcher import Fetcher, Row
from loader.shards.shard_set import Shards
from loader.splits import Split
from schemas import SplitPart


@dataclass(frozen=True, slots=True, eq=False)
class Mixture(Split):
    """Several splits as one, made by `mix_splits`. Positions count on from one split to the next.

    Attributes:
        parts: The splits by name, in their order.
    """

    parts: Mapping[str, Split] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the splits, in their order."""
        return list(self.parts)

    def part_numbers(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Which split each position belongs to.

        Args:
            positions: Positions in the mixture, int64 ``(b,)``, such as those of a batch.

        Returns:
            The number of the split in ``names``, int64 ``(b,)``.

        Raises:
            OptionError: A position is not in the mixture.
        """
        positions = np.asarray(positions)
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < len(self):
            raise OptionError(f"Wanted positions from 0 to {len(self) - 1}. Found: {positions}")
        return np.searchsorted(self.starts, positions, side="right") - 1

    @property
    def starts(self) -> NDArray[np.int64]:
        """The position at which each split begins, and the end of the last."""
        return _starts(list(self.parts.values()))

    @property
    def checksums_fingerprint(self) -> None:
        """None: `checksums` are those of the splits."""
        return None

    def by_part(self) -> Classes:
        """The positions by split, for orders."""
        sizes = [len(part) for part in self.parts.values()]
        return classes_of(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {len(part):,}" for name, part in self.parts.items())
        return f"Mixture({len(self):,} images: {parts}; fingerprint {self.fingerprint[:12]})"

    def __reduce__(self) -> tuple[Any, ...]:
        return mix_splits, (dict(self.parts),)


def mix_splits(splits: Mapping[str, Split], /) -> Mixture:
    """Make one split of several, for `MixedSource`.

    Args:
        splits: Splits and class folders by name. All have class numbers, or none has, and a class number has the same
            name in all. An image that two of them have counts as two images. Empty ones are refused.

    Returns:
        The mixture.

    Raises:
        OptionError: These are no splits, or they are shards or mixtures.
        SplitError: The splits do not fit together.
    """
    if not isinstance(splits, Mapping) or not splits or not all(name and isinstance(name, str) for name in splits):
        raise OptionError(f"Wanted splits by name, such as {{'photos': split, 'scans': folder}}. Found: {splits!r}")
    for name, split in splits.items():
        if isinstance(split, (Shards, Mixture)) or not isinstance(split, Split):
            raise OptionError(
                f"Wanted {name} as a split or class folders, such as a part of a mixture. Found: {split!r}"
            )
        if not len(split):
            raise SplitError(f"Wanted images in {name}. Found: none in {split!r}")
    parts = list(splits.values())
    kinds = {name: (one.label_type, one.labels is not None) for name, one in splits.items()}
    if len(set(kinds.values())) > 1:
        words = [f"{name}: {kind}{'' if known else ', from the table'}" for name, (kind, known) in kinds.items()]
        raise SplitError(
            f"Wanted splits with labels of one type, in the split or in the table. Found: {'; '.join(words)}"
        )
    names = _class_names(splits)
    labels = None if parts[0].labels is None else np.concatenate([cast(Any, one.labels) for one in parts])
    rows = SplitRows(np.concatenate([one.ids for one in parts]), labels)
    counts: dict[int, int] = {}
    for one in parts:
        for number, count in one.counts.items():
            counts[number] = counts.get(number, 0) + count
    key = "\0".join(["mixture 1", *(f"{name}\0{one.fingerprint}" for name, one in splits.items())])
    fingerprint = hashlib.sha256(key.encode()).hexdigest()
    part = SplitPart(index=0, rows=len(rows.ids), counts=counts, fingerprint=fingerprint, files=())
    opened = held_split(
        " and ".join(one.address for one in parts), [(part, rows)], class_names=names,
        num_classes=max(one.num_classes for one in parts), label_type=parts[0].label_type,
    )  # fmt: skip
    return Mixture(opened, 0, rows, data_table="", parts=dict(splits))


def weights_of(mixture: Mixture, shares: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """The share of each split by its number. Raises `OptionError`."""
    if not isinstance(shares, Mapping) or set(shares) != set(mixture.names):
        found = sorted(map(str, shares)) if isinstance(shares, Mapping) else shares
        raise OptionError(f"Wanted shares of {', '.join(mixture.names)}. Found: {found!r}")
    weights = [check_weight("shares", shares[name], of=name) for name in mixture.names]
    if not any(weights):
        raise OptionError("Wanted a share above 0. Found: none, so an epoch would have no images")
    return tuple(enumerate(weights))


def checksums_of(mixture: Mixture) -> str | None:
    """The fingerprint of the checksums of all splits that have them; None if none has."""
    found = [part.checksums_fingerprint for part in mixture.parts.values()]
    return hashlib.sha256("\0".join(one or "" for one in found).encode()).hexdigest() if any(found) else None


def _class_names(splits: Mapping[str, Split]) -> dict[int, str]:
    """The names of classes. Raises `SplitError` for a class number with two names: labels would be wrong."""
    found: dict[int, tuple[str, str]] = {}
    for part, split in splits.items():
        for number, name in split.class_names.items():
            other, of = found.setdefault(number, (name, part))
            if other != name:
                raise SplitError(
                    f"Wanted the same classes in all splits. Found: class {number} is {other!r} in {of} and {name!r} "
                    f"in {part}. Ingest both as one dataset, or with a table of classes that both share."
                )
    return {number: name for number, (name, _) in sorted(found.items())}


def _starts(parts: Sequence[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(one) for one in parts])]).astype(np.int64)


class MixedFetcher:
    """Reads each position from its own split, with a fetcher for each."""

    def __init__(self, make: Sequence[Callable[[], Fetcher]], starts: NDArray[np.int64]) -> None:
        self._fetchers = [one() for one in make]
        self._starts = starts

    @property
    def connections(self) -> int:
        return sum(one.connections for one in self._fetchers)

    @property
    def most_in_flight(self) -> int | None:
        """None if more reads are never slower for one of them."""
        limits = [one.most_in_flight for one in self._fetchers]
        return None if None in limits else sum(cast(Any, limits))

    async def connect(self) -> None:
        await asyncio.gather(*(one.connect() for one in self._fetchers))

    async def read(self, one: bytes, position: int, /) -> Row:
        fetcher, inside = self._of(position)
        return await fetcher.read(one, inside)

    def wanted(self, one: bytes, position: int, /) -> str:
        fetcher, inside = self._of(position)
        return fetcher.wanted(one, inside)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._fetchers))

    def _of(self, position: int) -> tuple[Fetcher, int]:
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self._fetchers[number], position - int(self._starts[number])
