"""The exception tree of this package, drawn in the package's docstring."""


class FormatsError(Exception):
    """Something on disk cannot be read or written as its format says."""


class NotASplitError(FormatsError):
    """A place holds no split folder or dictionary that can be read."""


class DamagedError(FormatsError):
    """Files and manifest disagree, or the parts of a split dictionary."""


class ShardError(FormatsError):
    """Samples cannot be packed into shards."""


class ArchiveError(FormatsError):
    """A tar is damaged, or holds what it must not."""


class StorageError(FormatsError, OSError):
    """A storage does not answer, refuses us, or cannot be used at all."""


class RefusedError(StorageError):
    """A storage answers, but not to these keys, or has no such bucket."""


class NoBucketError(RefusedError):
    """A storage has no such bucket."""


class AddressError(StorageError, ValueError):
    """An address is one of a store that is not supported, has a typo, or has a password, which logs would show."""
