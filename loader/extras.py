"""Libraries that are imported on first use, so that ``import loader`` is fast and works without them."""

import importlib
from typing import Any

from loader.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> Any:
    """Import a library that belongs to an extra; raises `MissingExtraError` where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"Wanted {module} for {purpose}. Found: it cannot be imported ({error}). "
            f"Install it: pip install 'imagestrata[{extra}]'",
            name=module,
        ) from error
