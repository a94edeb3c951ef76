"""Split dictionaries: a whole split in one pickled dictionary, as other people's tools write and read them.

::

    data_table, metadata_table             keyspace.table
    data_id_col, data_label_col, data_col  the data table's columns
    medadata_id_col, metadata_label_col    the metadata table's columns (the first is spelled so)
    label_type, num_classes
    row_keys                               object array of uuid.UUID, each once
    split                                  a list of integer arrays, one a split: places in row_keys, in order
    labels                                 int32, by place in row_keys; ours alone, and others ignore it

A pickle is a program. `read_dictionary` runs it with stand-ins for the few classes that such files name, and with
nothing else in reach.
"""

import io
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.errors import DamagedError, FormatsError, NotASplitError
from formats.fingerprint import row_sums, split_fingerprint
from formats.split_folder import SplitRows
from formats.storage import Storage
from schemas import Columns, SplitManifest
from schemas.splits import ID_BYTES

MAX_ROWS = 20_000_000
"""The most images that are written: readers make an object of each, of about 200 bytes."""

_Part: TypeAlias = bytes | memoryview

_CHUNK = 65_536
_MOST_TUPLES = 20_000
_NUMBERS = re.compile(r"O8?|[<>|=]?[biuf][1248]")


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryRows:
    """The rows of one split in its order: ids uint8 ``(n, 16)``, big-endian, and labels int32 ``(n,)``, if known.

    Read-only. ``fingerprint`` is that of `formats.fingerprint`, of seed 0, with -1 for labels that are not known.
    """

    ids: NDArray[np.uint8]
    labels: NDArray[np.int32] | None
    fingerprint: str

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class SplitDictionary:
    """What a split dictionary holds."""

    address: str
    data_table: str
    metadata_table: str
    columns: Columns
    label_type: str
    num_classes: int
    splits: tuple[DictionaryRows, ...] = field(repr=False)


def is_dictionary(address: str | os.PathLike[str]) -> bool:
    """Whether an address is one of a split dictionary: its name ends with ``.pckl`` or ``.pkl``, in any case."""
    return os.fspath(address).lower().endswith((".pckl", ".pkl"))


def write_dictionary(storage: Storage, name: str, *, manifest: SplitManifest, splits: Sequence[SplitRows]) -> None:
    """Write the splits of a manifest as one dictionary, a pickle of protocol 4 for numpy 1 and 2.

    Images come in the order of splits and positions; one that lies in several splits comes once. Readers see the old
    file or the new one, whole. Raises `FormatsError` for more than `MAX_ROWS` images, `DamagedError` for an image
    with two labels.
    """
    ids = np.concatenate([np.empty((0, ID_BYTES), np.uint8), *(rows.ids for rows in splits)])
    labels = np.concatenate([np.empty(0, np.int32), *(rows.labels for rows in splits)])
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
    storage.write_bytes(name, b"".join([b"\x80\x04}(", *pairs, b"u."]))


# Values are put together opcode by opcode (pickletools tells what each does). A pickler would want an object of each
# id, and keep it and its state until the end: 400 bytes an image instead of 28. And it would name private modules of
# numpy that older ones lack, where `numpy.ndarray` and `numpy.dtype` have always been at their places.


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
    one = before + bytes(ID_BYTES + 1) + after  # the number is little-endian and signed: one more byte, always 0
    records = np.empty((len(ids), len(one)), np.uint8)
    records[:] = np.frombuffer(one, np.uint8)
    records[:, len(before) : len(before) + ID_BYTES] = ids[:, ::-1]
    memo = b"cuuid\nUUID\nq\x000" + _text("int") + b"q\x010"
    return [memo, *_array("O", len(ids), b"](", records.data, b"e")]


