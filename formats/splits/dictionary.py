"""Split dictionaries: a whole split in one pickled dictionary, as other tools write and read them.

::

    data_table, metadata_table             keyspace.table
    data_id_col, data_label_col, data_col  the data table's columns
    medadata_id_col, metadata_label_col    the metadata table's columns (the first is spelled so)
    label_type, num_classes
    row_keys                               object array of uuid.UUID, each once
    split                                  a list of integer arrays, one for each split: places in row_keys, in order
    labels                                 int32, by place in row_keys; only ours, other tools ignore it

A pickle is a program. `formats.splits.pickles` runs it without access to anything.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.errors import DamagedError, FormatsError, NotASplitError
from formats.splits.fingerprint import row_sums, split_fingerprint
from formats.splits.opened import OpenSplit, SplitRows, counts_of, held_split
from formats.splits.pickles import Array, Scalar, load_pickle
from formats.stores.storage import Storage
from schemas import Columns, SplitManifest, SplitPart
from schemas.splits import ID_BYTES

MAX_ROWS = 20_000_000  # the most images that are written: readers make an object of about 200 bytes for each

_Part: TypeAlias = bytes | memoryview

_CHUNK = 65_536


def write_dictionary(storage: Storage, name: str, *, manifest: SplitManifest, splits: Sequence[SplitRows]) -> None:
    """Write the splits of a manifest as one dictionary, a pickle of protocol 4 for numpy 1 and 2. Images are in the
    order of splits and positions; one that is in several splits is written once. Readers see the old file or the new
    one, complete. Raises `FormatsError` for more than `MAX_ROWS` images, `DamagedError` if an image has two labels.
    """
    ids = np.concatenate([np.empty((0, ID_BYTES), np.uint8), *(rows.ids for rows in splits)])
    labels = np.concatenate([np.empty(0, np.int32), *(rows.numbers for rows in splits)])
    first = _first_places(ids)
    is_first = first == np.arange(len(ids))
    if (images := int(is_first.sum())) > MAX_ROWS:
        raise FormatsError(
            f"Wanted at most {MAX_ROWS:,} images in a split dictionary, {storage.path(name)}. Found: {images:,}. "
            "Write a folder instead: a name that does not end with .pckl or .pkl."
        )
    if not np.array_equal(labels, labels[first]):
        raise DamagedError(
            f"Wanted one label for each image of {storage.path(name)}. Found: an image with two. Make the split again."
        )
    places = (np.cumsum(is_first) - 1)[first]
    ends = np.cumsum([len(rows) for rows in splits], dtype=np.int64)
    parts = [part for rows, end in zip(splits, ends, strict=True) for part in _integers(places[end - len(rows) : end])]
    columns = manifest.columns
    values: dict[str, list[_Part]] = {
        "data_table": [_text(manifest.data_table)],
        "data_id_col": [_text(columns.id)],
        "data_label_col": [_text(columns.label)],
        "metadata_table": [_text(manifest.metadata_table)],
        "medadata_id_col": [_text(columns.id)],
        "metadata_label_col": [_text(columns.label)],
        "data_col": [_text(columns.data)],
        "label_type": [_text(manifest.label_type)],
        "row_keys": _uuids(ids[is_first]),
        "split": [b"](", *parts, b"e"],
        "num_classes": [b"J" + manifest.num_classes.to_bytes(4, "little")],
        "labels": _integers(labels[is_first]),
    }
    pairs = (part for key, value in values.items() for part in (_text(key), *value))
    storage.write_bytes(name, b"".join([b"\x80\x04}(", *pairs, b"u."]), durable=True)


# Values are written opcode by opcode (pickletools describes them). A pickler would need an object for each id, and keep
# it and its state until the end: 400 bytes an image instead of 28. And it would name private modules of numpy that
# older versions lack, while `numpy.ndarray` and `numpy.dtype` have always been in the same place.


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def _array(dtype: str, rows: int, *data: _Part) -> list[_Part]:
    """``ndarray.__new__(ndarray, (0,), "b")``, then its state: version, shape, dtype, not in Fortran's order, data."""
    new = b"cnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x86\x81"
    shape = b"J" + rows.to_bytes(4, "little") + b"\x85"
    return [new, b"(K\x01", shape, b"cnumpy\ndtype\n", _text(dtype), b"\x85R\x89", *data, b"tb"]


def _integers(values: NDArray[np.int32] | NDArray[np.int64]) -> list[_Part]:
    data = values.astype(values.dtype.newbyteorder("<"))
    return _array(f"<i{data.itemsize}", len(data), b"\x8e", data.nbytes.to_bytes(8, "little"), data.data)


def _uuids(ids: NDArray[np.uint8]) -> list[_Part]:
    """For each id ``UUID.__new__(UUID)`` and its state, ``{"int": number}``; the class and "int" come from the memo."""
    before, after = b"h\x00)\x81}h\x01\x8a\x11", b"sb"
    one = (
        before + bytes(ID_BYTES + 1) + after
    )  # the number is little-endian and signed, so it has one more byte, always 0
    records = np.empty((len(ids), len(one)), np.uint8)
    records[:] = np.frombuffer(one, np.uint8)
    records[:, len(before) : len(before) + ID_BYTES] = ids[:, ::-1]
    memo = b"cuuid\nUUID\nq\x000" + _text("int") + b"q\x010"
    return [memo, *_array("O", len(ids), b"](", records.data, b"e")]


