"""The rows of a split as an Arrow table, and what a metadata cache knows of them."""

import os
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from formats.errors import DamagedError, NotASplitError
from formats.stores.storage import Storage
from schemas.cache import NAME as CACHE
from schemas.cache import OURS, CacheManifest
from schemas.splits import ID_BYTES

OWN = ("id", "label", "class_name", "position")  # the columns of a split's own

_CHUNK = 1 << 20  # an Arrow array of text holds at most 2 GB
_DASHES, _TEXT_BYTES = (8, 13, 18, 23), 36
_DIGITS = [place for place in range(_TEXT_BYTES) if place not in _DASHES]
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint8).reshape(256, 2)


def rows_table(ids: NDArray[np.uint8], labels: NDArray[np.int32] | None, class_names: Mapping[int, str]) -> pa.Table:
    """The rows of a split as an Arrow table, from ids by position, uint8 ``(n, 16)``: ``id`` (text), ``label`` and
    ``class_name`` if there are labels, ``position``.
    """
    columns = {"id": uuid_texts(ids)}
    if labels is not None:
        names = pa.array([class_names.get(label) for label in range(int(labels.max(initial=-1)) + 1)], pa.string())
        columns |= {"label": pa.array(labels, pa.int32()), "class_name": names.take(pa.array(labels))}
    return pa.table({**columns, "position": pa.array(np.arange(len(ids), dtype=np.int64))})


def uuid_texts(ids: NDArray[np.uint8]) -> pa.ChunkedArray:
    """Ids, uint8 ``(n, 16)``, as texts of 36 characters."""
    return pa.chunked_array([_texts(ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)], pa.string())


def _texts(ids: NDArray[np.uint8]) -> pa.Array:
    text = np.full((len(ids), _TEXT_BYTES), ord("-"), dtype=np.uint8)
    text[:, _DIGITS] = _HEX[ids].reshape(len(ids), -1)
    ends = np.arange(len(ids) + 1, dtype=np.int32) * _TEXT_BYTES
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(text))


def read_cache(address: str | os.PathLike[str]) -> CacheManifest:
    """The manifest of a metadata cache. Raises `NotASplitError` if there is none, `schemas.SchemaError`."""
    storage = Storage(address)
    try:
        return CacheManifest.from_json(storage.read_text(CACHE), place=f"{storage.address}/{CACHE}")
    except (FileNotFoundError, NotADirectoryError):
        raise NotASplitError(
            f"Wanted a metadata cache at {storage.address}. Found: no {CACHE} there. "
            "Make one with jobs/split.py --metadata-ofn."
        ) from None


def cached_metadata(
    address: str | os.PathLike[str], cache: CacheManifest, ids: NDArray[np.uint8], columns: Sequence[str]
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The rows of a metadata cache with these ids, uint8 ``(n, 16)``, in their order, and for each id whether the cache
    has it. This takes memory for the ids of the whole cache, one of its files, and the result. Raises `DamagedError` if
    a file is missing or cannot be read, or an id is in the cache twice.
    """
    storage = Storage(address)
    wanted = pa.Array.from_buffers(pa.binary(ID_BYTES), len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))])
    tables: list[pa.Table] = []
    places = [np.empty(0, dtype=np.int32)]
    try:
        known = [_read(storage, file.path, ["id"])["id"].combine_chunks() for file in cache.files]
        found = pc.index_in(pa.chunked_array(known, pa.binary()), value_set=wanted.cast(pa.binary()))
        start = 0
        for file, rows in zip(cache.files, map(len, known), strict=True):
            place = found.slice(start, rows)
            start += rows
            tables.append(_read(storage, file.path, columns).filter(place.is_valid()))
            places.append(place.drop_null().to_numpy())
        place = np.concatenate(places)
        table = pa.concat_tables(tables).take(pa.array(np.argsort(place))) if columns and tables else pa.table({})
    except (FileNotFoundError, pa.ArrowException, KeyError, UnicodeDecodeError) as error:
        raise _damaged(storage, error) from error
    is_known = np.zeros(len(ids), dtype=bool)
    is_known[place] = True
    if len(place) != is_known.sum():
        raise DamagedError(f"Wanted each id once in the metadata cache {storage.address}. Found: some more than once.")
    return table, is_known


def column_names(address: str | os.PathLike[str], cache: CacheManifest) -> list[str]:
    """The columns that a metadata cache has of its table, in the order of its files. Raises `DamagedError` if a file is
    missing or cannot be read.
    """
    storage = Storage(address)
    try:
        for file in cache.files[:1]:
            with storage.open(file.path) as stream:
                return [name for name in pq.read_schema(stream).names if not name.startswith(OURS)]
    except (FileNotFoundError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(storage, error) from error
    return []


def _damaged(storage: Storage, error: Exception) -> DamagedError:
    return DamagedError(
        f"Wanted the files of the metadata cache {storage.address}. Found: {error}. "
        "Make the cache again with jobs/split.py --metadata-ofn --overwrite."
    )


def _read(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    with storage.open(path) as stream, pq.ParquetFile(stream) as parquet:
        return parquet.read(columns=list(columns))