def _first_places(ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    """For each row the first row that has its id: int64 ``(n,)``."""
    high, low = np.ascontiguousarray(ids).view(">u8").astype(np.uint64).T
    order = np.lexsort((low, high))  # stable: of the same ids, the first row comes first
    is_new = np.ones(len(ids), dtype=bool)
    is_new[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    first = np.empty(len(ids), dtype=np.int64)
    first[order] = order[is_new][np.cumsum(is_new) - 1]
    return first


def read_dictionary(address: str | os.PathLike[str]) -> SplitDictionary:
    """Read a split dictionary at a local path or address, ours or another tool's.

    It may hold arrays of numbers and of UUIDs, containers, numbers and strings. Nothing else that it names is
    imported or called, and a file that names anything else is not read.

    Raises `NotASplitError` for a place without a file, a file that is no pickle, is cut off, names anything else or
    lacks a key, `DamagedError` for keys and splits that do not fit together, `schemas.IdentifierError` for columns
    that Cassandra would not take.
    """
    text = os.fspath(address)
    folder, slash, name = text.rpartition("/")
    storage = Storage(folder or slash or ".")
    place = storage.path(name) if storage.is_local else text
    try:
        return _checked(_load(storage.read_bytes(name)), place)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        found = "no such file. Make one with jobs/split.py."
        raise NotASplitError(f"Wanted a split dictionary at {place}. Found: {found}") from None
    except (NotASplitError, DamagedError) as error:
        raise type(error)(f"Wanted a split dictionary at {place}. Found: {error}. Make it again.") from None


def _checked(found: Mapping[Any, Any], address: str) -> SplitDictionary:
    texts = ("data_table", "data_id_col", "data_label_col", "metadata_table", "data_col", "label_type")
    if missing := [key for key in (*texts, "row_keys", "split", "num_classes") if key not in found]:
        raise NotASplitError(f"a dictionary without {', '.join(missing)}")
    if wrong := [key for key in texts if type(found[key]) is not str]:
        raise DamagedError(f"no text as {', '.join(wrong)}")
    classes = found["num_classes"].value if isinstance(found["num_classes"], _Scalar) else found["num_classes"]
    if type(classes) is not int or classes < 0:
        raise DamagedError("no whole number as num_classes")
    if type(found["split"]) not in (list, tuple):
        raise DamagedError("no list of arrays as split")
    ids = _ids(found["row_keys"])
    labels = _labels(found["labels"], rows=len(ids)) if "labels" in found else None
    return SplitDictionary(
        address=address,
        data_table=found["data_table"],
        metadata_table=found["metadata_table"],
        columns=Columns(id=found["data_id_col"], label=found["data_label_col"], data=found["data_col"]),
        label_type=found["label_type"],
        num_classes=classes,
        splits=tuple(_rows(index, part, ids, labels) for index, part in enumerate(found["split"])),
    )


def _ids(keys: object) -> NDArray[np.uint8]:
    items = keys.items if isinstance(keys, _Array) else None
    if items is None:
        raise DamagedError("no array of UUIDs as row_keys")
    ids = np.empty((len(items), ID_BYTES), np.uint8)
    for start in range(0, len(items), _CHUNK):
        chunk = items[start : start + _CHUNK]
        try:
            packed = b"".join([one.int.to_bytes(ID_BYTES, "big") for one in chunk])
        except (AttributeError, OverflowError):  # something else, or a UUID without a number or out of range
            raise DamagedError(f"row_keys that are no UUIDs, from row {start} to {start + len(chunk) - 1}") from None
        ids[start : start + len(chunk)] = np.frombuffer(packed, np.uint8).reshape(-1, ID_BYTES)
    is_again = _first_places(ids) != np.arange(len(ids))
    if is_again.any():
        raise DamagedError(f"{int(is_again.sum())} duplicates in row_keys, the first at row {is_again.argmax()}")
    return ids


def _labels(labels: object, *, rows: int) -> NDArray[np.int32]:
    numbers = labels.numbers if isinstance(labels, _Array) else None
    if numbers is None or not np.can_cast(numbers.dtype, np.int32) or len(numbers) != rows:
        raise DamagedError(f"no {rows} int32 as labels")
    return numbers.astype(np.int32)


def _rows(index: int, part: object, ids: NDArray[np.uint8], labels: NDArray[np.int32] | None) -> DictionaryRows:
    numbers = part.numbers if isinstance(part, _Array) else None
    if numbers is None or (numbers.dtype.kind not in "iu" and numbers.size):  # numpy's empty array is one of floats
        raise DamagedError(f"no array of integers as split {index}")
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(ids):
        raise DamagedError(f"places outside 0..{len(ids) - 1} in split {index}")
    places = numbers.astype(np.int64)
    if np.bincount(places).max(initial=0) > 1:
        raise DamagedError(f"rows that come twice in split {index}")
    own_ids, own_labels = ids[places], np.full(len(places), -1, np.int32) if labels is None else labels[places]
    own_ids.flags.writeable = own_labels.flags.writeable = False
    sums = row_sums(own_ids, own_labels, np.arange(len(places), dtype=np.int64))
    fingerprint = split_fingerprint(seed=0, index=index, rows=len(places), sums=sums)
    return DictionaryRows(own_ids, None if labels is None else own_labels, fingerprint)


class _StandIn:
    """What a file gets for a class that it names.

    Numpy's own classes believe what they are told: a forged dtype has them take bytes for addresses of objects.
    """

    def __new__(cls, *_: object) -> Self:
        return object.__new__(cls)

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:  # without one, a file could set attributes of the class itself
        raise pickle.UnpicklingError("a state where there is none")


class _Uuid(_StandIn):
    __slots__ = ("int",)

    def __setstate__(self, state: Any) -> None:
        self.int = state["int"]


class _Dtype(_StandIn):
    def __init__(self, text: object, *_: object) -> None:
        if not isinstance(text, str) or not _NUMBERS.fullmatch(text):
            raise pickle.UnpicklingError("an array of neither numbers nor objects")
        self.numpy = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.numpy = self.numpy.newbyteorder(state[1])


class _Array(_StandIn):
    """``items`` of an array of objects, or ``numbers``; neither if it has more dimensions than one."""

    items: list[Any] | None = None
    numbers: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        *_, shape, dtype, _, data = state
        self._fill(data, dtype, shape)

    def _fill(self, data: Any, dtype: _Dtype, shape: object) -> None:
        if dtype.numpy.kind == "O":
            self.items = data if type(data) is list and shape == (len(data),) else None
        else:
            numbers = np.frombuffer(data, dtype.numpy)
            self.numbers = numbers if shape == numbers.shape else None


class _FromBuffer(_Array):
    def __init__(self, data: Any, dtype: _Dtype, shape: object, *_: object) -> None:
        self._fill(data, dtype, shape)


class _Scalar(_StandIn):
    def __init__(self, dtype: _Dtype, data: Any) -> None:
        self.value = np.frombuffer(data, dtype.numpy)[0].item()


_STAND_INS: dict[tuple[str, str], type[_StandIn]] = {
    ("uuid", "UUID"): _Uuid,
    ("uuid", "SafeUUID"): _StandIn,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
}
for _core in ("numpy.core", "numpy._core"):  # numpy 1 and 2
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = _Array
    _STAND_INS[f"{_core}.multiarray", "scalar"] = _Scalar
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> type[_StandIn]:
        if stand_in := _STAND_INS.get((module, name)):
            return stand_in
        found = f"{module}.{name}"[:200]
        raise NotASplitError(f"a file that wants to load {found!r}, which was not loaded: do not trust it")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise NotASplitError("a file that wants to load a persistent id, which was not loaded: do not trust it")


def _load(data: bytes) -> Mapping[Any, Any]:
    try:
        _check_opcodes(data)
        found = _Unpickler(io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
    except FormatsError:
        raise
    except Exception as error:  # a file that is damaged, or made to do damage, may cause any
        reason = f"{type(error).__name__}: {error}"[:200]
        raise NotASplitError(f"no pickle, or one that is cut off or damaged ({reason})") from None
    if type(found) is not dict:
        raise NotASplitError("a pickle of something else than a dictionary")
    return found


# All opcodes but copyreg's extensions. Those with a length of so many bytes before what follows:
_SIZED = {b"\x8a": 1, b"\x8c": 1, b"C": 1, b"U": 1, b"\x8b": 4, b"B": 4, b"T": 4, b"X": 4}
_SIZED |= {b"\x8d": 8, b"\x8e": 8, b"\x95": 8, b"\x96": 8}
# Those that make a tuple of something:
_TUPLES = (b"t", b"\x85", b"\x86", b"\x87")
# All others, many at a time, with what follows them; and the two sizes of LONG1 that most UUIDs have. (Not as many as
# there are: without end, the matcher would need memory for each; possessively, Python before 3.11.3 matches wrongly.)
_SIMPLE = (
    rb"(?:[\x81\x88\x89\x8f-\x94\x97\x98()012NQR\]abdelosu}]|[Khq\x80].|\x8a(?:\x10.{16}|\x11.{17})|M..|[Jj].{4}"
    rb"|r...[\0-%b]|G.{8}|p[0-9]{1,7}\n|[FILPSVg][^\n]*\n|[ci][^\n]*\n[^\n]*\n){1,500}"
)


def _check_opcodes(data: bytes) -> None:
    """Refuse what would end the process before any error could be raised; raises `pickle.UnpicklingError`.

    That is: tuples within tuples without end (as keys they are hashed recursively, on C's stack), and memo numbers
    beyond all need (the memo is an array: they may not be much larger than the file).
    """
    simple = re.compile(_SIMPLE % re.escape(bytes([min(len(data) >> 24, 255)])), re.DOTALL)
    place = tuples = 0
    while True:
        if matched := simple.match(data, place):
            place = matched.end()
            continue
        code = data[place : place + 1]
        if code == pickle.STOP:
            return
        if code in _TUPLES:
            tuples, place = tuples + 1, place + 1
        elif code in _SIZED:
            start = place + 1 + _SIZED[code]
            end = start + int.from_bytes(data[place + 1 : start], "little")
            place = start if code == pickle.FRAME else end  # what is in a frame are opcodes
            if end > len(data):
                raise pickle.UnpicklingError("it is cut off")
        else:
            raise pickle.UnpicklingError(f"opcode {code!r} at byte {place}" if code else "it is cut off")
        if tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError(f"more than {_MOST_TUPLES:,} tuples")
