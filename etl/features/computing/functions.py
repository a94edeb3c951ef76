"""Feature functions: what computes a view's values, from a name on the command line to a call for a list of images.

A function takes one image and returns its value, or takes a list of images and returns a list of values. Annotations
say which, and whether images are encoded bytes or arrays of pixels (uint8, RGB)::

    def redness(image: np.ndarray) -> float: ...
    def embedding(images: list[np.ndarray]) -> list[np.ndarray]: ...
    def exif(image: bytes) -> dict[str, str | None]: ...

A value is a number, a bool, a text, bytes, a vector, or a dict of these by field; None means that there is no value.
The annotation of the result says the type of a field, where it names one type. Otherwise the values say it.
"""

import hashlib
import importlib
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

import numpy as np

from etl.errors import FunctionError, one_line
from etl.features.computing import builtin
from etl.features.computing.modules import own_modules
from etl.features.computing.pictures import DECODER, Picture
from etl.pictures.images import RejectedError
from schemas.feature_sources import Builtin, Python, typed
from schemas.features import FeatureView, vector_length

T = TypeVar("T")

_IMAGE_AS: dict[str, Callable[[Picture], Any]] = {
    "picture": lambda picture: picture,
    "bytes": lambda picture: picture.data,
    "array": lambda picture: picture.array,
}

BATCH = 32
"""The number of images in a list that a function gets."""

_TYPES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "boolean"),
    ((np.int8, np.int16, np.int32, np.uint8, np.uint16), "int"),
    ((int, np.integer), "bigint"),
    ((np.float16, np.float32), "float"),
    ((float, np.floating), "double"),
    ((str,), "text"),
    ((bytes,), "blob"),
)
_MOST_BYTES = 1 << 20  # of a text or bytes: a row of the values of all views of an image is read at once
_RANGES = {"int": 1 << 31, "bigint": 1 << 63}


class ValueMismatchError(Exception):
    """A function returned something else than its view's fields. The message says what was wanted and found."""


@dataclass(frozen=True, slots=True)
class Function:
    """A loaded function: what it takes, whether it takes lists, and the type of its fields if it is annotated."""

    call: Callable[[Any], Any]
    takes: Literal["picture", "bytes", "array"]
    takes_lists: bool
    returns: str | None = None

    def values(self, pictures: Sequence[Picture]) -> list[Any]:
        """The values of images, of which there is more than one only if the function takes lists. Raises
        `RejectedError` if an image cannot be decoded, and `ValueMismatchError` if the function returns no list of that
        length.
        """
        images = list(map(_IMAGE_AS[self.takes], pictures))
        if not self.takes_lists:
            return [self.call(image) for image in images]
        found = self.call(images)
        if isinstance(found, dict | str | bytes) or not hasattr(found, "__len__") or len(found) != len(images):
            count = f"{len(found):,} values" if hasattr(found, "__len__") else type(found).__name__
            raise ValueMismatchError(f"Wanted a list of {len(images)} values. Found: {count}")
        return list(found)


def load(source: Builtin | Python) -> Function:
    """Load the function of a view's source. Raises `FunctionError` if there is none, its annotations do not say what it
    takes, or a package is missing.
    """
    if isinstance(source, Builtin):
        view = builtin.VIEWS[source.name]
        if view.package and find_spec(view.package) is None:
            raise FunctionError(
                f"Wanted the package {view.package}, on the driver and on every executor, for {source.name}. Found: it "
                f"is not installed. Run: pip install {view.package}"
            )
        return Function(view.compute, takes="picture", takes_lists=False)
    return _annotated(source)


def digest_of(source: Python) -> str:
    """The SHA-256, in hexadecimal, of what makes a Python function's values: the files of its module and of the user's
    own modules that this imports and, if it takes pixels, the version of the decoder. Raises `FunctionError`.
    """
    decoder = _decoder_of(source)
    lines = [f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(_files_of(source).items())]
    return hashlib.sha256("\n".join(["modules", *lines, decoder]).encode()).hexdigest()


def is_unchanged(source: Python, digest: str) -> bool:
    """Whether a function's values are still made as a registered digest says, which may have been registered by an
    earlier version. Raises `FunctionError`.
    """
    return digest == digest_of(source) or digest == _digest_of_module(source)


def modules_unknown(source: Python, digest: str) -> list[str]:
    """The user's own modules that a function's module imports, if an earlier version registered its digest, which does
    not tell whether they have changed. Raises `FunctionError`.
    """
    if digest != _digest_of_module(source):
        return []
    return sorted(name for name, text in _files_of(source).items() if text.strip() and name != source.module)


def _files_of(source: Python) -> dict[str, bytes]:
    try:
        files = own_modules(source.module)
    except OSError as error:
        raise FunctionError(f"Wanted the source text of {source.module}. Found: {one_line(error)}") from None
    if source.module not in files:
        raise FunctionError(f"Wanted the source text of {source.module}. Found: none")
    return files


