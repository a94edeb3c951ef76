"""How things lie on disk: splits as folders and as dictionaries, shards, hash and permutation, and their storage.

No Spark, no Cassandra, no torch. Errors::

    FormatsError(Exception)
    ├── NotASplitError           a place holds no split folder or dictionary that can be read
    ├── DamagedError             files and manifest disagree: lengths, counts or fingerprint
    ├── ArchiveError             a tar is damaged, or holds what it must not
    ├── ShardError               samples cannot be packed into shards
    └── StorageError(OSError)    a storage does not answer, refuses us, or cannot be used at all
        ├── RefusedError         it answers, but not to these keys, or has no such bucket (NoBucketError)
        └── AddressError         its address is not supported, has a typo, or has a password, which logs would show
"""

import importlib
import typing

from formats.errors import (
    ArchiveError,
    DamagedError,
    FormatsError,
    NoBucketError,
    NotASplitError,
    RefusedError,
    ShardError,
    StorageError,
)

if typing.TYPE_CHECKING:
    from formats.permutation import Permutation
    from formats.splits.cache import SplitRows
    from formats.splits.dictionary import SplitDictionary, is_dictionary, read_dictionary, write_dictionary
    from formats.splits.folder import SplitFolder

# Not before they are asked for: numpy and pyarrow take as much memory as a whole dataset service does besides.
_LATER = {
    "Permutation": "permutation",
    "SplitDictionary": "splits.dictionary",
    "SplitFolder": "splits.folder",
    "SplitRows": "splits.cache",
    "is_dictionary": "splits.dictionary",
    "read_dictionary": "splits.dictionary",
    "write_dictionary": "splits.dictionary",
}

__all__ = [
    "ArchiveError",
    "DamagedError",
    "FormatsError",
    "NoBucketError",
    "NotASplitError",
    "Permutation",
    "RefusedError",
    "ShardError",
    "SplitDictionary",
    "SplitFolder",
    "SplitRows",
    "StorageError",
    "is_dictionary",
    "read_dictionary",
    "write_dictionary",
]


def __getattr__(name: str) -> typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'formats' has no attribute {name!r}")
    return getattr(importlib.import_module(f"formats.{_LATER[name]}"), name)
