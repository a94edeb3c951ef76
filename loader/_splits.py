"""A split as the loader sees it: ids and labels by position, and where the images are."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loader._errors import OptionError, SplitError
from schemas import Columns, TableName


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One split, opened for reading.

    ``ids``: uint8 ``(n, 16)``, big-endian UUIDs; ``labels``: int32 ``(n,)``; both by position, read-only and mapped
    into memory, so that the ranks of a host share them. ``counts``: rows by class number. ``class_names`` may be
    fewer than ``num_classes``, where the tables do not tell them.
    """

    ids: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int32] = field(repr=False)
    index: int
    num_classes: int
    class_names: Mapping[int, str] = field(repr=False)
    counts: Mapping[int, int] = field(repr=False)
    data_table: str
    columns: Columns = field(repr=False)
    fingerprint: str = field(repr=False)
    address: str

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return (
            f"Split({self.address!r}, index={self.index}: {len(self):,} images of {self.num_classes} classes "
            f"from {self.data_table}, fingerprint {self.fingerprint[:12]})"
        )


def open_split(
    address: str | os.PathLike[str], *, index: int = 0, cache: str | os.PathLike[str] | None = None
) -> Split:
    """Open one split of a split folder, at a local path or an address such as ``s3://bucket/splits/imagenette``.

    The first opening on a host reads the Parquet files, checks them against their fingerprint and writes ids and
    labels to ``cache`` (by default ``$IMAGESTRATA_CACHE``, or a folder in the user's cache); later ones map those.

    Raises `OptionError` for an index that is not there, `SplitError` for a place without a split, of a newer format,
    with labels other than class numbers, or whose files disagree with its manifest.
    """
    # Parquet and storage take a third of a second to import: not before a split is opened.
    from formats import FormatsError, SplitFolder
    from schemas import SchemaError

    try:
        folder = SplitFolder.open(address)
        manifest = folder.manifest
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(manifest.splits):
            raise OptionError(
                f"Wanted index from 0 to {len(manifest.splits) - 1} for {folder.address}. Found: {index!r}"
            )
        if manifest.label_type != "int":
            raise SplitError(
                f"Wanted a split with labels of type 'int' at {folder.address}. Found: {manifest.label_type!r}"
            )
        TableName.parse(manifest.data_table)
        part = folder.part(index)
        rows = folder.rows(index, cache=cache)
    except (FormatsError, SchemaError) as error:
        raise SplitError(str(error)) from error
    return Split(
        ids=np.asarray(rows.ids),
        labels=np.asarray(rows.labels),
        index=index,
        num_classes=manifest.num_classes,
        class_names=manifest.class_names,
        counts=part.counts,
        data_table=manifest.data_table,
        columns=manifest.columns,
        fingerprint=part.fingerprint,
        address=folder.address,
    )
