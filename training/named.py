"""Users' functions that options name as MODULE:FUNCTION."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from training.errors import TrainingError


def named(name: str, *, option: str) -> Callable[..., Any]:
    """The function, from a module that Python finds, also in the current folder. Raises `TrainingError` if there is
    none.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise TrainingError(f"Wanted {option} as MODULE:FUNCTION. Found: {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise TrainingError(f"Wanted {option} {name}. Found: {error}") from error
    if not callable(found):
        raise TrainingError(f"Wanted {option} {name} to be a function. Found: {found!r}")
    function: Callable[..., Any] = found
    return function
