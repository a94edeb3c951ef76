"""The features that a split was made with, as arrays by position."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats import FormatsError
from formats.splits.opened import OpenSplit
from loader.errors import OptionError, SplitError
from loader.options import FEATURE, check_names
from loader.splits import Split
from schemas import SchemaError, SplitManifest
from schemas.features import SERVICE, ViewName


def open_features(split: Split, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Open features of a split by their names, or all of a service: the values by position, read-only, ``(n,)`` of the
    field's type, or float32 ``(n, N)`` for a vector. Raises `OptionError` for a feature that the split does not have,
    or that is no number, boolean or vector, and `SplitError` for damaged files, or a split that was replaced.
    """
    # The first time that a host opens a feature, its files are read, compared with their fingerprint, and written to
    # the cache of opened splits as a raw array. Later calls map this array into memory.
    names = check_names("features", names, like=FEATURE)
    if not names:
        return {}
    if split.opened.storage is None:
        raise OptionError(f"Wanted a split folder, which can have features. Found: {split!r}")
    from formats.splits.opening import open_split  # imports Arrow, a third of a second

    try:
        folder = open_split(split.address)
        if folder.part(split.index).fingerprint != split.fingerprint:
            raise SplitError(
                f"Wanted the split {split.address}, index {split.index}, with the fingerprint {split.fingerprint}, as "
                "when it was opened. Found: another one. The split was replaced. Open it again."
            )
        fields = [field for name in names for field in _fields_of(folder, name)]
        return {name: _values(folder, split.index, name, split.cache) for name in fields}
    except (FormatsError, SchemaError, IndexError) as error:
        raise SplitError(str(error)) from error


def gathered(columns: Mapping[str, NDArray[Any]], positions: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The values at some positions, copied."""
    return {name: np.asarray(column[positions]) for name, column in columns.items()}


def _fields_of(folder: OpenSplit, name: str) -> list[str]:
    """The fields that a name stands for: itself, or those of all views of a service."""
    if not name.startswith(SERVICE):
        return [name]
    wanted, services = ViewName.parse(name.removeprefix(SERVICE)), folder.manifest.services
    known = {ViewName.parse(title): views for title, views in services.items()}
    found = [one for one in known if one == wanted or (one.name == wanted.name and wanted.version is None)]
    if not found:
        raise OptionError(
            f"Wanted a feature service that the split {folder.address} was made with: {', '.join(services) or 'none'}. "
            f"Found: {name!r}. Make the split with it: split.py --features {name}"
        )
    views = known[max(found, key=lambda one: one.version or 0)]
    return [field for stored in folder.manifest.stored_features if stored.view in views for field in stored.fields]


def _values(folder: OpenSplit, index: int, name: str, cache: str | os.PathLike[str] | None) -> NDArray[Any]:
    from formats.splits.features import field_files, is_numeric  # imports Arrow, a third of a second

    found = field_files(folder, index, name)
    if found is None:
        raise OptionError(_lacking(folder.address, folder.manifest, name))
    if not is_numeric(found.kind):
        raise OptionError(
            f"Wanted a feature that is a number, a boolean or a vector. Found: {name}, of type {found.kind}. "
            f"Read it from the Parquet files in {folder.address}/_features/{found.stored.view}."
        )
    return np.asarray(found.values(cache=cache))


def _lacking(address: str, manifest: SplitManifest, name: str) -> str:
    there = [f"{field} ({one.view})" for one in manifest.stored_features for field in one.fields]
    views = [one.view for one in manifest.stored_features]
    view = next((one for one in views if one.partition("@")[0] == name), None)
    fields = next((", ".join(one.fields) for one in manifest.stored_features if one.view == view), "")
    remedy = (
        f"{view} has these fields: {fields}."
        if view
        else f"Make the split with it: split.py --features {','.join([*views, name])}"
    )
    return f"Wanted a feature of the split {address}: {', '.join(there) or 'it has none'}. Found: {name!r}. {remedy}"