def _digest_of_module(source: Python) -> str:
    """The digest that earlier versions registered."""
    decoder = _decoder_of(source)  # imports the module
    try:
        text = inspect.getsource(sys.modules[source.module])
    except (OSError, TypeError) as error:
        raise FunctionError(f"Wanted the source text of {source.module}. Found: {one_line(error)}") from None
    return hashlib.sha256((text + decoder).encode()).hexdigest()


def _decoder_of(source: Python) -> str:
    return "" if _annotated(source).takes == "bytes" else DECODER


def _imported(module: str, name: str) -> Callable[[Any], Any]:
    wanted = f"Wanted the function {name!r} in the module {module!r}."
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # any error of the user's code
        raise FunctionError(
            f"{wanted} Found: {type(error).__name__}: {one_line(error)}. Run the job from the folder of the module, or "
            "set PYTHONPATH; on a cluster, send the module with --py-files."
        ) from None
    if not callable(found):
        raise FunctionError(f"{wanted} Found: {'no such name' if found is None else type(found).__name__}.")
    return found  # type: ignore[no-any-return]  # any callable


def _annotated(source: Python) -> Function:
    call, name = _imported(source.module, source.function), typed(source)
    wanted = f"Wanted {name} to take one parameter of type bytes, numpy.ndarray, list[bytes] or list[numpy.ndarray]."
    try:
        hints = typing.get_type_hints(call)
        parameters = [one for one in inspect.signature(call).parameters.values() if one.default is one.empty]
    except (NameError, TypeError, ValueError) as error:
        raise FunctionError(f"{wanted} Found: {one_line(error)}.") from None
    if len(parameters) != 1:
        raise FunctionError(f"{wanted} Found: {len(parameters)} parameters without a default.")
    hint = hints.get(parameters[0].name)
    is_list = typing.get_origin(hint) in (list, Sequence)
    kind = typing.get_args(hint)[0] if is_list else hint
    is_array = kind is np.ndarray or typing.get_origin(kind) is np.ndarray
    if not is_array and kind is not bytes:
        found = "no annotation" if hint is None else f"the annotation {hint}"
        raise FunctionError(f"{wanted} Found: {found}.")
    returns = _annotated_type(hints.get("return"), is_list=is_list)
    return Function(call, takes="array" if is_array else "bytes", takes_lists=is_list, returns=returns)


def _annotated_type(hint: Any, *, is_list: bool) -> str | None:
    """The type of a view's fields by the annotation of its function's result, or of the items of a list of results.
    None for vectors, whose length no annotation says, and for annotations of several types.
    """
    if is_list:
        hint = next(iter(typing.get_args(hint)), None)
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    found = [_annotated_one(one) for one in options if one is not type(None)]
    return reduce(_common, found) if found else None


def _annotated_one(hint: Any) -> str | None:
    if typing.get_origin(hint) in (dict, Mapping):
        return _annotated_type(typing.get_args(hint)[1], is_list=False)
    return next((name for kinds, name in _TYPES if isinstance(hint, type) and issubclass(hint, kinds)), None)


def fields_of(name: str, value: Any, *, returns: str | None = None) -> dict[str, str]:
    """The type of each field of a view by name: ``returns``, or that of the value that its function returned for an
    image. Raises `ValueMismatchError` for a value that cannot be stored.
    """
    if isinstance(value, Mapping):
        if not value or not all(isinstance(key, str) for key in value):
            raise ValueMismatchError(f"Wanted a dict of values by name. Found: {_shown(value)}")
        named = {key if key.startswith(f"{name}_") else f"{name}_{key}": one for key, one in value.items()}
        if len(named) < len(value):
            raise ValueMismatchError(f"Wanted each field once, {name}_ before it or not. Found: {_shown(value)}")
    else:
        named = {name: value}
    return {field: _stored_as(returns, one, field) for field, one in named.items()}


def _stored_as(kind: str | None, value: Any, name: str) -> str:
    """The type of a field: ``kind`` if it is given and the value, if there is one, can be stored as it."""
    if kind is None:
        return _type_of(value)
    _stored(kind, value, name)
    return kind


def agreed_fields(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str] | None:
    """The types of fields that the values of two images can have, for different types of numbers the wider one; None if
    the values have other fields, or types that have nothing in common.
    """
    if one.keys() != other.keys():
        return None
    found = {name: _common(kind, other[name]) for name, kind in one.items()}
    return {name: kind for name, kind in found.items() if kind} if all(found.values()) else None


def _common(one: str | None, other: str | None) -> str | None:
    """The type for values of both types; None if there is none."""
    kinds = {one, other}
    if len(kinds) == 1:
        return one
    if not kinds <= {"int", "bigint", "float", "double"}:
        return None
    return "bigint" if kinds == {"int", "bigint"} else "double"


