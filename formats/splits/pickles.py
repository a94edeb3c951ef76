"""Pickles of numbers, texts, arrays and UUIDs, read without trusting them.

A pickle is a program. It runs here with substitutes for the few classes that such files name, and without access to
anything else.
"""

import io
import pickle
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from formats.errors import FormatsError, NotASplitError

_MOST_TUPLES = 20_000
_NUMBERS = re.compile(r"O8?|[<>|=]?[biuf][1248]")


class _StandIn:
    """The substitute for a class that a file names. numpy's own classes trust their input: a forged dtype makes them
    use bytes as addresses of objects.
    """

    def __new__(cls, *_: object) -> Self:
        return object.__new__(cls)

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:  # without one, a file could set attributes of the class itself
        raise pickle.UnpicklingError("a state for a class that has none")


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


class Array(_StandIn):
    """``items`` of an array of objects, or ``numbers``; neither if it has more than one dimension."""

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


class _FromBuffer(Array):
    def __init__(self, data: Any, dtype: _Dtype, shape: object, *_: object) -> None:
        self._fill(data, dtype, shape)


class Scalar(_StandIn):
    """A number of numpy: ``value``."""

    def __init__(self, dtype: _Dtype, data: Any) -> None:
        self.value = np.frombuffer(data, dtype.numpy)[0].item()


_STAND_INS: dict[tuple[str, str], type[_StandIn]] = {
    ("uuid", "UUID"): _Uuid,
    ("uuid", "SafeUUID"): _StandIn,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): Array,
}
for _core in ("numpy.core", "numpy._core"):  # numpy 1 and 2
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = Array
    _STAND_INS[f"{_core}.multiarray", "scalar"] = Scalar
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> type[_StandIn]:
        if stand_in := _STAND_INS.get((module, name)):
            return stand_in
        found = f"{module}.{name}"[:200]
        raise NotASplitError(f"a file that tries to load {found!r}, which was not loaded: do not trust it")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise NotASplitError("a file that tries to load a persistent id, which was not loaded: do not trust it")


def load_pickle(data: bytes) -> Mapping[Any, Any]:
    """The dictionary in a pickle, of plain objects and the substitutes above. Raises `NotASplitError`."""
    try:
        _check_opcodes(data)
        found = _Unpickler(io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
    except FormatsError:
        raise
    except Exception as error:  # a damaged or malicious file may cause any error
        reason = f"{type(error).__name__}: {error}"[:200]
        raise NotASplitError(f"no pickle, or a truncated or damaged one ({reason})") from None
    if type(found) is not dict:
        raise NotASplitError("a pickle of something other than a dictionary")
    return found


# All opcodes but copyreg's extensions. Opcodes that are followed by a length, with the number of its bytes:
_SIZED = {b"\x8a": 1, b"\x8c": 1, b"C": 1, b"U": 1, b"\x8b": 4, b"B": 4, b"T": 4, b"X": 4}
_SIZED |= {b"\x8d": 8, b"\x8e": 8, b"\x95": 8, b"\x96": 8}
# Opcodes that make a tuple of something:
_TUPLES = (b"t", b"\x85", b"\x86", b"\x87")
# All other opcodes, many at a time, with their arguments; and the two sizes of LONG1 that most UUIDs have. (Their
# number is limited: without a limit the matcher would need memory for each; with a possessive one, Python before 3.11.3
# matches wrongly.)
_SIMPLE = (
    rb"(?:[\x81\x88\x89\x8f-\x94\x97\x98()012NQR\]abdelosu}]|[Khq\x80].|\x8a(?:\x10.{16}|\x11.{17})|M..|[Jj].{4}"
    rb"|r...[\0-%b]|G.{8}|p[0-9]{1,7}\n|[FILPSVg][^\n]*\n|[ci][^\n]*\n[^\n]*\n){1,500}"
)


def _check_opcodes(data: bytes) -> None:
    """Raise `pickle.UnpicklingError` for what would end the process before an error could be raised."""
    # That is: endlessly nested tuples (as keys they are hashed recursively, on C's stack), and very large memo numbers
    # (the memo is an array; they may not be much larger than the file).
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
