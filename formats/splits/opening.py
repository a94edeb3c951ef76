"""Opens splits: folders, and dictionaries by the ends of their names."""

import os

from formats.splits.dictionary import read_dictionary
from formats.splits.folder import read_folder
from formats.splits.opened import OpenSplit, is_dictionary


def open_split(address: str | os.PathLike[str]) -> OpenSplit:
    """Open the splits at a local path or address.

    Of a folder, this reads the manifest; a dictionary is read whole.

    Args:
        address: A split folder, or a split dictionary (``.pckl`` or ``.pkl``).

    Returns:
        The splits.

    Raises:
        NotASplitError: There are none, or the file is not a split dictionary.
        DamagedError: The keys and splits of a dictionary do not fit together.
        SchemaError: The format is newer, or names of columns would not be accepted by Cassandra.
        StorageError: The storage does not answer.
    """
    return read_dictionary(address) if is_dictionary(address) else read_folder(address)
