"""Splits as the loader uses them: ids and labels by position, and where the images are."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from formats import FormatsError
from formats.splits.opened import OpenSplit, SplitRows
from loader.errors import OptionError, SplitError, require
from schemas import Columns, SchemaError, TableName
from schemas.tables import LABEL_TYPES

if TYPE_CHECKING:
    import pandas
    import PIL.Image
    import pyarrow

    from loader.cassandra.cluster import Cluster, ClusterOptions


@dataclass(frozen=True, slots=True)
class Views:
    """The functions behind `Split.to_arrow` and `Split.show`. They read from stores, so their modules need this one."""

    table: Callable[..., "pyarrow.Table"]
    sheet: Callable[..., "PIL.Image.Image"]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One split, opened for reading.

    `open_split` and `open_rows` return it. The arrays of a split folder are memory-mapped, so all ranks of a host share
    them. A split that was opened this way is pickled as its address and fingerprints, and a worker process opens it
    again; that raises `SplitError` if the split has been replaced. Other splits are pickled with their arrays.

    Attributes:
        opened: The splits at the address, with their manifest.
        index: The number of the split in its folder, from 0.
        rows: Its ids, and its labels as the files have them.
        data_table: The table of the images, as ``keyspace.table``.
        cache: The cache folder that was given when the split was opened.
        is_opened: Whether a worker process opens the split again from its address.
    """

    views: ClassVar[Views]  # loader/__init__.py sets them
    opened: OpenSplit = field(repr=False)
    index: int
    rows: SplitRows = field(repr=False)
    data_table: str
    cache: str | None = field(default=None, repr=False)
    is_opened: bool = field(default=False, repr=False)

    @property
    def ids(self) -> NDArray[np.uint8]:
        """UUIDs by position, uint8 ``(n, 16)``, big-endian, read-only."""
        return self.rows.ids

    @property
    def labels(self) -> NDArray[np.int32] | None:
        """Class numbers by position, int32 ``(n,)``, read-only.

        None if labels are not class numbers, or if a split dictionary does not have them; sources then read labels with
        the images.
        """
        return self.rows.labels if self.label_type == "int" else None

    @property
    def checksums(self) -> NDArray[np.int64] | None:
        """Checksums of the images by position, int64 ``(n,)``, read-only; 0 where none is known.

        The checksum is Spark's ``xxhash64`` of the bytes, and of those of the mask or array, when the split was made.
        None if the split has none: splits of earlier versions, of tables that an earlier version wrote, split
        dictionaries, and row lists that are read from another table.

        Raises:
            SplitError: The files of the split have changed, or the cache cannot be written.
        """
        if self.checksums_fingerprint is None:
            return None
        try:
            return self.opened.checksums(self.index, cache=self.cache)
        except FormatsError as error:
            raise SplitError(str(error)) from error

    @property
    def checksums_fingerprint(self) -> str | None:
        """64 hexadecimal digits that identify `checksums`; None if the split has none."""
        return None if self.recorded_table else self.opened.part(self.index).checksums

    @property
    def num_classes(self) -> int:
        """One more than the highest class number."""
        return self.opened.manifest.num_classes

    @property
    def class_names(self) -> Mapping[int, str]:
        """Names by class number. Some may be missing."""
        return self.opened.manifest.class_names

    @property
    def counts(self) -> Mapping[int, int]:
        """Images by class number; empty without labels."""
        return self.opened.part(self.index).counts

    @property
    def metadata_table(self) -> str:
        """The table of the images' metadata."""
        return self.opened.manifest.metadata_table

    @property
    def columns(self) -> Columns:
        """The names of the id, label and data columns."""
        return self.opened.manifest.columns

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that identify the rows and their order."""
        return self.opened.part(self.index).fingerprint

    @property
    def address(self) -> str:
        """Where the split is."""
        return self.opened.address

    @property
    def label_type(self) -> str:
        """Class numbers are "int", masks "blob", label arrays "multi"; or "none"."""
        return self.opened.manifest.label_type

    @property
    def recorded_table(self) -> str:
        """The data table that a row list names, if another one was given; else empty."""
        recorded = self.opened.manifest.data_table
        return "" if recorded == self.data_table else recorded

    @property
    def expires(self) -> str:
        """When its first images expire, ISO 8601, UTC; empty if none do, or that is not known."""
        return self.opened.manifest.expires or ""

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
        cluster: "Cluster | None" = None,
        **where: "Unpack[ClusterOptions]",
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
            cluster: Where to read them if there is no cache. By default the Cassandra that ``imagestrata up`` started.
            **where: The arguments of `Cluster`, such as ``hosts``, instead of ``cluster``.

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
        return self.views.table(self, metadata=metadata, metadata_cache=metadata_cache, cluster=cluster, where=where)

    def to_pandas(self, **options: Any) -> "pandas.DataFrame":
        """The rows as a pandas DataFrame. Columns, order, options and errors are those of `to_arrow`.

        Args:
            **options: The options of `to_arrow`.

        Returns:
            A ``pandas.DataFrame`` with the rows' positions as its index, too.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        require("pandas", package="pandas", purpose="to_pandas()")
        frame: pandas.DataFrame = self.to_arrow(**options).to_pandas()
        return frame

    def show(
        self,
        which: int | Sequence[int] = 16,
        *,
        cluster: "Cluster | None" = None,
        **where: "Unpack[ClusterOptions]",
    ) -> "PIL.Image.Image":
        """Read some images and show them on one picture, with the names of their classes and their positions.

        A notebook shows the picture. Images are as training sees them. A mask is below its image, with a
        colour for each of its numbers; a label array is written out. An image that cannot be decoded says so.

        Args:
            which: How many images, from position 0 on, which is a random choice; or the positions themselves. At
                most 64. Shards have no positions to choose by.
            cluster: Where to read them, by default the Cassandra that ``imagestrata up`` started. Class folders and
                shards need none.
            **where: The arguments of `Cluster`, such as ``hosts``, instead of ``cluster``.

        Returns:
            A ``PIL.Image.Image``, which has ``save``.

        Raises:
            OptionError: There are more than 64 images, or a position is not in the split.
            MissingExtraError: Pillow is not installed.
            MissingImageError: An image of the split is missing.
        """
        require("PIL", package="pillow", purpose="show()")
        return self.views.sheet(self, which, cluster, where)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_opened:
            wanted = self.fingerprint, self.opened.part(self.index).checksums
            return _open_again, (self.address, self.index, self.cache, wanted, self.data_table)
        return type(self), tuple(getattr(self, one.name) for one in fields(self))


