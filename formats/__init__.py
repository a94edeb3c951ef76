"""File formats and storage: split folders and dictionaries, shards, pictures, hashes, permutations, and object stores.

This package uses neither Spark, Cassandra nor torch. Errors::

    FormatsError(ImagestrataError)
    ├── NotASplitError           there is no readable split folder or dictionary at an address
    ├── DamagedError             files do not match their manifest: lengths, counts or fingerprint
    ├── ArchiveError             a tar is damaged, or has members that are not allowed
    ├── PictureError             a file is no picture, or its pixels cannot be shown in 8 bits
    ├── ShardError               samples cannot be packed into shards
    └── StorageError(OSError)    a storage does not answer, denies access, or cannot be used
        ├── RefusedError         it denies access with these keys, or has no such bucket (NoBucketError)
        └── AddressError         its address is not supported, has a typo, or contains a password
"""

import importlib
import typing

from formats.errors import (
    ArchiveError,
    DamagedError,
    FormatsError,
    NoBucketError,
    NotASplitError,
    PictureError,
    RefusedError,
    ShardError,
    StorageError,
)

if typing.TYPE_CHECKING:
    from formats.permutation import Permutation
    from formats.splits.dictionary import write_dictionary
    from formats.splits.opened import OpenSplit, SplitRows, is_dictionary
    from formats.splits.opening import open_split

# Imported on first use: numpy and pyarrow take as much memory as all the rest of a dataset service.
_LATER = {
    "OpenSplit": "splits.opened",
    "Permutation": "permutation",
    "SplitRows": "splits.opened",
    "is_dictionary": "splits.opened",
    "open_split": "splits.opening",
    "write_dictionary": "splits.dictionary",
}

__all__ = [
    "ArchiveError",
    "DamagedError",
    "FormatsError",
    "NoBucketError",
    "NotASplitError",
    "OpenSplit",
    "Permutation",
    "PictureError",
    "RefusedError",
    "ShardError",
    "SplitRows",
    "StorageError",
    "is_dictionary",
    "open_split",
    "write_dictionary",
]


def __getattr__(name: str) -> typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'formats' has no attribute {name!r}")
    return getattr(importlib.import_module(f"formats.{_LATER[name]}"), name)
