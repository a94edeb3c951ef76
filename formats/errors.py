"""The exceptions of this package. The package's docstring shows the tree."""

from schemas.errors import ImagestrataError


class FormatsError(ImagestrataError):
    """A file cannot be read or written in its format."""


class NotASplitError(FormatsError):
    """There is no readable split folder or dictionary at an address."""


class DamagedError(FormatsError):
    """Files do not match their manifest, or the parts of a split dictionary do not match each other."""


class ShardError(FormatsError):
    """Samples cannot be packed into shards."""


class PictureError(FormatsError):
    """The bytes of a file are not a picture, or its pixels cannot be shown in 8 bits."""


class ArchiveError(FormatsError):
    """A tar is damaged, or has members that are not allowed."""


class StorageError(FormatsError, OSError):
    """A storage does not answer, denies access, or cannot be used."""


class RefusedError(StorageError):
    """A storage denies access with these keys, or has no such bucket."""


class NoBucketError(RefusedError):
    """A storage has no such bucket."""


class AddressError(StorageError, ValueError):
    """An address is not supported, has a typo, or contains a password, which logs would show."""