def open_split(
    address: str | os.PathLike[str], *, index: int = 0, cache: str | os.PathLike[str] | None = None
) -> Split:
    """Open one split of a split folder or of a split dictionary.

    The first time that a host opens a split of a folder, the Parquet files are read, compared with their fingerprint,
    and written to the cache as raw arrays, 20 bytes an image; reading images adds 8 bytes for checksums. Later calls
    map these arrays into memory and check only their sizes. A split dictionary (``.pckl`` or ``.pkl``) is read whole
    each time; it may come from another tool, and none of the code that a pickle can name is run.

    Args:
        address: A local path, or an address such as ``s3://bucket/name``.
        index: Which split, from 0.
        cache: The folder of opened splits, by default ``$IMAGESTRATA_CACHE`` or a folder in your user cache.

    Returns:
        The split, with ids and labels by position.

    Raises:
        OptionError: There is no split with this index.
        SplitError: There is no readable split: none at all, one of a newer format, one whose files have changed, or a
            pickle of something else. Also if the cache cannot be written.
    """
    return _open(address, index, cache)


def open_rows(
    address: str | os.PathLike[str], *, data_table: str | None = None, cache: str | os.PathLike[str] | None = None
) -> Split:
    """Open a row list, which jobs/cache_rows.py makes of a whole table, as a split.

    Args:
        address: A local path, or an address such as ``s3://bucket/name``.
        data_table: The table to read images from, as ``keyspace.table``, instead of the one that the file names.
        cache: As for `open_split`.

    Returns:
        All rows of the table as one split.

    Raises:
        OptionError: ``data_table`` is not the name of a table.
        SplitError: As for `open_split`; also if there is more than one split.
    """
    try:
        split = _open(address, None, cache)
    except SplitError as error:
        raise SplitError(f"{error} jobs/cache_rows.py makes row lists.") from error
    return split if data_table is None else replace(split, data_table=_table(data_table))


def _open(address: str | os.PathLike[str], index: int | None, cache: str | os.PathLike[str] | None) -> Split:
    """Open a split. With ``index`` None there must be exactly one."""
    from formats.splits import opening  # imports Arrow and storage, a third of a second

    try:
        opened = opening.open_split(address)
        index = _checked(opened, index)
        rows = opened.rows(index, cache=cache)
    except (FormatsError, SchemaError) as error:
        raise SplitError(str(error)) from error
    return Split(
        opened,
        index,
        rows,
        data_table=opened.manifest.data_table,
        cache=None if cache is None else os.path.abspath(cache),
        is_opened=True,
    )


def _table(name: str) -> str:
    if not isinstance(name, str):
        raise OptionError(f"Wanted data_table as keyspace.table. Found: {name!r}")
    try:
        return str(TableName.parse(name))
    except SchemaError as error:
        raise OptionError(str(error)) from None


def _open_again(address: str, index: int, cache: str | None, wanted: tuple[str, str | None], data_table: str) -> Split:
    split = open_split(address, index=index, cache=cache)
    found = split.fingerprint, split.opened.part(index).checksums
    for what, one, other in zip(("fingerprint", "fingerprint of checksums"), wanted, found, strict=True):
        if one != other:
            raise SplitError(
                f"Wanted the split {address}, index {index}, with the {what} {one}, as when it was first opened. "
                f"Found: {other}. The split was replaced. Open it again, or give each split its own name."
            )
    return replace(split, data_table=data_table)


def _checked(opened: OpenSplit, index: int | None) -> int:
    address, label_type, splits = opened.address, opened.manifest.label_type, len(opened.manifest.splits)
    if index is None:
        if splits != 1:
            raise SplitError(
                f"Wanted a row list of jobs/cache_rows.py at {address}. Found: {splits} splits. "
                "Open one of them with loader.open_split."
            )
        index = 0
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < splits:
        raise OptionError(f"Wanted index from 0 to {splits - 1} for {address}. Found: {index!r}")
    if label_type not in LABEL_TYPES:
        raise SplitError(
            f"Wanted a split with labels of type {', '.join(LABEL_TYPES)} at {address}. Found: {label_type!r}"
        )
    TableName.parse(opened.manifest.data_table)
    return index
