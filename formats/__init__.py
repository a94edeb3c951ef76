"""How things lie on disk: split folders, the keyed hash and permutation, and the storage that holds them.

No Spark, no Cassandra, no torch. Errors::

    FormatsError(Exception)
    ├── NotASplitError           a place holds no split folder that can be read
    ├── DamagedError             files and manifest disagree: lengths, counts or fingerprint
    └── StorageError(OSError)    a storage does not answer, refuses us, or cannot be used at all
"""

from formats.errors import DamagedError, FormatsError, NotASplitError, StorageError
from formats.permutation import Permutation
from formats.split_folder import SplitFolder, SplitRows

__all__ = ["DamagedError", "FormatsError", "NotASplitError", "Permutation", "SplitFolder", "SplitRows", "StorageError"]
