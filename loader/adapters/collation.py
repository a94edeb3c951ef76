"""Samples that become one batch, and hints for where torch cannot put them together."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

# torch's workers seed it. Where a forked worker was the first to import it, Python's import lock has failed.
import numpy.random  # noqa: F401
from torch.utils.data import default_collate

# The documentation of `default_collate` names both, for users who add their own types.
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from loader.batch import Batch
from loader.errors import OptionError


class Sample(tuple[Any, ...]):
    """A sample of a dataset: a tuple, for which an error of torch's default collate function has a hint."""

    __slots__ = ()


def collated(images: Sequence[Any]) -> Any:
    """The batch that torch's `default_collate` makes of images. Raises `OptionError` if they do not fit together."""
    return _with_hint(default_collate, images, "or no transform: then you get Batch objects")


def _collate_samples(samples: Sequence[Sample], *, collate_fn_map: Any = None) -> list[Any]:
    def together(values: Sequence[Any]) -> Any:
        return collate(values, collate_fn_map=collate_fn_map)

    return [
        _with_hint(together, values, "or give the DataLoader your own collate_fn")
        for values in zip(*samples, strict=True)
    ]


def _refuse_batches(batches: Sequence[Batch], *, collate_fn_map: Any = None) -> NoReturn:
    raise OptionError(
        f"Wanted single samples to make a batch of {len(batches)}. Found: loader.Batch objects. The source makes the "
        "batches: use DataLoader(dataset, batch_size=None), and batch_size of the source."
    )


default_collate_fn_map[Sample] = _collate_samples
default_collate_fn_map[Batch] = _refuse_batches


def _with_hint(together: Callable[[Any], Any], values: Sequence[Any], otherwise: str) -> Any:
    try:
        return together(values)
    except (RuntimeError, TypeError) as error:
        if not (found := _misfits(values)):
            raise
        raise OptionError(
            f"Wanted tensors of one size to make a batch of {len(values)}. Found: {found}. Use a transform that gives "
            f"such tensors, for example Compose([RandomResizedCrop(224), ToTensor()]), {otherwise}."
        ) from error


def _misfits(values: Sequence[Any]) -> str:
    """The value or type that makes no batch, or two sizes that differ; empty if neither is the reason."""
    for value in values:
        if value is None:
            return "None, which a transform without a return statement gives"
        if not hasattr(value, "shape"):
            kind = type(value)
            return "" if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    shapes = list(dict.fromkeys(tuple(value.shape) for value in values))
    return " and ".join(map(str, shapes[:2])) if len(shapes) > 1 else ""