def _first_places(ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    """For each row, the first row with its id: int64 ``(n,)``."""
    high, low = np.ascontiguousarray(ids).view(">u8").astype(np.uint64).T
    order = np.lexsort((low, high))  # stable: among equal ids, the first row is first
    is_new = np.ones(len(ids), dtype=bool)
    is_new[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    first = np.empty(len(ids), dtype=np.int64)
    first[order] = order[is_new][np.cumsum(is_new) - 1]
    return first


def read_dictionary(address: str | os.PathLike[str]) -> OpenSplit:
    """Read a split dictionary at a local path or address, ours or another tool's. It may have arrays of numbers and of
    UUIDs, containers, numbers and strings. Nothing else that it names is imported or called, and a file that names
    anything else is refused. Raises `NotASplitError` if there is no file, or if it is not a pickle, is truncated, names
    anything else or lacks a key; `DamagedError` for keys and splits that do not fit together; `schemas.IdentifierError`
    for columns that Cassandra would not accept.
    """
    text = os.fspath(address)
    folder, slash, name = text.rpartition("/")
    storage = Storage(folder or slash or ".")
    place = storage.path(name) if storage.is_local else text
    try:
        return _checked(load_pickle(storage.read_bytes(name)), place)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        found = "no such file. Make one with jobs/split.py."
        raise NotASplitError(f"Wanted a split dictionary at {place}. Found: {found}") from None
    except (NotASplitError, DamagedError) as error:
        raise type(error)(f"Wanted a split dictionary at {place}. Found: {error}. Make it again.") from None


def _checked(found: Mapping[Any, Any], address: str) -> OpenSplit:
    texts = ("data_table", "data_id_col", "data_label_col", "metadata_table", "data_col", "label_type")
    if missing := [key for key in (*texts, "row_keys", "split", "num_classes") if key not in found]:
        raise NotASplitError(f"a dictionary without {', '.join(missing)}")
    if wrong := [key for key in texts if type(found[key]) is not str]:
        raise DamagedError(f"{', '.join(wrong)} that is not text")
    classes = found["num_classes"].value if isinstance(found["num_classes"], Scalar) else found["num_classes"]
    if type(classes) is not int or classes < 0:
        raise DamagedError("num_classes that is not a whole number")
    if type(found["split"]) not in (list, tuple):
        raise DamagedError("split that is not a list of arrays")
    ids = _ids(found["row_keys"])
    labels = _labels(found["labels"], rows=len(ids)) if "labels" in found else None
    columns = Columns(id=found["data_id_col"], label=found["data_label_col"], data=found["data_col"])
    splits = [_rows(index, part, ids, labels) for index, part in enumerate(found["split"])]
    return held_split(
        address,
        [(_part(index, rows, label_type=found["label_type"]), rows) for index, rows in enumerate(splits)],
        num_classes=classes,
        label_type=found["label_type"],
        data_table=found["data_table"],
        metadata_table=found["metadata_table"],
        columns=columns,
    )


def _part(index: int, rows: SplitRows, *, label_type: str) -> SplitPart:
    counts = {} if rows.labels is None or label_type != "int" else counts_of(rows.labels)
    return SplitPart(index=index, rows=len(rows), counts=counts, fingerprint=fingerprint_of(index, rows), files=())


def _ids(keys: object) -> NDArray[np.uint8]:
    items = keys.items if isinstance(keys, Array) else None
    if items is None:
        raise DamagedError("row_keys that are not an array of UUIDs")
    ids = np.empty((len(items), ID_BYTES), np.uint8)
    for start in range(0, len(items), _CHUNK):
        chunk = items[start : start + _CHUNK]
        try:
            packed = b"".join([one.int.to_bytes(ID_BYTES, "big") for one in chunk])
        except (AttributeError, OverflowError):  # something else, or a UUID without a number or out of range
            raise DamagedError(f"row_keys that are not UUIDs, from row {start} to {start + len(chunk) - 1}") from None
        ids[start : start + len(chunk)] = np.frombuffer(packed, np.uint8).reshape(-1, ID_BYTES)
    is_again = _first_places(ids) != np.arange(len(ids))
    if is_again.any():
        raise DamagedError(f"{int(is_again.sum())} duplicates in row_keys, the first at row {is_again.argmax()}")
    return ids


def _labels(labels: object, *, rows: int) -> NDArray[np.int32]:
    numbers = labels.numbers if isinstance(labels, Array) else None
    if numbers is None or not np.can_cast(numbers.dtype, np.int32) or len(numbers) != rows:
        raise DamagedError(f"labels that are not {rows} int32")
    return numbers.astype(np.int32)


def _rows(index: int, part: object, ids: NDArray[np.uint8], labels: NDArray[np.int32] | None) -> SplitRows:
    numbers = part.numbers if isinstance(part, Array) else None
    if numbers is None or (numbers.dtype.kind not in "iu" and numbers.size):  # numpy's empty array is one of floats
        raise DamagedError(f"split {index} that is not an array of integers")
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(ids):
        raise DamagedError(f"places outside 0..{len(ids) - 1} in split {index}")
    places = numbers.astype(np.int64)
    if np.bincount(places).max(initial=0) > 1:
        raise DamagedError(f"duplicate rows in split {index}")
    rows = SplitRows(ids[places], None if labels is None else labels[places])
    for column in (rows.ids, rows.numbers):
        column.flags.writeable = False
    return rows


def fingerprint_of(index: int, rows: SplitRows) -> str:
    """The fingerprint of a split in a dictionary: with seed 0, places as positions, and label -1 where unknown."""
    sums = row_sums(rows.ids, rows.numbers, np.arange(len(rows), dtype=np.int64))
    return split_fingerprint(seed=0, index=index, rows=len(rows), sums=sums)
