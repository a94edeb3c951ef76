"""The exceptions of this package (drawn in the package's docstring), and imports that raise one of them."""

import importlib
from typing import Any

from schemas.errors import ImagestrataError


class LoaderError(ImagestrataError):
    """The base class of all errors of this package."""


class OptionError(LoaderError, ValueError):
    """An option is out of its range, or two options contradict each other."""


class MissingExtraError(LoaderError, ImportError):
    """A required library is not installed. The message says what to install."""


class SplitError(LoaderError):
    """There is no readable split at the named place."""


class StateError(LoaderError, ValueError):
    """A state belongs to another split, seed or order, or to one rank where the states of all are needed."""


class TableError(LoaderError):
    """A table is missing, or its columns are not those that the split names."""


class AccessError(LoaderError):
    """Cassandra or a store answers but refuses access: user, password, certificates, TLS, or the right to read or
    write.
    """


class UnreachableError(LoaderError):
    """Cassandra or a store does not answer."""


class MissingImageError(LoaderError):
    """An image of the split, or its metadata, is missing; or more images are missing than may be."""


class DeletedImageError(MissingImageError):
    """An image of the split was deleted from its tables on purpose (``jobs/delete.py``, ``ingest.py --prune``)."""


class ChangedImageError(LoaderError):
    """An image has other bytes than when its split was made: it was replaced since, or is damaged."""


class ShardError(LoaderError):
    """A shard is missing, truncated or does not match its manifest, or cannot be written."""


class DecodeError(LoaderError):
    """The bytes of an image are not a picture, or a file of a sample cannot be decoded."""


class DeliveryError(LoaderError):
    """An epoch had too many or too few samples, or not all of its workers took part. Do not use this epoch."""


class ClosedError(LoaderError):
    """A source is used after it was closed."""


def closed() -> ClosedError:
    """The error for reading from a source that was closed."""
    return ClosedError("Cannot read from a closed source.")


def require(module: str, *, extra: str = "", package: str = "", purpose: str, note: str = "") -> Any:
    """Import a library that belongs to an extra, or is a package; raises `MissingExtraError` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        wanted = package or f"'imagestrata[{extra}]'"
        raise MissingExtraError(
            f"Wanted {module} for {purpose}. Found: it cannot be imported ({error}). "
            f"Install it: pip install {wanted}{'. ' if note else ''}{note}",
            name=module,
        ) from error
