"""The exception tree of this package, drawn in the package's docstring, and imports that raise one of it."""

import importlib
from typing import Any


class LoaderError(Exception):
    """Images cannot be loaded as asked."""


class OptionError(LoaderError, ValueError):
    """An option is out of its range, or two options contradict each other."""


class MissingExtraError(LoaderError, ImportError):
    """A library that is needed here is not installed; the message says what to install."""


class SplitError(LoaderError):
    """There is no split that can be read at the place named."""


class StateError(LoaderError, ValueError):
    """A state is of another split, seed or order, or of one rank where all are needed."""


class TableError(LoaderError):
    """The data table is not there, or its columns are not those that the split names."""


class AccessError(LoaderError):
    """Cassandra or a store answers, but one side refuses the other: user, password, certificates, TLS
    or the right to read or write."""


class UnreachableError(LoaderError):
    """Cassandra or a store does not answer, at the start or later."""


class MissingImageError(LoaderError):
    """The data table does not hold an image that a split names, or more of them than may be missing."""


class ShardError(LoaderError):
    """A shard is missing, cut off or another than the manifest says, or cannot be written."""


class DecodeError(LoaderError):
    """The bytes of an image are not a picture, or a file of a sample cannot be decoded."""


class DeliveryError(LoaderError):
    """An epoch ended with more or fewer samples than it has, or its workers did not all take part: do not use it."""


class ClosedError(LoaderError):
    """A source is used after it was closed."""


def require(module: str, *, extra: str, purpose: str, note: str = "") -> Any:
    """Import a library that belongs to an extra; raises `MissingExtraError` where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"Wanted {module} for {purpose}. Found: it cannot be imported ({error}). "
            f"Install it: pip install 'imagestrata[{extra}]'{'. ' if note else ''}{note}",
            name=module,
        ) from error
