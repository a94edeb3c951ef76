"""The options of a sharding job, validated before anything starts."""

import os
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

from etl.ingest.plan import Tolerance
from etl.pictures.plan import Check, Recode
from etl.sources.plan import SourcePlan, is_local
from formats.stores.s3 import is_s3
from schemas import Columns, TableName
from schemas.as_of import AsOf
from schemas.shards import MOST_BYTES_ON_S3

Compression = Literal["none", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)

OBJECT_STORE_BYTES = 100_000_000
FILE_SYSTEM_BYTES = 2_000_000_000
_LEAST_BYTES = 10_240


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """The options of one sharding job.

    Images come from a ``source`` or from two tables. With ``split``, only the images of split ``index`` are packed,
    with its labels and in its order; by default they come from its tables. ``maxsize`` is in bytes, including headers;
    None means 100 MB on an object store and 2 GB on a file system. ``dataset`` is the dataset name in the ids of a
    source's images. ``tolerance`` is how many images may be rejected: by default none of a table or a split, whose
    images were checked when they were ingested, and any of other sources. ``as_of`` takes the images that tables had
    after an earlier run, and ``skip_replaced`` leaves out those whose bytes no longer exist. Raises ValueError for
    invalid options.
    """

    source: SourcePlan | None = None
    data_table: TableName | None = None
    metadata_table: TableName | None = None
    split: str | None = None
    index: int = 0
    out: str
    maxsize: int | None = None
    maxcount: int = 100_000
    seed: int = 0
    dataset: str = ""
    columns: Columns = field(default_factory=Columns)
    recode: Recode = field(default_factory=Recode)
    check: Check = "header"
    compress: Compression = "none"
    tolerance: Tolerance | None = None
    endpoint: str | None = None
    overwrite: bool = False
    resume: bool = False
    as_of: str | None = None
    skip_replaced: bool = False

    def __post_init__(self) -> None:
        self._check_images()
        self._check_order()
        self._check_output()

    def _check_images(self) -> None:
        tables = [table for table in (self.data_table, self.metadata_table) if table is not None]
        if self.source is not None and tables:
            raise ValueError("Wanted images from a SOURCE or from tables. Found: both.")
        if len(tables) == 1:
            raise ValueError("Wanted --data-table and --metadata-table. Found: one of them.")
        if self.source is None and not tables and self.split is None:
            raise ValueError("Wanted a SOURCE, --data-table and --metadata-table, or --split. Found: none.")
        if len(set(tables)) < len(tables):
            raise ValueError(f"Wanted two tables, for data and for metadata. Found: {self.data_table} for both.")
        for given, name in ((self.source, "a SOURCE"), (self.split, "--split")):
            if self.as_of is not None and given is not None:
                raise ValueError(f"Wanted --as-of with --data-table and --metadata-table. Found: {name}.")
        if self.as_of is not None:
            AsOf.parse(self.as_of)
        if self.skip_replaced and self.as_of is None:
            raise ValueError("Wanted --skip-replaced with --as-of. Found: --skip-replaced alone.")
        if self.source is not None and self.columns != Columns():
            raise ValueError("Wanted --id-col, --label-col and --data-col with tables. Found: a SOURCE.")
        if self.source is not None:
            self.recode.check_labels(self.source.label_type)
        elif self.recode.mask_frame is not None:
            raise ValueError("Wanted --mask-frame with a SOURCE. Found: tables, whose masks are upright already.")
        if self.dataset and self.source is None:
            raise ValueError("Wanted --dataset with a SOURCE. Found: tables, which have ids already.")

    def _check_order(self) -> None:
        if self.index < 0:
            raise ValueError(f"Wanted --index of 0 or more. Found: {self.index}")
        if self.index and self.split is None:
            raise ValueError("Wanted --index with --split. Found: --index alone.")
        if self.split is not None and self.seed:
            raise ValueError("Wanted --seed or --split, which has its own order. Found: both.")

    def _check_output(self) -> None:
        if self.compress not in COMPRESSIONS:
            raise ValueError(f"Wanted a compression of {', '.join(COMPRESSIONS)}. Found: {self.compress!r}")
        if self.overwrite and self.resume:
            raise ValueError("Wanted --overwrite or --resume. Found: both.")
        if self.maxcount < 1:
            raise ValueError(f"Wanted --maxcount of 1 or more. Found: {self.maxcount}")
        if is_local(self.out):
            if os.path.exists(self.out) and not os.path.isdir(self.out):
                raise ValueError(f"Wanted a folder or nothing at {os.path.abspath(self.out)!r}. Found: a file.")
            object.__setattr__(self, "out", os.path.abspath(self.out))  # executors have other working directories
        if self.endpoint is not None:
            _check_endpoint(self.endpoint, [self.out, *([] if self.source is None else [self.source.address])])
        if self.source is not None and self.source.kind == "tree" and _is_below(self.out, self.source.address):
            raise ValueError(
                f"Wanted --out outside of SOURCE, because it would be listed with the images. Found: {self.out}"
            )
        if self.maxsize is None:
            object.__setattr__(self, "maxsize", FILE_SYSTEM_BYTES if is_local(self.out) else OBJECT_STORE_BYTES)
        if self.most_bytes < _LEAST_BYTES:
            raise ValueError(f"Wanted --maxsize of {_LEAST_BYTES:,} bytes or more. Found: {self.maxsize:,}")
        if is_s3(self.out) and self.most_bytes > MOST_BYTES_ON_S3:
            raise ValueError(
                f"Wanted --maxsize of {MOST_BYTES_ON_S3:,} bytes or less on S3, the limit of an upload in parts. "
                f"Found: {self.maxsize:,}"
            )

    @property
    def most_bytes(self) -> int:
        """The largest size of a shard in bytes."""
        assert self.maxsize is not None
        return self.maxsize

    @property
    def limit(self) -> Tolerance:
        """How many images may be rejected."""
        # A split names its images, and those of a table were checked: one that is missing is lost.
        usual = Tolerance() if self.source is not None and self.split is None else Tolerance(count=0)
        return usual if self.tolerance is None else self.tolerance

    @property
    def changes_pictures(self) -> bool:
        """Whether the sizes of images are known only after conversion."""
        has_masks = self.source is not None and self.source.label_type == "blob"  # which may have to be turned
        return self.recode.changes or self.compress != "none" or has_masks


def _check_endpoint(endpoint: str, addresses: list[str]) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"Wanted an --endpoint as http://HOST:PORT or https://HOST. Found: {endpoint!r}")
    if not any(is_s3(address) for address in addresses):
        raise ValueError("Wanted --endpoint with an address on S3. Found: none.")


def _is_below(place: str, folder: str) -> bool:
    if is_local(place) and is_local(folder):
        place, folder = os.path.realpath(place), os.path.realpath(folder)
    return f"{place.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
