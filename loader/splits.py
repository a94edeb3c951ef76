"""A split as the loader sees it: ids and labels by position, and where the images are."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loader.errors import OptionError, SplitError, require
from schemas import Columns, TableName
from schemas.tables import LABEL_TYPES

if TYPE_CHECKING:
    import pandas
    import PIL.Image
    import pyarrow


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One split, opened for reading.

    ``ids``: uint8 ``(n, 16)``, big-endian UUIDs; ``labels``: int32 ``(n,)``; both by position and read-only, and mapped
    into memory from a split folder, so that the ranks of a host share them. ``label_type``: "int" for class numbers,
    "blob" for masks, "multi" for arrays, "none". ``labels`` is None but for class numbers, and where a split dictionary
    does not tell these: sources read labels with the images then. ``counts``: rows by class number, empty without
    labels. ``class_names`` may be fewer than ``num_classes``, where the tables do not tell them. ``recorded_table`` is
    the data table that a rows file names, where ``data_table`` was given in its place; else empty.

    What `open_split` opened (``is_opened``, with the ``cache`` that it was given) pickles as the place and the
    fingerprint, and is opened again where it is unpickled, in a worker process; that raises `SplitError` if there is
    another split by then. Any other pickles with its arrays.
    """

    ids: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int32] | None = field(repr=False)
    index: int
    num_classes: int
    class_names: Mapping[int, str] = field(repr=False)
    counts: Mapping[int, int] = field(repr=False)
    data_table: str
    metadata_table: str
    columns: Columns = field(repr=False)
    fingerprint: str = field(repr=False)
    address: str
    label_type: str = "int"
    cache: str | None = field(default=None, repr=False)
    is_opened: bool = field(default=False, repr=False)
    recorded_table: str = field(default="", repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return (
            f"Split({self.address!r}, index={self.index}: {len(self):,} images of {self.num_classes} classes "
            f"from {self.data_table}, fingerprint {self.fingerprint[:12]})"
        )

    def to_arrow(
        self,
        *,
        metadata: bool | Sequence[str] = False,
        metadata_cache: str | os.PathLike[str] | None = None,
        hosts: str | Sequence[str] | None = None,
        port: int | None = None,
        **access: Any,
    ) -> "pyarrow.Table":
        """The rows as an Arrow table, in the order of their positions.

        Columns: ``id``, the UUID as text, as in cqlsh and in messages (``ids`` has its bytes, in the same order);
        ``label``, int32, and ``class_name``, text, null for a class whose name is not known, both only if the split
        knows class numbers; ``position``, int64, from 0. The columns of the metadata follow. If one of them has the
        name of a column above, it is called ``metadata_NAME``.

        A metadata cache is read as a whole: seconds for millions of rows. Cassandra is asked for each row by its id, a
        few thousand rows a second. Use a cache for large splits.

        Args:
            metadata: Columns of the metadata table, such as ``["path", "width"]``; True for all.
            metadata_cache: Where to read them: a folder that ``jobs/split.py --metadata-ofn`` wrote.
            hosts: Where to read them if there is no cache: Cassandra's contact points.
            port: Cassandra's port, by default 9042.
            **access: Other options of `CassandraSource` about the cluster: ``username``, ``password``, ``access``,
                ``datacenter``, ``consistency``, ``client``, ``connections``.

        Returns:
            A ``pyarrow.Table`` of as many rows as the split has.

        Raises:
            OptionError: A column is not in the cache, or the options name no place to read metadata from, or two.
            SplitError: There is no metadata cache at this place, or its files are damaged.
            MissingImageError: The metadata of an image of the split is missing.
            TableError: The metadata table or one of the columns is missing in Cassandra.
            UnreachableError: Cassandra does not answer.
            AccessError: Cassandra refuses access.
        """
        from loader.adapters.arrow_table import arrow_table

        return arrow_table(self, metadata=metadata, metadata_cache=metadata_cache, hosts=hosts, port=port, **access)

    def to_pandas(self, **options: Any) -> "pandas.DataFrame":
        """The rows as a pandas DataFrame. Columns, order, options and errors are those of `to_arrow`.

        Args:
            **options: The options of `to_arrow`.

        Returns:
            A ``pandas.DataFrame`` with the rows' positions as its index, too.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        require("pandas", extra="spark", purpose="to_pandas()")
        frame: pandas.DataFrame = self.to_arrow(**options).to_pandas()
        return frame

    def show(
        self,
        which: int | Sequence[int] = 16,
        *,
        hosts: str | Sequence[str] | None = None,
        port: int | None = None,
        **access: Any,
    ) -> "PIL.Image.Image":
        """Read some images and show them on one picture, with the names of their classes and their positions.

        A notebook shows the picture. Images are as PIL decodes them for the transforms of `ImageDataset` and
        `TorchDataset`. A mask is below its image, with a colour for each of its numbers; a label array is written out.
        An image that cannot be decoded says so.

        Args:
            which: How many images, from position 0 on, which is a random choice; or the positions themselves. At
                most 64. Shards have no positions to choose by.
            hosts: Cassandra's contact points. Class folders and shards need none.
            port: Cassandra's port, by default 9042.
            **access: Other options of `CassandraSource` about the cluster, as in `to_arrow`.

        Returns:
            A ``PIL.Image.Image``, which has ``save``.

        Raises:
            OptionError: There are more than 64 images, or a position is not in the split.
            MissingExtraError: Pillow is not installed.
            MissingImageError: An image of the split is missing.
        """
        require("PIL", extra="train", purpose="show()")
        from loader.adapters.contact_sheet import sheet_of_split

        return sheet_of_split(self, which, hosts=hosts, port=port, **access)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_opened:
            return _open_again, (self.address, self.index, self.cache, self.fingerprint, self.data_table)
        return type(self), tuple(getattr(self, one.name) for one in fields(self))


def open_split(
    address: str | os.PathLike[str], *, index: int = 0, cache: str | os.PathLike[str] | None = None
) -> Split:
    """Open one split of a split folder or split dictionary, at a local path or an address such as ``s3://bucket/name``.

    Of a folder, the first opening on a host reads the Parquet files, checks them against their fingerprint and writes
    ids and labels to ``cache`` (by default ``$IMAGESTRATA_CACHE``, or a folder in the user's cache), 20 bytes an image;
    later ones map those, and look at their sizes only. A dictionary, a file whose name ends with ``.pckl`` or ``.pkl``,
    may be another tool's: it is read whole at each opening, and nothing that it might want to run is run.

    Raises `OptionError` for an index that is not there, `SplitError` for a place without a split, of a newer format,
    with labels of an unknown type, whose parts disagree, for a pickle of anything else than a split, or for a
    cache that cannot be written.
    """
    return _open(address, index, cache)


def open_rows(
    address: str | os.PathLike[str], *, data_table: str | None = None, cache: str | os.PathLike[str] | None = None
) -> Split:
    """Open a rows file, which jobs/cache_rows.py makes of a whole table, as a split.

    ``data_table``, as ``keyspace.table``, is read in place of the one that the file names. Places, the ``cache`` and
    what is raised are as with `open_split`; a place with more than one split raises `SplitError`.
    """
    try:
        split = _open(address, None, cache)
    except SplitError as error:
        raise SplitError(f"{error} A rows file is made with jobs/cache_rows.py.") from error
    return split if data_table is None else _read_from(split, _table(data_table))


def _open(address: str | os.PathLike[str], index: int | None, cache: str | os.PathLike[str] | None) -> Split:
    """Open a split; None is the only one."""
    # Parquet and storage take a third of a second to import: not before a split is opened.
    from formats import FormatsError, is_dictionary
    from schemas import SchemaError

    try:
        return _open_dictionary(address, index) if is_dictionary(address) else _open_folder(address, index, cache)
    except (FormatsError, SchemaError) as error:
        raise SplitError(str(error)) from error


def _table(name: str) -> str:
    from schemas import SchemaError

    if not isinstance(name, str):
        raise OptionError(f"Wanted data_table as keyspace.table. Found: {name!r}")
    try:
        return str(TableName.parse(name))
    except SchemaError as error:
        raise OptionError(str(error)) from None


def _open_folder(address: str | os.PathLike[str], index: int | None, cache: str | os.PathLike[str] | None) -> Split:
    from formats import SplitFolder

    folder = SplitFolder.open(address)
    manifest = folder.manifest
    index = _checked(folder.address, index, len(manifest.splits), manifest.label_type, manifest.data_table)
    part = folder.part(index)
    rows = folder.rows(index, cache=cache)
    return Split(
        ids=np.asarray(rows.ids),
        labels=np.asarray(rows.labels) if manifest.label_type == "int" else None,
        index=index,
        num_classes=manifest.num_classes,
        class_names=manifest.class_names,
        counts=part.counts,
        data_table=manifest.data_table,
        metadata_table=manifest.metadata_table,
        columns=manifest.columns,
        fingerprint=part.fingerprint,
        address=folder.address,
        label_type=manifest.label_type,
        cache=None if cache is None else os.path.abspath(cache),
        is_opened=True,
    )


def _open_dictionary(address: str | os.PathLike[str], index: int | None) -> Split:
    from formats import read_dictionary

    found = read_dictionary(address)
    index = _checked(found.address, index, len(found.splits), found.label_type, found.data_table)
    rows = found.splits[index]
    return Split(
        ids=rows.ids,
        labels=rows.labels if found.label_type == "int" else None,
        index=index,
        num_classes=found.num_classes,
        class_names={},
        counts={} if rows.labels is None or found.label_type != "int" else counts_of(rows.labels),
        data_table=found.data_table,
        metadata_table=found.metadata_table,
        columns=found.columns,
        fingerprint=rows.fingerprint,
        address=found.address,
        label_type=found.label_type,
        is_opened=True,
    )


def _open_again(address: str, index: int, cache: str | None, fingerprint: str, data_table: str) -> Split:
    split = open_split(address, index=index, cache=cache)
    if split.fingerprint != fingerprint:
        raise SplitError(
            f"Wanted the split {address}, index {index}, with the fingerprint {fingerprint}, as it was opened first. "
            f"Found: {split.fingerprint}. It was made again since: start anew, or give each split a name of its own."
        )
    return _read_from(split, data_table)


def _read_from(split: Split, data_table: str) -> Split:
    """The split with images from this table, which may be another than its file names."""
    recorded = "" if data_table == split.data_table else split.data_table
    return replace(split, data_table=data_table, recorded_table=recorded)


def counts_of(labels: NDArray[np.int32]) -> dict[int, int]:
    classes, counts = np.unique(labels, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def _checked(address: str, index: int | None, splits: int, label_type: str, data_table: str) -> int:
    if index is None:
        if splits != 1:
            raise SplitError(
                f"Wanted a rows file, as jobs/cache_rows.py makes it, at {address}. Found: {splits} splits. "
                "Open one of them with loader.open_split."
            )
        index = 0
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < splits:
        raise OptionError(f"Wanted index from 0 to {splits - 1} for {address}. Found: {index!r}")
    if label_type not in LABEL_TYPES:
        raise SplitError(
            f"Wanted a split with labels of type {', '.join(LABEL_TYPES)} at {address}. Found: {label_type!r}"
        )
    TableName.parse(data_table)
    return index
