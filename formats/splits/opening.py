"""Opens splits: folders, and dictionaries by the ends of their names."""

import os

from formats.splits.dictionary import read_dictionary
from formats.splits.folder import read_folder
from formats.splits.opened import OpenSplit, is_dictionary


def open_split(address: str | os.PathLike[str]) -> OpenSplit:
    """Open the splits at a local path or address: of a folder, the manifest is read; a dictionary is read whole. Raises
    `NotASplitError` if there are none, `DamagedError` if the parts of a dictionary do not fit together, `SchemaError`
    if the format is newer or names of columns would not be accepted by Cassandra, `StorageError` if the storage does
    not answer.
    """
    return read_dictionary(address) if is_dictionary(address) else read_folder(address)