def _type_of(value: Any) -> str:
    for kinds, found in _TYPES:
        if isinstance(value, kinds):
            return found
    vector = _vector(value)
    if vector is None:
        raise ValueMismatchError(
            f"Wanted a number, bool, str, bytes, vector of numbers, or a dict of these by name. Found: {_shown(value)}"
        )
    return f"float[{len(vector)}]"


def _vector(value: Any) -> "np.ndarray[Any, Any] | None":
    """A value as a vector of float32, if it is one."""
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        found = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        return None
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "fiu":
        return None
    with np.errstate(over="ignore"):
        return found.astype("<f4")


def row_of(view: FeatureView, value: Any) -> list[Any]:
    """The value of each field of a view as it is stored, in order; vectors as bytes of little-endian float32 numbers.
    Raises `ValueMismatchError` for a value that does not have these fields, with these types.
    """
    if value is None:
        return [None] * len(view.fields)
    names = list(view.fields)
    if isinstance(value, Mapping):
        given = {key if key in view.fields else f"{view.name}_{key}": one for key, one in value.items()}
        if given.keys() != view.fields.keys() or len(given) < len(value):
            raise ValueMismatchError(f"Wanted the fields {', '.join(names)}. Found: {', '.join(value) or 'none'}")
        return [_stored(view.fields[name], given[name], name) for name in names]
    if names != [view.name]:
        raise ValueMismatchError(f"Wanted a dict with the fields {', '.join(names)}. Found: {_shown(value)}")
    return [_stored(view.fields[view.name], value, view.name)]


def _stored(kind: str, value: Any, name: str) -> Any:
    if value is None:
        return None
    length = vector_length(kind)
    if length is not None:
        vector = _vector(value)
        if vector is not None and len(vector) == length and np.isfinite(vector).all():
            return vector.tobytes()
    elif kind == "boolean" and isinstance(value, bool | np.bool_):
        return bool(value)
    elif kind in _RANGES and isinstance(value, int | np.integer) and not isinstance(value, bool):
        if -_RANGES[kind] <= value < _RANGES[kind]:
            return int(value)
    elif kind in ("float", "double") and isinstance(value, int | float | np.integer | np.floating):
        with np.errstate(over="ignore"):  # it becomes infinite, which is refused
            number = float(np.float32(value)) if kind == "float" else float(value)
        if not isinstance(value, bool) and math.isfinite(number):
            return number
    elif (kind == "text" and isinstance(value, str)) or (kind == "blob" and isinstance(value, bytes)):
        return _bounded(value, name)
    raise ValueMismatchError(f"Wanted {kind} for {name}. Found: {_shown(value)}")


def _bounded(value: str | bytes, name: str) -> str | bytes:
    """Return a text or bytes unchanged. Raises `ValueMismatchError` if it is too long, or not valid Unicode."""
    try:
        size = len(value.encode() if isinstance(value, str) else value)
    except UnicodeEncodeError as error:  # as names of files and texts of EXIF may have
        raise ValueMismatchError(
            f"Wanted text for {name}. Found: {value[error.start]!a} at {error.start}, which is not a character. "
            "Decode with errors='replace'"
        ) from None
    if size > _MOST_BYTES:
        raise ValueMismatchError(f"Wanted at most {_MOST_BYTES:,} bytes for {name}. Found: {size:,}")
    return value


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape:
        return f"{type(value).__name__} of shape {shape}, {getattr(value, 'dtype', '')}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)} items"
    return f"{type(value).__name__} {str(value)[:60]!r}"


def computed(view: FeatureView, function: Function, pictures: Sequence[Picture]) -> list[tuple[list[Any] | None, str]]:
    """For each image, the value of each field as it is stored and ``""``, or None and why there is none. If a list
    fails, its images are computed one by one.
    """
    if function.takes_lists and len(pictures) > 1:
        try:
            return [(row_of(view, value), "") for value in function.values(pictures)]
        except Exception:  # any error of the user's function, or a bad image or value among good ones
            pass
    return [_one(view, function, picture) for picture in pictures]


def probed(view: FeatureView, function: Function, picture: Picture) -> tuple[dict[str, str] | None, str]:
    """The fields of a view, inferred from its value of an image, and ``""``; or None and why there are none."""

    def infer(value: Any) -> dict[str, str]:
        if value is None:
            raise ValueMismatchError("Wanted a value. Found: None")
        return fields_of(view.name, value, returns=function.returns)

    return _caught(lambda: infer(*function.values([picture])))


def _one(view: FeatureView, function: Function, picture: Picture) -> tuple[list[Any] | None, str]:
    return _caught(lambda: row_of(view, *function.values([picture])))


def _caught(compute: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return compute(), ""
    except (RejectedError, ValueMismatchError) as error:
        return None, one_line(error)
    except Exception as error:  # any error of the user's function
        return None, f"{type(error).__name__}: {one_line(error)}"
