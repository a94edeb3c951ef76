"""How classes share an epoch, as callers give it: the options ``sampling`` and ``class_weights`` of sources."""

from collections.abc import Mapping
from typing import Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from loader.errors import OptionError
from loader.options import check_choice, check_weight
from loader.order.strata import Classes, Sampling, SamplingName

ClassWeights: TypeAlias = Mapping[int, float] | Mapping[str, float]
"""Shares of an epoch by class number or class name; classes that are not named have weight 1."""


class Classified(Protocol):
    """What a split says of its classes."""

    @property
    def labels(self) -> NDArray[np.int32] | None: ...
    @property
    def label_type(self) -> str: ...
    @property
    def counts(self) -> Mapping[int, int]: ...
    @property
    def class_names(self) -> Mapping[int, str]: ...


def sampling_of(
    split: Classified, *, sampling: SamplingName, class_weights: ClassWeights | None, shuffle: bool, batch: int
) -> Sampling | None:
    """The order of an epoch in global batches of ``batch``; None for one that does not look at classes. Raises
    `OptionError`.
    """
    check_choice("sampling", sampling, get_args(SamplingName))
    if class_weights is not None and sampling == "stratified":
        raise OptionError(
            'Wanted sampling="balanced" with class_weights. Found: sampling="stratified", which gives each class as '
            "many places as it has images"
        )
    if class_weights is None and sampling == "shuffled":
        return None
    if not shuffle:
        raise OptionError(
            f"Wanted shuffle=True with sampling={sampling!r} or class_weights. Found: shuffle=False, the order of the "
            "split"
        )
    if split.labels is None:
        raise OptionError(
            f"Wanted a split with class numbers, which sampling={sampling!r} or class_weights need. Found: {split!r} "
            f"with labels of type {split.label_type!r}"
        )
    if class_weights is None:
        return Sampling(sampling, batch)
    return Sampling("balanced", batch, _checked(split, class_weights))


def check_places(sampling: Sampling, classes: Classes, *, names: Mapping[int, str], what: str) -> None:
    """Raise `OptionError` if a weight above 0 is too small for a place in an epoch: those images would never come."""
    weights = dict(sampling.weights or ())
    dues = sampling.strata(classes).dues.tolist()
    for number, due in zip(classes.numbers.tolist(), dues, strict=True):
        if due == 0 and weights.get(number, 1.0) > 0:
            raise OptionError(
                f"Wanted {what} that give each a place in an epoch of {sum(dues):,}, or 0. "
                f"Found: none for {names.get(number, number)!r}, whose images would never come"
            )


def _checked(split: Classified, weights: ClassWeights) -> tuple[tuple[int, float], ...]:
    """The weights by class number, ascending."""
    if not isinstance(weights, Mapping):
        raise OptionError(f"Wanted class_weights as numbers by class. Found: {weights!r}")
    by_name = {str(number): number for number in split.counts}  # as on a command line; names come first
    by_name |= {name: number for number, name in split.class_names.items()}
    found: dict[int, float] = {}
    for key, weight in weights.items():
        number = by_name.get(key) if isinstance(key, str) else key
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not split.counts.get(int(number)):
            known = ", ".join(f"{one} ({split.class_names.get(one, 'no name')})" for one in sorted(split.counts)[:10])
            raise OptionError(
                f"Wanted class_weights of classes with images in {split!r}: {known}"
                f"{', ...' if len(split.counts) > 10 else ''}. Found: {key!r}"
            )
        if int(number) in found:
            raise OptionError(f"Wanted one weight for each class. Found: two for class {key!r}, by number and by name")
        found[int(number)] = check_weight("class_weights", weight, of=f"class {key!r}")
    if not any(found.get(number, 1.0) for number, count in split.counts.items() if count):
        raise OptionError("Wanted a class with a weight above 0. Found: none, so an epoch would have no images")
    return tuple(sorted(found.items()))
