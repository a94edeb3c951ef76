"""Checks of options as callers give them. All but `index_in` raise `OptionError`."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from loader.errors import OptionError
from schemas.features import SERVICE

MOST_SHOWN = 64  # pictures on a sheet
_COLUMN = re.compile(r"[A-Za-z]\w*", re.ASCII)
FEATURE = re.compile(rf"{_COLUMN.pattern}|{SERVICE}[a-z][a-z0-9_]*(@v[1-9][0-9]{{0,3}})?", re.ASCII)
"""A feature, or a feature service."""


def check_int(name: str, value: int, least: int | None = None, most: int | None = None) -> int:
    """The value, if it is a whole number in its range. NumPy's are accepted."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least) or (most is not None and value > most):
        span = f" from {least} to {most}" if most is not None else f" of at least {least}" if least is not None else ""
        raise OptionError(f"Wanted {name} as a whole number{span}. Found: {value!r}")
    return int(value)


def check_seconds(name: str, value: float) -> float:
    """A time above 0."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):
        raise OptionError(f"Wanted {name} in seconds, above 0. Found: {value!r}")
    return float(value)


def check_share(name: str, value: float) -> float:
    """A share, from 0 to 1."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise OptionError(f"Wanted {name} as a share from 0 to 1. Found: {value!r}")
    return float(value)


def check_numbers(name: str, value: Sequence[float], count: int) -> tuple[float, ...]:
    """So many numbers, none of them infinite."""
    numbers: tuple[Any, ...] = tuple(value) if isinstance(value, Iterable) else ()
    is_good = all(isinstance(one, (int, float, np.number)) and np.isfinite(one) for one in numbers)
    if not is_good or len(numbers) != count:
        raise OptionError(f"Wanted {name} as {count} numbers. Found: {value!r}")
    return tuple(map(float, numbers))


def check_weight(name: str, value: float, *, of: str) -> float:
    """A number of at least 0 that a float can hold; ``of`` says what it is the weight of."""
    given: Any = value
    number = given.item() if isinstance(given, (np.integer, np.floating)) else given
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= sys.float_info.max:
        raise OptionError(f"Wanted {name} as finite numbers of at least 0. Found: {value!r} of {of}")
    return float(number)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """One of a few words."""
    if value not in choices:
        raise OptionError(f"Wanted {name} as one of {tuple(choices)}. Found: {value!r}")


def check_names(name: str, value: Sequence[str], *, like: re.Pattern[str] = _COLUMN) -> tuple[str, ...]:
    """Names of columns, none twice."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    names: tuple[Any, ...] = tuple(value) if is_list else (None,)
    is_good = all(isinstance(one, str) and like.fullmatch(one) for one in names) and len({*names}) == len(names)
    if not is_good:
        raise OptionError(
            f"Wanted {name} as a list of different names, of letters, digits and underscores, without versions. "
            f"Found: {value!r}"
        )
    return names


def check_functions(**functions: Any) -> None:
    """Functions or None, by their names."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise OptionError(f"Wanted {name} as a function. Found: {function!r}")


def index_in(length: int, index: int) -> int:
    """An index counted from the front. Raises IndexError."""
    found = int(index) + length if index < 0 else int(index)
    if not 0 <= found < length:
        raise IndexError(f"Wanted an index from {-length} to {length - 1}. Found: {index}")
    return found


def name_of(function: Any) -> str:
    """A function's name for `repr`; for an object that is called, its class's."""
    return str(getattr(function, "__qualname__", None) or ("None" if function is None else type(function).__name__))


def check_bools(**values: bool) -> None:
    """True or False, by their names."""
    for name, value in values.items():
        if not isinstance(value, (bool, np.bool_)):
            raise OptionError(f"Wanted {name} as True or False. Found: {value!r}")
